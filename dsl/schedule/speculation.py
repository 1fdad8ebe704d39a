"""`speculate`: a target and a drafter, each on its schedule."""

from __future__ import annotations

from ..diagnostics import Label, Sink, did_you_mean
from ..model import ir as m
from ..model.expressions import walk
from ..model.instance import Instance
from ..model.instantiate import instantiate
from ..text import syntax as s
from .ir import Schedule, Speculation

type Schedules = dict[tuple[str, str], Schedule | None]

ACCEPT = ("exact",)


def resolve_speculation(
    declared: s.Speculate, models: dict[str, m.Model], schedules: Schedules, sink: Sink
) -> Speculation | None:
    """Both sides found and fit for each other, or `None`."""
    items = {item.role.text if isinstance(item, s.Pairing) else item.name.text: item for item in declared.items}
    known = ("target", "drafter", "verify", "accept")
    for item in declared.items:
        name = item.role if isinstance(item, s.Pairing) else item.name
        if name.text not in known:
            sink.report("E206", f"unknown line `{name.text}`", name.span, helps=did_you_mean(name.text, known))
        elif items[name.text] is not item:
            sink.report("E202", f"`{name.text}` is given twice", item.span)
    missing = [word for word in known if word not in items]
    for word in missing:
        sink.report("E201", f"`{declared.name.text}` has no `{word}` line", declared.name.span)
    if missing:
        return None
    sides = [_side(items[role], role, models, schedules, sink) for role in ("target", "drafter")]
    drafts, accept = _drafts(items["verify"], sink), _accept(items["accept"], sink)
    target, drafter = sides
    if target is None or drafter is None or drafts is None or accept is None:
        return None
    _fit(declared, target, drafter, drafts, items, sink)
    return Speculation(declared.name.text, target, drafter, drafts, accept, declared.span)


def _side(
    item: s.Pairing | s.Option, role: str, models: dict[str, m.Model], schedules: Schedules, sink: Sink
) -> Schedule | None:
    if not isinstance(item, s.Pairing):
        helps = (f"write `{role} = model on schedule`",)
        sink.report("E206", f"`{role}` takes a model and a schedule", item.span, helps=helps)
        return None
    if item.model.text not in models:
        sink.report(
            "E122", f"unknown model `{item.model.text}`", item.model.span, helps=did_you_mean(item.model.text, models)
        )
        return None
    key = (item.model.text, item.schedule.text)
    if key not in schedules:
        own = [name for model, name in schedules if model == item.model.text]
        sink.report(
            "E204",
            f"`{item.model.text}` has no schedule `{item.schedule.text}`",
            item.schedule.span,
            helps=did_you_mean(item.schedule.text, own),
        )
        return None
    return schedules[key]


def _drafts(item: s.Pairing | s.Option, sink: Sink) -> int | None:
    value = item.value if isinstance(item, s.Option) else None
    if isinstance(value, s.Number) and value.unit == "drafts" and isinstance(value.value, int) and value.value > 0:
        return value.value
    sink.report("E206", "`verify` takes a number of drafts", item.span, helps=("write `verify = 7 drafts`",))
    return None


def _accept(item: s.Pairing | s.Option, sink: Sink) -> str | None:
    value = item.value if isinstance(item, s.Option) else None
    if isinstance(value, s.Words) and value.text in ACCEPT:
        return value.text
    sink.report("E206", f"`accept` is {', '.join(ACCEPT)}", item.span)
    return None


def _fit(
    declared: s.Speculate,
    target: Schedule,
    drafter: Schedule,
    drafts: int,
    items: dict[str, s.Pairing | s.Option],
    sink: Sink,
) -> None:
    """Vocabularies, taps, spans and meshes agree."""
    drafted = drafter.model.drafts
    if drafted is None or drafted.name != target.model.name:
        sink.report(
            "E212",
            f"`{drafter.model.name}` does not draft `{target.model.name}`",
            items["drafter"].span,
            others=(Label(drafter.model.span, "declared here"),),
        )
        return
    _machines(declared, target, drafter, sink)
    if drafts + 1 not in target.spans:
        sink.report(
            "E212",
            f"{drafts} drafts are verified in a span of {drafts + 1} rows; `{target.name}` has "
            f"{', '.join(map(str, target.spans))}",
            items["verify"].span,
            helps=(f"add {drafts + 1} to the target's `span`",),
        )
    elif not target.keep_rows:
        sink.report(
            "E212",
            f"`{target.name}` does not keep the state after each row, which a rejected draft needs",
            items["target"].span,
            helps=("write `span … (keep = every row)`",),
        )
    mine, theirs = (instantiate(x.model)[0] for x in (drafter, target))
    if mine is None or theirs is None:
        return
    a, b = _vocabulary(mine), _vocabulary(theirs)
    if a is None:
        sink.report(
            "E212",
            f"`{drafter.model.name}` proposes no token: none of its steps takes an `argmax`",
            items["drafter"].span,
            others=(Label(drafter.model.span, "declared here"),),
        )
    elif a != b:
        sink.report("E212", f"the vocabularies differ: {b} and {a}", declared.name.span)
    blocks = [step.block for step in drafter.model.steps.values() if step.block is not None]
    for block in blocks:
        length = mine.values[block]
        assert isinstance(length, int)
        if drafts > length:
            sink.report("E212", f"{drafts} drafts are verified, a block makes {length}", items["verify"].span)


def _machines(declared: s.Speculate, target: Schedule, drafter: Schedule, sink: Sink) -> None:
    """Both run on the same cores, and the drafter holds as many tokens as the target."""
    parties = (Label(target.span, "target"), Label(drafter.span, "drafter"))
    if target.target != drafter.target:
        sink.report(
            "E212",
            f"the target runs on {target.target.name}, the drafter on {drafter.target.name}",
            declared.name.span,
            others=parties,
        )
    elif target.cores != drafter.cores:
        sink.report(
            "E212",
            f"the target runs on {target.cores} cores, the drafter on {drafter.cores}",
            declared.name.span,
            others=parties,
        )
    if drafter.context < target.context:
        sink.report(
            "E212",
            f"the drafter's context has {drafter.context} tokens, the target's {target.context}",
            declared.name.span,
            others=parties,
        )


def _vocabulary(instance: Instance) -> int | None:
    """Among how many tokens a model chooses: its logits' length, or that of what a drafter's `argmax` reads."""
    main = instance.model.steps.get(m.DECODE)
    if main is not None and "logits" in main.types:
        return instance.length(main.types["logits"].shape[0])
    for body in instance.facts.bodies.values():
        for statement in body:
            for node in walk(statement.value):
                if isinstance(node, m.Call) and node.op == "argmax":
                    return instance.length(node.args[0].type.shape[0])
    return None
