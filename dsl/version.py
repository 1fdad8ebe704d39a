"""Which version of this package is installed."""

from __future__ import annotations


def version() -> str:
    """As `pip` knows it; `unknown` where it is not installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("mks")
    except PackageNotFoundError:
        return "unknown"
