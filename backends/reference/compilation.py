"""Where compiled programs are kept between runs."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import jax

from ...dsl.parse import cache_folder


def keep_compiled(folder: Path | None = None) -> Path | None:
    """Let JAX keep what it compiles, by default under the cache folder; returns where, or `None` if it cannot.

    To be called before anything touches JAX: the cache stays off for a process that has made an array without it.
    """
    folder = (folder or cache_folder() / "xla") / _machine()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    return folder


def _machine() -> str:
    """A name for this kind of processor: programs for another may use instructions that it lacks."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        words = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    except OSError:
        words = [platform.processor()]
    return hashlib.sha256("\n".join([platform.machine(), *words]).encode()).hexdigest()[:12]
