"""From what is named to a decoder and the checkpoint's text files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ...dsl.decoder import Decoder
from ...dsl.diagnostics import Diagnostic, MksError
from ...dsl.model.instantiate import look_up
from ...models.library import find_definition
from ...models.packing.manifest import self_contained
from ...models.text.files import TextFiles, read_text_files
from .arguments import check_choices, check_room
from .cannot_open import CannotOpen
from .compiled import Compiled, Served, first_difference
from .compiled_folder import Steps, open_compiled
from .find import bind, checkpoint_place, find_model, find_schedule, text_place
from .load_pallas import from_checkpoint, from_packed, kernels
from .progress import Loading, Progress, silent

if TYPE_CHECKING:
    import numpy as np

    from ...models.checkpoint.binding import Binding

# Where configurations say how long a sequence may be.
_LONGEST = ("max_position_embeddings", "text_config.max_position_embeddings", "model_max_length")

DEFAULT_CONTEXT = 4096

# Prompts are read in passes of one size, whose results do not depend on where a conversation was cut: what an earlier
# request left can be built upon. Small enough for short messages, and large enough that weights are read seldom.
SERVING_SPAN = 32


@frozen
class Opened:
    """A checkpoint that fits its definition, before its weights are read.

    `longest` is the context that the model was made for, where the checkpoint says so. `decoder(rows, context, ahead)`
    reads the weights for so many sequences of so many positions; with `ahead`, all that it can need is compiled. Where
    there are `compiled` steps, rows and context must be what their `check` gives. A step takes up to `tokens_per_row`
    tokens of a row.
    """

    name: str
    files: TextFiles = field(repr=False)
    longest: int | None
    decoder: Callable[[int, int, bool], Decoder] = field(repr=False)
    warnings: tuple[Diagnostic, ...] = ()
    compiled: Compiled | None = field(default=None, repr=False)
    tokens_per_row: int = 1

    def room(self, rows: int | None, context: int | None) -> tuple[int, int]:
        """Rows and context, as asked for; by default a row, and no more positions than most need.

        Where steps are compiled, these are theirs: raises `MksError` where others are asked for. Raises `CannotOpen`
        where either is no integer of 1 or more, and where the context is longer than the model's, or shorter than what
        a step takes of a row.
        """
        rows, context, _ = check_room(rows, context, self.tokens_per_row)
        if self.compiled is not None:
            rows, context = self.compiled.check(rows, context)
        else:
            rows, context = rows or 1, context or min(self.longest or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
        if self.longest is not None and context > self.longest:
            raise CannotOpen(f"a context of {context} is asked for, but the model's context is {self.longest}")
        if self.tokens_per_row > context:
            raise CannotOpen(
                f"`tokens_per_row` must be an integer from 1 to {context}, the context, not {self.tokens_per_row}"
            )
        return rows, context


def open_model(
    model: str | None,
    *,
    checkpoint: Path | None = None,
    sizes_from_config: bool = False,
    sizes: Mapping[str, int | float] | None = None,
    backend: str = "reference",
    schedule: str | None = None,
    dtype: str | None = None,
    packed: Path | None = None,
    compiled: Path | None = None,
    tokens_per_row: int = 1,
    loading: Loading = silent,
) -> Opened:
    """Find a definition (a shipped one's name or a path) and its checkpoint, and see that they fit.

    `packed` is a folder that `mks pack` wrote, which has both; `model` may also be such a folder, or else, where it is
    given, must be the definition that was packed. `compiled` is one that `mks compile` wrote.
    `backend` is `reference`, or `pallas`, for kernels by the model's only schedule or the one named.
    `dtype` is the working type: `f32`, `bf16`, or `auto`, the narrowest that the checkpoint allows; by default what was
    packed or compiled, else `f32`.
    `tokens_per_row` are what a step takes of a row, one where kernels do. `loading` is told what takes long.
    Raises `CannotOpen`, `UnreadableFile`, or `MksError` with all that is wrong.
    """
    check_choices(backend, dtype, sizes)
    _, _, tokens_per_row = check_room(None, None, tokens_per_row)
    if compiled is not None and backend != "pallas":
        raise CannotOpen(f"`{compiled}` is compiled for kernels; choose `pallas` as the backend")
    if tokens_per_row != 1 and backend == "pallas":
        raise CannotOpen(f"kernels take one token of a row in a step, not {tokens_per_row}")
    from ...models.packing.packed import is_packed

    steps = None if compiled is None else open_compiled(compiled.expanduser())
    named = None if model is None else Path(model).expanduser()
    if named is not None and is_packed(named):
        if packed is not None and packed.expanduser().resolve() != named.resolve():
            raise CannotOpen(f"the model is the packed folder `{named}`, and `packed` is `{packed}`; name one of them")
        model, packed = None, named
    if packed is not None:
        others = bool(checkpoint or sizes_from_config or sizes or schedule)
        return _open_packed(packed.expanduser(), model, backend, dtype, others, steps, loading)
    if model is None:
        raise CannotOpen("name a model, or a folder of packed ones")
    if schedule is not None and backend != "pallas":
        raise CannotOpen("a schedule says how kernels move weights; choose `pallas` as the backend")
    definition, main, diagnostics = find_model(model, scheduled=backend == "pallas")
    # What is not said is what was compiled.
    schedule = schedule or (steps.manifest["schedule"] if steps else None)
    dtype = dtype or (steps.manifest["dtype"] if steps else "f32")
    planned = None if backend != "pallas" else find_schedule(definition, main, schedule)
    path = checkpoint_place(model, checkpoint, diagnostics, loading)
    binding = bind(main, path, diagnostics, adopt=sizes_from_config, sizes=sizes, dtype=dtype)
    files, longest = read_text_files(text_place(path)), _longest(binding.checkpoint.config or {})
    if planned is None:
        decoder = partial(_reference, binding, main.name, loading, tokens_per_row)
        return Opened(main.name, files, longest, decoder, tuple(diagnostics), tokens_per_row=tokens_per_row)
    text = definition.file.source
    adopted = path if sizes_from_config else None
    served = Served(self_contained(text), model, binding.instance, planned, from_checkpoint(binding), adopted)
    return _by_kernels(served, steps, files, longest, loading, tuple(diagnostics))


def _open_packed(
    folder: Path,
    model: str | None,
    backend: str,
    dtype: str | None,
    others: bool,
    steps: Steps | None,
    loading: Loading,
) -> Opened:
    """What `mks pack` wrote, which is one model at its sizes, for the kernels of one schedule."""
    from ...models.packing.packed import open_packed

    if backend != "pallas":
        raise CannotOpen(f"`{folder}` is packed for kernels; choose `pallas` as the backend")
    packed = open_packed(folder)
    if others or dtype not in (None, "auto", packed.instance.working):
        raise CannotOpen(
            f"`{folder}` is packed: its checkpoint, sizes, schedule and working type are what they were then"
        )
    if model is not None:
        _check_packed_from(model, folder, packed.manifest["definition"])
    files = read_text_files(folder)
    served = Served(
        packed.manifest["definition"],
        model or packed.manifest["name"],
        packed.instance,
        packed.schedule,
        from_packed(packed),
        folder,
    )
    return _by_kernels(served, steps, files, _longest(files.config), loading)


def _check_packed_from(model: str, folder: Path, packed: str) -> None:
    """Raises `MksError` (E436) where a definition is another one than was packed."""
    source, diagnostics = find_definition(model)
    if source is None:
        raise MksError(diagnostics)
    text = self_contained(source)
    if text != packed:
        raise MksError(
            [
                Diagnostic(
                    "E436",
                    f"`{folder}` was packed from another definition than `{model}`",
                    notes=first_difference(packed, text),
                    helps=(
                        "where no model is named, what was packed is taken",
                        f"`mks pack {model} -o FOLDER` packs this one",
                    ),
                )
            ]
        )


def _longest(config: Mapping[str, Any]) -> int | None:
    values = (look_up(config, key) for key in _LONGEST)
    return next((value for value in values if type(value) is int and value > 0), None)


def _by_kernels(
    served: Served,
    steps: Steps | None,
    files: TextFiles,
    longest: int | None,
    loading: Loading,
    warnings: tuple[Diagnostic, ...] = (),
) -> Opened:
    compiled = None if steps is None else Compiled(steps, served)
    executable = None if compiled is None else compiled.executable
    decoder = kernels(served.instance, served.schedule, served.source, SERVING_SPAN, loading, executable)
    return Opened(served.instance.model.name, files, longest, decoder, warnings, compiled)


def _reference(
    binding: Binding, name: str, loading: Loading, tokens_per_row: int, rows: int, context: int, ahead: bool
) -> Decoder:
    # JAX takes a while to import, and what is wrong with a checkpoint is said before.
    from ..reference.compilation import keep_compiled
    from ..reference.decoder import ReferenceDecoder

    keep_compiled()
    with loading(f"Loading {name}") as progress:
        span = SERVING_SPAN if ahead else None
        try:
            decoder = ReferenceDecoder(
                binding.instance,
                values(binding, progress),
                rows=rows,
                context=context,
                same=binding.same,
                span=span,
                tokens_per_row=tokens_per_row,
            )
        except (MemoryError, RuntimeError) as e:
            if isinstance(e, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(e):
                raise
            raise CannotOpen(
                f"{rows} rows of {context} positions do not fit into memory; ask for fewer rows or a shorter context"
            ) from e
    if ahead:
        decoder.compile()
    return decoder


def values(binding: Binding, progress: Progress) -> Iterator[tuple[str, int | None, np.ndarray]]:
    """A checkpoint's weights as the reference backend loads them: name, layer, array."""
    from ...models.checkpoint.read import read_all

    total = sum(entry.nbytes for entry in binding.entries())
    done = 0
    for entry, array in read_all(binding):
        yield entry.weight, entry.layer, array
        done += entry.nbytes
        progress(done, total)
