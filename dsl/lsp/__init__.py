"""A language server: what the checker knows, shown while a definition is written."""
