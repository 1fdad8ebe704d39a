"""What cores do together: one class a kind of collective, with its buffers, its rounds and the cores that it is for.

In: how many cores, rows and columns. Out: a `CollectivePlan`. Kernels' code for a kind has its name, in
`backends/pallas/collectives`.

Order of imports: `collective`, `direct`, `scatter_gather`, `two_level`, `reduce_scatter`, `gather`, `softmax_merge`,
`argmax`, `kinds`.
"""
