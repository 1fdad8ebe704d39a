"""Kernels at work: weights, rows, prompts, steps.

In: operands and a device. Out: `PallasDecoder`, several steps in one call, loaded executables.

Order of imports: `device`, `executable`, `multi_step`, `packed_weights`, `expanded_cache`, `row_state`, `prefill`,
`decoder`.
"""
