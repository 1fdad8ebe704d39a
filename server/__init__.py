"""The engine and its OpenAI-compatible HTTP server.

In: a decoder, a checkpoint's text files, HTTP requests. Out: answers, streamed or whole.

Order of imports: `engine`, `http`, `text`, `dialects`, `api`, `commands`.
"""
