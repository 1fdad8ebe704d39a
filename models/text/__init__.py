"""From text to tokens and back, as a checkpoint says.

In: the small files of a checkpoint. Out: a `Tokenizer`.

Order of imports: `byte_level`, `longest`, `memory`, `rank_file`, `files`, `pieces`, `tokenizer`.
"""
