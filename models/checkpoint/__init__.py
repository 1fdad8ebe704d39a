"""Checkpoints: their files, names, shapes and numbers.

In: a folder or a GGUF file, and an Instance. Out: a `Binding` (each weight's tensors) and weights as arrays.

Order of imports: `codecs`, `gguf_header`, `gguf_tokenizer`, `gguf_names`, `slicing`, `tensors`, `binding`, `read`,
`safetensors_header`, `safetensors_file`, `gguf_file`, `folder`, `tensor_names`, `bind_errors`, `name_patterns`,
`unread`, `bind`, `load`.
"""
