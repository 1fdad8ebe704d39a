"""Text to syntax tree, and back.

In: a `Source`. Out: a tree of `syntax` nodes with diagnostics for all that does not parse; the one layout of a tree.

Order of imports: `columns`, `files`, `forms`, `limits`, `scan`, `cut`, `mistakes`, `syntax`, `builder`, `parser`,
`layout`, `align`, `recover`, `parse`, `format`.
"""
