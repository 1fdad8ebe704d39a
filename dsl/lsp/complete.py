"""Words and names that may stand at a place: from the braces around it, as the text there is half written."""

from __future__ import annotations

import re

from ..model.declarations import FIXED_GROUPS, PLAIN
from ..model.ops import find
from ..model.ops import known as ops
from ..model.scope import RESERVED
from ..records import frozen
from ..targets.targets import known as known_targets
from ..text.forms import BLOCKS, FORMS, WORDS
from ..text.scan import Piece, is_lambda, pieces
from .analysis import Analysis
from .names import ModelNames

_DOTTED = re.compile(r"([^\W\d]\w*)\.\w*$")
_EXPERTS = ("experts", "count")
_POINTS = ("previous", "before", "after", "vectors", "layer")
_CODECS = (*PLAIN, *FIXED_GROUPS, "int4", "int8", "fp8")


@frozen
class Proposal:
    """A word; `kind` as of a key in `names`, or `keyword`."""

    word: str
    kind: str
    detail: str = ""


@frozen
class _Block:
    """A block that is open: what may stand in it, and the words of its first line."""

    context: str
    head: tuple[str, ...]


def complete(given: Analysis, offset: int) -> list[Proposal]:
    """All that may stand there; editors choose by what is typed."""
    text = given.source.text[:offset]
    line = text[text.rfind("\n") + 1 :]
    if "#" in line or line.count('"') % 2:
        return []
    blocks = _open(pieces(text))
    context = blocks[-1].context if blocks else "file"
    first = not re.sub(r"\w*$", "", line).strip()
    words = sorted(WORDS.get(context, ())) if first else []
    proposals = {word: Proposal(word, "keyword", FORMS.get(word, "")) for word in words}
    names = _model(given, blocks)
    if names is None:
        return [*proposals.values(), *_named(given, line)]
    dotted = _DOTTED.search(line)
    if dotted is not None:
        return _inside(names, dotted[1], in_schedule=blocks[0].context == "schedule")
    if blocks[0].context == "schedule":
        proposals |= _of_schedule(names, line, first)
    else:
        proposals |= _of_model(names, blocks)
    return list(proposals.values())


def _open(given: list[Piece]) -> list[_Block]:
    """The blocks around the end of a text."""
    blocks: list[_Block] = []
    line: list[str] = []
    for i, piece in enumerate(given):
        if piece.kind == "newline":
            line = []
        elif piece.text == "{":
            context = "function" if is_lambda(given, i) else BLOCKS.get(line[0] if line else "", "unknown")
            blocks.append(_Block(context, tuple(line)))
            line = []
        elif piece.text == "}":
            del blocks[-1:]
            line = []
        else:
            line.append(piece.text)
    return blocks


def _model(given: Analysis, blocks: list[_Block]) -> ModelNames | None:
    """The model that a place belongs to, or that its schedule is for."""
    if not blocks or blocks[0].context not in ("model", "schedule"):
        return None
    head = blocks[0].head
    at = 1 if blocks[0].context == "model" else 3
    return given.index.models.get(head[at]) if len(head) > at else None


def _named(given: Analysis, line: str) -> list[Proposal]:
    """Outside of models: what a schedule is for, and what pairs."""
    if re.search(r"\b(for|drafts|=)\s+\w*$", line):
        return [Proposal(name, "model") for name in given.index.models]
    if re.search(r"\bon\s+\w*$", line):
        return [Proposal(name, "schedule", f"for {model}") for model, name in given.definition.schedules]
    return []


def _inside(names: ModelNames, scope: str, in_schedule: bool) -> list[Proposal]:
    """What stands behind `scope.`."""
    own = {name.removeprefix(f"{scope}."): kind for name, kind in names.stored.items() if name.startswith(f"{scope}.")}
    if in_schedule and (scope in names.parts or scope in names.steps):
        own |= dict.fromkeys(names.own.get(scope, ()), "value")
        own |= {name: kind for name, kind in names.stored.items() if "." not in name and scope in names.steps}
        own |= dict.fromkeys(("start", "state", "cache", "experts"), "keyword")
    return [Proposal(word, kind) for word, kind in own.items()]


def _of_schedule(names: ModelNames, line: str, first: bool) -> dict[str, Proposal]:
    if line.split()[:1] == ["target"]:
        rates = {name: row.memory.hbm_rate.value / 1e12 for name, row in known_targets().items()}
        return {name: Proposal(name, "keyword", f"{rate:.3g} TB/s") for name, rate in rates.items()}
    proposals = {} if first else {word: Proposal(word, "keyword") for word in _POINTS}
    proposals |= {name: Proposal(name, kind) for name, kind in names.top.items() if kind == "size" and not first}
    proposals |= {name: Proposal(name, "part") for name in (*names.parts, *names.steps)}
    scope = line.partition(":")[0].strip()
    if ":" in line and scope in names.own:
        seen = names.seen_from(scope)
        proposals |= {name: Proposal(name, kind) for name, kind in seen.items() if kind == "weight"}
    return proposals


def _of_model(names: ModelNames, blocks: list[_Block]) -> dict[str, Proposal]:
    part = next((b.head[1] for b in blocks if b.context == "part" and len(b.head) > 1), None)
    step = next((b for b in blocks if b.context == "step" and b.head[:1] == ("step",)), None)
    scope = part or ("" if step is None else step.head[1] if step.head[1:2] and step.head[1] in names.steps else "step")
    proposals = {name: Proposal(name, kind) for name, kind in names.top.items()}
    if blocks[-1].context in ("weights", "state"):
        return proposals | {name: Proposal(name, "keyword") for name in _CODECS}
    proposals |= {name: Proposal(name, kind) for name, kind in names.seen_from(scope).items()}
    values = names.own.get(scope, frozenset()) | names.carried.get(scope, frozenset())
    proposals |= {name: Proposal(name, "value") for name in values}
    if step is not None:
        proposals |= {name: Proposal(name, "part") for name in names.parts}
    for name in (*ops(), *_EXPERTS):
        op = find(name)
        proposals[name] = Proposal(name, "op", op.signature if op is not None else "")
    return proposals | {name: Proposal(name, "input") for name in RESERVED}
