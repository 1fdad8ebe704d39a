"""The engine and its OpenAI-compatible HTTP server."""
