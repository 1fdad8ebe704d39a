"""What an editor shows of the thing under the pointer, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model import ir as m
from ..model.codecs import stored_bytes
from ..model.expressions import walk
from ..model.instance import Instance
from ..model.ops import find
from ..model.shapes import show
from ..program.analysis.report import as_text
from ..program.print.text import number
from ..schedule.shares import Shares
from ..source import Span
from ..text import syntax as s
from ..text.forms import FORMS
from ..text.scan import pieces
from .analysis import Analysis
from .figures import line_figures, state_bytes, took
from .names import Key, Mention

_INPUTS = {
    "token": "the id of the row's token: int32",
    "position": "how many tokens of the row came before: int32",
    "layer": "the number of the layer at hand, from 0",
    "row": "the number of the row in its block, from 0",
    "all": "every layer",
    "true": "true",
    "false": "false",
}


def hover(given: Analysis, offset: int, before: Analysis | None = None) -> tuple[str, Span] | None:
    """Markdown and the place that it is about: a name, a line of a schedule, or a statement's first word.

    While a model has errors, its figures are those of `before`, an earlier version that had none.
    """
    mention = given.index.at(given.source, offset)
    line = _line(given, offset)
    if mention is not None and mention.key.kind not in ("axis", "stream"):
        key = mention.key
        code, lines = _name(given, _figured(given, before, key.name if key.kind == "model" else key.model), mention)
        more = _costs(_figured(given, before, line[0].model.text), *line) if line is not None else []
        return _markdown(code, lines, more), mention.span
    if line is not None:
        schedule, stream, item = line
        code = item.span.text.partition("\n")[0].partition("#")[0].rstrip(" {")
        figured = _figured(given, before, schedule.model.text)
        return _markdown(code, _costs(figured, schedule, stream, item), []), item.span
    return _word(given, offset)


def _figured(given: Analysis, before: Analysis | None, model: str) -> Analysis:
    """The version that has figures of a model, and of its schedules."""
    if before is None or model not in before.definition.instances:
        return given
    missing = [key for key in given.definition.own_schedules if key[0] == model and key not in given.made]
    lacks = model not in given.definition.instances or any(key in before.made for key in missing)
    return before if lacks else given


def _markdown(code: str, lines: list[str], more: list[str]) -> str:
    sections = [lines, more] if more else [lines]
    texts = ["\n".join(f"- {each}" for each in section) for section in sections if section]
    return "\n\n".join([f"```mks\n{code}\n```", *dict.fromkeys(texts)])


def _word(given: Analysis, offset: int) -> tuple[str, Span] | None:
    """The form of the statement that a word begins."""
    before: str | None = None
    for piece in pieces(given.source.text):
        if piece.start <= offset < piece.end and piece.text in FORMS and before in (None, "newline", "{", "}"):
            return _markdown(FORMS[piece.text], [], []), Span(given.source, piece.start, piece.end)
        before = piece.text if piece.kind == "sign" else piece.kind
    return None


type Line = tuple[s.Schedule, str, s.ScheduleItem | s.StreamLine]


def _line(given: Analysis, offset: int) -> Line | None:
    """The statement of a schedule that stands there; of a stream's block, the line."""
    for schedule in given.definition.file.items:
        if isinstance(schedule, s.Schedule):
            for item in schedule.items:
                if item.span.start <= offset < item.span.end:
                    inside = item.items if isinstance(item, s.Stream) else ()
                    for line in inside:
                        if isinstance(line, s.StreamLine) and line.span.start <= offset < line.span.end:
                            return schedule, item.span.text.split()[1], line
                    return schedule, "", item
    return None


def _costs(given: Analysis, schedule: s.Schedule, stream: str, item: s.ScheduleItem | s.StreamLine) -> list[str]:
    key = (schedule.model.text, schedule.name.text)
    if key not in given.made:
        return []
    return line_figures(item, stream, Shares(*given.made[key]), given.programs.get(key), given.reports.get(key))


def _name(given: Analysis, figured: Analysis, mention: Mention) -> tuple[str, list[str]]:
    """The thing as it would be declared, and what is known of it."""
    key = mention.key
    model, instance = figured.definition.models.get(key.model), figured.definition.instances.get(key.model)
    shares = [Shares(*by_name) for (name, _), by_name in figured.made.items() if name == key.model]
    declared = given.index.declarations(mention)
    text = _text(declared[0].span) if declared else ""
    last = key.name.rpartition(".")[2]
    match key.kind:
        case "op":
            op = find(key.name)
            return (op.signature, [op.summary]) if op is not None else (key.name, _experts(key.name))
        case "input":
            return key.name, [_INPUTS.get(key.name, "")]
        case "file":
            return f'use "{key.name}"', []
        case "size" | "const" | "list":
            return text or key.name, _value(key, instance)
        case "weight" if model is not None and key.name in model.weights:
            weight = model.weights[key.name]
            return f"{key.name} : {weight.codec}{show(weight.shape)}", list(_weight(weight, instance, shares))
        case "state" | "cache" | "buffer" if model is not None and key.name in model.states:
            state = model.states[key.name]
            kept = [f"{_at(x)}: {state_bytes(state, x)}" for x in shares]
            return f"{key.kind} {key.name} : {state.type}", [*_numbers(state.type, instance), *kept]
        case "taps" if model is not None and key.name in model.taps:
            return f"{last} : {model.taps[key.name].type}", _numbers(model.taps[key.name].type, instance)
        case "value":
            return _of_value(mention, model, instance, shares)
        case "part":
            return f"part {key.name}", list(_part(key.name, instance, shares))
        case "step":
            return f"step {key.name}".replace("step step", "step"), []
        case "model":
            return f"model {key.name}", list(_model(figured, key.name))
        case "schedule":
            report = figured.reports.get((key.model, key.name))
            return (f"schedule {key.name} for {key.model}" if report is None else as_text(report)), []
        case _:
            return text if key.kind in ("function", "speculate") and text else f"{key.kind} {last}".split("@")[0], []


def _text(name: Span) -> str:
    """The line that a name is declared on, without its comment."""
    source = name.source
    line = source.line(source.position(name.start)[0])
    return " ".join(line.partition("#")[0].rstrip().rstrip("{").split())


def _experts(name: str) -> list[str]:
    known = {
        "experts": "the sum over a token's routes of weight * body, for `experts(x, routes) { e -> body }`",
        "count": "how many numbers a list has",
    }
    return [known[name]] if name in known else []


def _value(key: Key, instance: Instance | None) -> list[str]:
    value = instance.values.get(key.name) if instance is not None else None
    if value is None:
        return []
    if isinstance(value, tuple | list):
        return [f"{len(value)}: {_few(value)}"]
    return [f"= {value}"]


def _few(numbers: Sequence[object]) -> str:
    return ", ".join(map(str, numbers[:16])) + ", …" * (len(numbers) > 16)


def _numbers(type_: m.Type, instance: Instance | None) -> list[str]:
    if instance is None or not type_.shape:
        return []
    return [f"= {type_.dtype}{list(instance.shape(type_.shape))}"]


def _at(shares: Shares) -> str:
    return f"a core of `{shares.schedule.name}` ({shares.schedule.target.name})"


def _weight(weight: m.Weight, instance: Instance | None, shares: list[Shares]) -> Iterator[str]:
    if instance is None:
        return
    shape = instance.shape(weight.shape)
    size, layers = stored_bytes(weight.codec, shape), instance.owner_layers(weight.part)
    whole = "" if layers is None else f" a layer, {number(size * len(layers))} in all {len(layers)}"
    yield f"= {weight.codec}{list(shape)}: {number(size)} bytes{whole}"
    for each in shares:
        mine, own = each.weight_shape(weight), each.weight_bytes(weight)
        routed = any(weight.name in names for names in each.facts.experts.values())
        looked_up = any(
            isinstance(n, m.Call)
            and n.op == "index"
            and isinstance(n.args[0], m.WeightRef)
            and n.args[0].name == weight.name
            for body in each.facts.bodies.values()
            for statement in body
            for n in walk(statement.value)
        )
        held = f"{_at(each)}: {list(mine)}, "
        if routed:
            yield f"{held}{number(own)} bytes a layer; one expert {took(own // mine[0], each.schedule)}"
        elif looked_up:
            yield f"{held}{number(own)} bytes; one row {took(own // mine[0], each.schedule)}"
        else:
            yield f"{held}{took(own, each.schedule)}"


def _of_value(
    mention: Mention, model: m.Model | None, instance: Instance | None, shares: list[Shares]
) -> tuple[str, list[str]]:
    name = mention.key.name.rpartition(".")[2]
    type_ = None if model is None else _type(name, mention.owner, model)
    if type_ is None:
        return name, []
    numbers = _numbers(type_, instance)
    if type_.shape and type_.dtype != "routes":
        cut = {tuple(x.shape(type_.shape)): x for x in shares}
        whole = instance.shape(type_.shape) if instance is not None else ()
        numbers += [f"{_at(x)}: {list(shape)}" for shape, x in cut.items() if shape != whole]
    return f"{name} : {type_}", numbers


def _type(name: str, owner: str, model: m.Model) -> m.Type | None:
    """A value's type where it is set, or where it comes from."""
    step = model.steps.get(m.DECODE if owner == "step" else owner)
    bodies = [model.parts[owner].body] if owner in model.parts else [step.body] if step is not None else []
    bodies += [each.body for each in model.steps.values()]
    for body in bodies:
        for statement in _flat(body):
            if name in statement.names:
                return statement.types[statement.names.index(name)]
    return None


def _flat(body: tuple[m.Statement, ...]) -> Iterator[m.Assign]:
    for statement in body:
        if isinstance(statement, m.Assign):
            yield statement
        elif isinstance(statement, m.Loop):
            yield from _flat(statement.body)


def _part(name: str, instance: Instance | None, shares: list[Shares]) -> Iterator[str]:
    if instance is None:
        return
    layers = instance.part_layers.get(name, ())
    yield f"{len(layers)} layer{'s' * (len(layers) != 1)}: {_few(layers)}"
    weights = [w for w in instance.model.weights.values() if w.part == name]
    size = sum(stored_bytes(w.codec, instance.shape(w.shape)) for w in weights)
    yield f"weights: {number(size)} bytes a layer"
    for each in shares:
        routed = {w for names in each.facts.experts.values() for w in names}
        own = sum(each.weight_bytes(w) for w in weights if w.name not in routed)
        rest = " without the experts" if any(w.name in routed for w in weights) else ""
        yield f"{_at(each)}, a layer{rest}: {took(own, each.schedule)}"


def _model(given: Analysis, name: str) -> Iterator[str]:
    instance = given.definition.instances.get(name)
    if instance is None:
        return
    sizes = [
        stored_bytes(w.codec, instance.shape(w.shape)) * len(instance.owner_layers(w.part) or (None,))
        for w in instance.model.weights.values()
    ]
    yield f"weights: {number(sum(sizes))} bytes"
    yield from (f"schedule `{key[1]}`" for key in given.made if key[0] == name)
