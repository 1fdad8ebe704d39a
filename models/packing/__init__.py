"""Weights as kernels read them, in memory and on the disk.

In: a Binding and a Program. Out: each core's arrays; a packed folder with checksums, and its way back.

Order of imports: `checksums`, `requantize`, `shards`, `tapes`, `experts`, `operands`, `layout`, `manifest`,
`journal`, `read_manifest`, `text_files`, `check`, `pack`, `packed`.
"""
