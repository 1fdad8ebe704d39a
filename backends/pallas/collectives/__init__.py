"""Collectives inside a kernel: cores write into each other's VMEM.

In: values in VMEM and a collective's plan. Out: sums, gathers, merged softmaxes, the greatest.

Order of imports: `peers`, `messages`, `sums`, `others`, `collectives`.
"""
