"""A language server: what the checker knows, shown while a definition is written.

In: an editor's messages. Out: diagnostics, hovers, completions, outlines.

Order of imports: `figures`, `names`, `outline`, `positions`, `scheduled`, `mentions`, `analysis`, `complete`,
`convert`, `files`, `hover`, `server`.
"""
