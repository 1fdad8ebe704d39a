"""The proof that a Program does what the definition says, one property a file.

In: a Program. Out: diagnostics (`prove`), with the shortest steps that lead to each fault.

Order of imports: `paths`, `collectives`, `reach`, `buffers`, `copies`, `rings`, `terms`, `held`, `expression_terms`,
`op_terms`, `defined`, `computed`, `computed_collectives`, `computed_attention`, `computed_ops`, `definition`,
`witness`, `prove`.
"""
