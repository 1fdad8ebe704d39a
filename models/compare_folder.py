"""An instance against a folder's tensors, for commands that read no weights."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from attrs import evolve

from ..dsl.diagnostics import Diagnostic
from ..dsl.model.instance import Instance
from .checkpoint.bind import bind
from .checkpoint.folder import scan_checkpoint
from .checkpoint.tensor_names import working_type
from .packing.packed import is_packed


def compared(instance: Instance, folder: Path, overridden: Collection[str]) -> list[Diagnostic]:
    """What `load` would say of the tensors; nothing of a folder that has none, or whose arrays kernels read."""
    if is_packed(folder) or not any(any(folder.glob(f"*.{end}")) for end in ("safetensors", "gguf")):
        return []
    checkpoint, diagnostics = scan_checkpoint(folder)
    if checkpoint is None:
        return diagnostics
    damaged = any(d.severity == "error" for d in diagnostics)
    instance = evolve(instance, working=working_type(instance.model, checkpoint))
    return diagnostics + bind(instance, checkpoint, damaged=damaged, overridden=overridden)[1]
