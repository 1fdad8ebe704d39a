"""Conversations to text, and answers to the text that a client may see.

In: templates, tokens. Out: prompts, text in whole characters.

Order of imports: `stream`, `answer`, `template`.
"""
