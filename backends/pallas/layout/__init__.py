"""Packed arrays as JAX sees them: tables of tapes, whole arrays out of cores' shares, matrices out of tapes.

In: a Program, cores' arrays. Out: tables for kernels; matrices, vectors and experts again.

Order of imports: `position_blocks`, `resharding`, `tape`, `unpack`, `expert_unpack`.
"""
