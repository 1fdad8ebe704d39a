"""Where derived files are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where derived files may be kept between runs; need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mks"
