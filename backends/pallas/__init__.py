"""Programs as one Pallas call: interpreted on a CPU, or compiled for TPUs, attached or not.

In: a Program and packed weights. Out: steps, decoders, compiled executables, counted cycles, comparisons.

Order of imports: `ops`, `collectives`, `layout`, `emit`, `aot`, `cycles`, `runtime`, `diff_test`.
"""
