"""Model and Schedule to Programs, one pass a file.

In: a Schedule and an Instance. Out: a Program for each number of rows and each span (`passes`), or E901.

Order of imports: `build`, `expert_pools`, `sharded_value`, `frame`, `partials`, `context_parallel`, `options`,
`prefetch`, `reduce_scatter`, `small_weights`, `reduce`, `along`, `matmul`, `attention`, `block_attention`,
`expanded_cache`, `lookup`, `moe`, `body`, `phase`, `traced`, `lower`, `passes`.
"""
