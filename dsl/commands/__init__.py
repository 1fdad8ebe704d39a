"""The `mks` command, and the words of it that need the language only.

In: a command line. Out: an exit status, text or JSON.

Order of imports: `argtypes`, `cli`, `compiled`, `config`, `explain`, `fmt`, `lsp`, `new`, `pictures`, `sizes`,
`tensors`, `check`, `plan`.
"""
