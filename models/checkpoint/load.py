"""From a definition's model and a path to bound weights, with everything that is wrong said at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...dsl.diagnostics import Diagnostic, Sink, ordered
from ...dsl.model.check_instance import check_instance
from ...dsl.model.instantiate import instantiate
from ...dsl.model.ir import Model
from ...dsl.model.static import Value
from .bind import bind
from .binding import Binding
from .folder import scan_checkpoint
from .tensor_names import working_type


def load(
    model: Model,
    path: str | Path,
    *,
    adopt: bool = False,
    overrides: Mapping[str, Value] | None = None,
    working: str | None = None,
) -> tuple[Binding | None, tuple[Diagnostic, ...]]:
    """Open a checkpoint, take or compare sizes (`adopt`) and bind all weights; no tensor is read yet.

    `working` is what `bf16` means, `bf16` or `f32`; by default the narrowest that the checkpoint allows.
    The binding is `None` if there was any error; files, config and tensors are all looked at before that is decided.
    """
    checkpoint, diagnostics = scan_checkpoint(path)
    if checkpoint is None:
        return None, ordered(diagnostics)
    damaged = any(d.severity == "error" for d in diagnostics)
    instance, more = instantiate(
        model,
        config=checkpoint.config,
        overrides=overrides,
        adopt=adopt,
        working=working or working_type(model, checkpoint),
    )
    diagnostics += more
    sink = Sink()
    if instance is not None and not check_instance(instance, sink):
        instance = None
    diagnostics += sink.diagnostics
    binding = None
    # Without sizes, or with none from a damaged checkpoint's tensors, shapes would only repeat what was said.
    if instance is not None:
        binding, more = bind(instance, checkpoint, damaged=damaged, overridden=overrides or ())
        diagnostics += more
    failed = any(d.severity == "error" for d in diagnostics)
    return (None if failed else binding), ordered(diagnostics)
