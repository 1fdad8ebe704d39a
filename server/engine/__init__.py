"""Continuous batching: sequences in rows, and which token comes next.

In: prompts as tokens with sampling parameters. Out: tokens, with log-probabilities.

Order of imports: `failures`, `grammar_worker`, `grammar`, `prefix`, `sampling_params`, `scores`, `draw`, `sampling`,
`sequence`, `chunked_prefill`, `observer`, `slots`, `steps`, `engine`.
"""
