"""Continuous batching: sequences in rows, and which token comes next."""
