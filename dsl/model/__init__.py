"""Mathematics: names resolved, shapes inferred, sizes given.

In: a syntax tree. Out: a `Model`, and at given sizes an `Instance`. `ops` is the registry of all ops.

Order of imports: `shapes`, `ir`, `codecs`, `rules`, `along`, `op`, `brought`, `ops`, `scope`, `static`, `calls`,
`domains`, `expressions`, `bodies`, `declarations`, `facts`, `instance`, `check_instance`, `instantiate`, `resolve`.
"""
