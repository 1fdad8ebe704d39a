"""Tables of the pages that are made from registries: between `<!-- table: NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from mks.dsl.model import ops
from mks.dsl.targets.targets import targets
from mks.dsl.text.forms import CONTEXTS, FORMS, NAMED_FORMS, WORDS

# What the parser takes in a place so that a better message than its own can refuse it.
_REFUSED = {("part", "for")}
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _statements() -> Iterator[tuple[str, str]]:
    yield "in", "statement"
    for place, (words, _) in CONTEXTS.items():
        forms = [form for word, form in FORMS.items() if word in WORDS[place] and (place, word) not in _REFUSED]
        forms += [NAMED_FORMS[place]] if place in NAMED_FORMS else []
        for i, form in enumerate(forms):
            yield "" if i else words, f"`{form}`"


def _ops() -> Iterator[tuple[str, str, str]]:
    yield "op", "value", "reads or writes"
    signs = {name: sign for sign, name in ops.OPERATORS.items()}
    for row in ops.table.values():
        if row.name not in signs and row.name not in ops.HIDDEN:
            held = [
                f"{kind} `{name}`"
                for kind, names in (("writes state", row.updates), ("reads cache", row.caches))
                for name in row.parameters
                if name in names
            ]
            yield f"`{row.signature}`", row.summary.replace("|", r"\|"), ", ".join(held)


def _targets() -> Iterator[tuple[str, ...]]:
    yield "chip", "topologies such as", "devices a chip", "HBM", "its bandwidth", "VMEM", "bf16"
    for row in targets.values():
        yield (
            f"`{row.name}`",
            f"`{'2x2x1x1'[: 2 * row.topology_rank - 1]}`",
            str(row.cores),
            f"{row.memory.hbm.value / 2**30:.0f} GiB",
            f"{row.memory.hbm_rate.value / 1e9:.0f} GB/s",
            f"{row.memory.vmem.value / 2**20:.2f} MiB",
            f"{row.compute.bf16_rate.value / 1e12:.0f} TFLOP/s",
        )


TABLES: dict[str, Callable[[], Iterator[tuple[str, ...]]]] = {
    "statements": _statements,
    "ops": _ops,
    "targets": _targets,
}


def markdown(rows: Iterator[tuple[str, ...]]) -> str:
    """Rows, of which the first is the head."""
    head, *rest = rows
    return "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in (head, ("---",) * len(head), *rest))


def filled(page: str) -> str:
    """A page with its tables as the registries have them. Raises `KeyError` for a table that there is not."""
    return _TABLE.sub(lambda found: f"{found[1]}{markdown(TABLES[found[2]]())}{found[3]}", page)
