"""Words for what does not fit: one diagnostic for each weight and kind of fault, with a readable number of tensors."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from ...dsl.diagnostics import Diagnostic, Label
from ...dsl.model import ir as m
from ...dsl.model.shapes import show
from .tensor_names import Names
from .tensors import Checkpoint, Stored, listed

_LIMIT = 5


@define
class _Fault:
    message: str
    lines: list[str] = field(factory=list)
    helps: tuple[str, ...] = ()
    others: tuple[Label, ...] = ()


@define
class Faults:
    """Collects what is wrong; with `damaged`, absence is not news."""

    checkpoint: Checkpoint
    damaged: bool = False
    _found: dict[tuple[str, str], _Fault] = field(factory=dict, init=False)
    _weights: dict[str, m.Weight] = field(factory=dict, init=False)
    _names: Names = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._names = Names(self.checkpoint.tensors)

    def _add(
        self,
        code: str,
        weight: m.Weight,
        message: str,
        lines: Iterable[str] = (),
        helps: tuple[str, ...] = (),
        others: tuple[Label, ...] = (),
    ) -> None:
        self._weights[weight.name] = weight
        fault = self._found.setdefault((weight.name, code), _Fault(message, helps=helps, others=others))
        fault.lines.extend(lines)

    def absent(self, weight: m.Weight, names: list[str]) -> None:
        """Tensors that are not there."""
        if names and not self.damaged:
            helps = self._names.near(names[0]) if (weight.name, "E420") not in self._found else ()
            self._add(
                "E420",
                weight,
                f"`{weight.name}` is not in the checkpoint",
                [f"absent: `{name}`" for name in names],
                helps,
            )

    def shape(self, weight: m.Weight, tensor: Stored, want: tuple[int, ...], start: int | None) -> None:
        """A tensor of another shape; `want` is what its declared part needs."""
        part = "" if start is None else f" from row {start} on"
        self._add(
            "E421",
            weight,
            f"`{weight.name}` has another shape in the checkpoint",
            [f"`{tensor.name}` is {list(tensor.shape)}; {list(want)}{part} is needed"],
        )

    def rows(self, weight: m.Weight, stored_as: m.CheckpointTensor, value: object) -> None:
        """A first row that is not a whole number."""
        self._add(
            "E421",
            weight,
            f"`{weight.name}` begins at a row that is not a whole number",
            [f"`rows {value} ..` of `{stored_as.name}`"],
        )

    def kind(self, weight: m.Weight, tensor: Stored, allowed: tuple[str, ...]) -> None:
        """A tensor of numbers that cannot be the weight's."""
        helps: tuple[str, ...] = ()
        if weight.codec.name in ("bf16", "f32") and tensor.kind not in ("bool", "i64"):
            helps = ("if the checkpoint is quantised, declare the weight with its codec and a `scale`",)
        dtypes = " or ".join(allowed)
        self._add(
            "E422",
            weight,
            f"`{weight.name}` is stored in a type that it cannot be read from",
            [f"`{tensor.name}` is {tensor.kind}; {dtypes} is read"],
            helps,
        )

    def lossy(self, weight: m.Weight, tensor: Stored, dtype: str) -> None:
        """A conversion that loses bits."""
        self._add(
            "E423",
            weight,
            f"reading `{weight.name}` would lose bits: it is used as {dtype}",
            [f"`{tensor.name}` is {tensor.kind}"],
            ('`rounded` before the name allows it: `rounded "…"`',),
        )

    def no_scales(self, weight: m.Weight, names: list[str]) -> None:
        """A packed tensor without its companions."""
        if names and not self.damaged:
            self._add(
                "E424",
                weight,
                f"the scales of `{weight.name}` are not in the checkpoint",
                [f"absent: `{name}`" for name in names],
            )

    def scale(
        self, weight: m.Weight, tensor: Stored, want: tuple[int, ...], kinds: tuple[str, ...], start: int | None
    ) -> None:
        """A companion that does not belong to its tensor."""
        part = "" if start is None else f" from row {start} on"
        needed = f"{list(want)}{part}" if want else "one for all, for each matrix, or for each piece of its rows"
        self._add(
            "E424",
            weight,
            f"the scales of `{weight.name}` do not fit it",
            [f"`{tensor.name}` is {tensor.kind}{list(tensor.shape)}; needed: {' or '.join(kinds)}, {needed}"],
        )

    def groups(self, weight: m.Weight, shape: tuple[int, ...]) -> None:
        """A shape that the codec cannot hold."""
        why = f"its last axis has {shape[-1]} elements" if len(shape) > 1 else "it is not a matrix"
        self._add("E428", weight, f"`{weight.name}` cannot be {weight.codec}: {why}")

    def untied(self, weight: m.Weight, alias: m.Alias) -> None:
        """No head, and the config says that it is not the embedding."""
        if not self.damaged:
            self._add(
                "E425",
                weight,
                f"`{weight.name}` is absent, and the config unties it from `{alias.weight}`",
                [f"absent: `{p.name}`" for p in weight.tensors if isinstance(p, m.CheckpointTensor)],
                ('`"tie_word_embeddings": true` in config.json ties them',),
                (Label(alias.span, "used where the config allows it"),),
            )

    def tied(self, weight: m.Weight, alias: m.Alias, mine: Stored, other: Stored) -> None:
        """The config says that head and embedding are one, and two different ones are stored."""
        # Engines disagree here: some use the stored head and some ignore it, so neither is a safe guess.
        self._add(
            "E426",
            weight,
            f"the config ties `{weight.name}` to `{alias.weight}`, but the checkpoint stores a different tensor",
            [f"`{mine.name}` differs from `{other.name}`"],
            (
                '`"tie_word_embeddings": false` in config.json selects the stored tensor; '
                "to use the tie, remove the tensor",
            ),
            (Label(alias.span, "tied to this"),),
        )

    @property
    def pointed(self) -> set[str]:
        """Patterns of tensors that helps propose."""
        return self._names.pointed

    def diagnostics(self, model: m.Model, nothing: bool) -> list[Diagnostic]:
        """One for each weight and code; a single one where `nothing` was found and all that is wrong is absence."""
        diagnostics = [self._diagnostic(name, code, fault) for (name, code), fault in self._found.items()]
        if not nothing or len(diagnostics) < 2 or not all(d.code in ("E420", "E425") for d in diagnostics):
            return diagnostics
        wanted = [f"`{line.split('`')[1]}`" for fault in self._found.values() for line in fault.lines[:1]]
        notes = (f"the model: {listed(wanted, 3)}", f"the checkpoint: {self._names.sample()}")
        return [
            Diagnostic(
                "E420",
                f"`{self.checkpoint.path}` holds none of the tensors of `{model.name}`",
                Label(model.span),
                (),
                notes,
            )
        ]

    def _diagnostic(self, name: str, code: str, fault: _Fault) -> Diagnostic:
        weight = self._weights[name]
        lines = list(dict.fromkeys(fault.lines))
        notes = lines[:_LIMIT] + ([f"… and {len(lines) - _LIMIT} more"] if len(lines) > _LIMIT else [])
        label = f"{weight.codec}{show(weight.shape)}"
        return Diagnostic(code, fault.message, Label(weight.span, label), fault.others, tuple(notes), fault.helps)
