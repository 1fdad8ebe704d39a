"""Definitions, and what turns a checkpoint into weights.

In: a definition's name or path, a checkpoint. Out: bound weights, tokenizers, packed folders.

Order of imports: `checkpoint`, `demo`, `library`, `packing`, `compare_folder`, `text`.
"""
