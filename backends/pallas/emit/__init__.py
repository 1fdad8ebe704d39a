"""A Program as a Pallas kernel, one op after the other.

In: a Program. Out: the jitted call over all cores (`shard_map`), each op under a scope by its place.

Order of imports: `signature`, `context`, `matmul`, `scopes`, `transfers`, `attention`, `evaluate`, `collective_ops`,
`moe`, `emitter`, `call`, `shard_map`.
"""
