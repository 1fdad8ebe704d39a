"""Why a model is not opened."""

from __future__ import annotations


class CannotOpen(Exception):
    """A model cannot be opened as it was asked for; the text says why, for people."""
