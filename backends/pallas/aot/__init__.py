"""Compiling for TPUs that are not attached, and what the compiler says.

In: a Program. Out: executables, VMEM and HBM used, refusals explained, the XLA baseline.

Order of imports: `compiler`, `failures`, `hlo`, `measure`, `xla_baseline`.
"""
