"""The version of the installed package."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """As `pip` knows it."""
    try:
        return metadata.version("mks")
    except metadata.PackageNotFoundError:
        return "0"
