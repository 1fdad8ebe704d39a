"""Where a Model runs, how long a step takes, and the compiler's commands.

In: Models, Programs, weights. Out: decoders, compiled kernels, predictions, pictures.

Order of imports: `reference`, `pallas`, `timeline`, `opening`, `python`, `commands`, `pictures`.
"""
