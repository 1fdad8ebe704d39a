"""Where compiled programs are kept between runs."""

from __future__ import annotations

import hashlib
import platform
from logging import getLogger
from pathlib import Path
from typing import Any

import jax

from ...dsl.cache import cache_folder
from .ops.matmul import FEW

_log = getLogger(__name__)


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


def compiled(lowered: Any, tokens: int) -> Any:
    """Compile a program for a pass of `tokens` tokens in all."""
    # XLA's CPU compiler hands products over to a library; for few tokens reading the weights is what takes time, and
    # one uninterrupted loop over the layers reads them fastest. Other versions may not know the option.
    if jax.default_backend() == "cpu" and tokens <= FEW:
        try:
            return lowered.compile(compiler_options={"xla_cpu_experimental_ynn_fusion_type": ""})
        except Exception as e:  # which one is not promised; a real fault comes again below
            _log.debug("compiling without options: %s", e)
    return lowered.compile()


def _machine() -> str:
    """A name for this kind of processor: programs for another may use instructions that it lacks."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        words = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    except OSError:
        words = [platform.processor()]
    return hashlib.sha256("\n".join([platform.machine(), *words]).encode()).hexdigest()[:12]
