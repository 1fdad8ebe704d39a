"""A prediction in words and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...dsl.program.ir import SmallWeightsRef
from ...dsl.program.print.text import table
from ...dsl.targets.target import Figure, Target
from .counted import Counted
from .summary import Prediction, Share, Stall

_MOST = 12
KINDS = {
    "tape": "the tape",
    "copy": "a copy",
    "cache": "a cache's tiles",
    "expert": "an expert",
    "row": "a row",
    "output": "an output",
    "commit": "states that move to their places",
    "link": "messages",
}

LOOPS = {"tiles": "a cache's tile", "experts": "an expert"}


# Figures of a target on which no time rests.
_OTHERS = frozenset({"chips", "hbm", "vmem", "smem", "bf16_rate"})


def sources(target: Target) -> Iterator[tuple[str, Figure]]:
    """The figures that a prediction rests on, by name."""
    return (each for each in target.figures() if each[0] not in _OTHERS)


def as_text(prediction: Prediction) -> str:
    """The whole text, which ends without a newline; all times are predicted."""
    program = prediction.program
    head = f"`{program.schedule.name}` of `{program.schedule.model.name}`, {program.of.words}"
    rate = prediction.target.memory.hbm_rate.value
    lines = [
        f"{head} at position {prediction.position}: {prediction.step * 1e3:.3f} ms a step, predicted; "
        f"compute {prediction.compute}",
        f"  {prediction.bytes / 1e9:.3f} GB take {prediction.floor * 1e3:.3f} ms at {rate / 1e12:.3g} TB/s: "
        f"{prediction.used:.1%} used; HBM is idle for {(prediction.step - prediction.busy) * 1e3:.3f} ms",
        "",
        "layers by kind, us each",
        *_shares(prediction.layers, False),
        "",
        "parts, us each",
        *_shares(prediction.parts, True),
    ]
    if prediction.counts:
        lines += ["", "bundles each, as counted and as they would be estimated", *_counts(prediction.counts)]
    if prediction.stalls:
        lines += [
            "",
            "where the core waits, us a step; `saves` if all of it were overlapped",
            *_stalls(prediction.stalls),
        ]
    if suggested := suggestions(prediction):
        lines += ["", "what would help most", *(f"  {line}" for line in suggested)]
    return "\n".join(lines)


def _shares(shares: tuple[Share, ...], moved: bool) -> list[str]:
    head = ("", "runs", "total", "matrix", "vector", "wait HBM", "links", "latency", "HBM idle", "bound by")
    rows: list[tuple[str, ...]] = [(*head[:3], "MB", *head[3:]) if moved else head]
    for share in sorted(shares, key=lambda x: -x.seconds):
        each = [
            f"{value / share.runs * 1e6:.2f}"
            for value in (share.seconds, share.mxu, share.vpu, share.hbm, share.link, share.latency, share.idle)
        ]
        size = [f"{share.bytes / share.runs / 1e6:.2f}"] if moved else []
        rows.append((share.name, str(share.runs), each[0], *size, *each[1:], share.bound))
    return [f"  {line}" for line in table(rows, right=range(1, len(rows[0]) - 1))]


def _counts(counts: tuple[Counted, ...]) -> list[str]:
    rows = [("", "counted", "estimated", "off by")]
    for x in counts:
        name = f"{x.scope}, {LOOPS[x.loop]}" if x.loop else x.scope
        rows.append((name, f"{x.counted:.0f}", f"{x.estimated:.0f}", f"{x.estimated / x.counted - 1:+.0%}"))
    return [f"  {line}" for line in table(rows, right=(1, 2, 3))]


def _stalls(stalls: tuple[Stall, ...]) -> list[str]:
    rows = [("at", "for", "times", "waits", "HBM idle", "saves")]
    for stall in stalls[:_MOST]:
        saves = "" if stall.saves is None else f"{stall.saves * 1e6:.1f}"
        rows.append(
            (
                f"{stall.scope}.{stall.what}",
                KINDS[stall.kind],
                str(stall.times),
                f"{stall.seconds * 1e6:.1f}",
                f"{stall.idle * 1e6:.1f}",
                saves,
            )
        )
    return [f"  {line}" for line in table(rows, right=(2, 3, 4, 5))]


def suggestions(prediction: Prediction) -> list[str]:
    """A line for each wait whose overlap would save half a percent or more."""
    lines = []
    for stall in prediction.stalls:
        if stall.saves is not None and stall.saves >= 0.005 * prediction.step:
            gain = (
                f"up to {stall.saves / max(1, stall.times) * 1e6:.2f} us each time, {stall.saves * 1e3:.3f} ms a step"
            )
            lines.append(f"{_advice(stall)}: {gain}")
    return lines


def _advice(stall: Stall) -> str:
    name = f"{stall.scope}.{stall.what}"
    match stall.kind:
        case "link":
            return f"`overlap` work with the exchange of `{name}`, or choose another `by` or `wire`"
        case "copy":
            what = "vectors" if isinstance(stall.where.of, SmallWeightsRef) else f"{stall.scope}.state"
            return f"`prefetch {what}` at an earlier point, for `{stall.what}`"
        case "cache":
            return f"`prefetch {stall.scope}.cache` at an earlier point, in more slots or larger tiles"
        case "expert":
            return f"`fetch` more slots for experts of `{stall.scope}`, or route earlier"
        case _:
            return f"start `{name}` earlier"


def record(prediction: Prediction, figures: bool = True) -> dict[str, Any]:
    """Seconds and bytes of one core, all predicted."""
    program = prediction.program

    def share(x: Share) -> dict[str, Any]:
        fields = ("name", "runs", "seconds", "mxu", "vpu", "hbm", "link", "latency", "idle", "bytes", "bound")
        return {name: getattr(x, name) for name in fields}

    result: dict[str, Any] = {
        "schedule": program.schedule.name,
        "model": program.schedule.model.name,
        "rows": program.rows,
        "position": prediction.position,
        "predicted": True,
        "compute": prediction.compute,
        "bundles": [
            {"place": x.scope, "loop": x.loop, "counted": x.counted, "estimated": x.estimated}
            for x in prediction.counts
        ],
        "step_seconds": prediction.step,
        "floor_seconds": prediction.floor,
        "bytes": prediction.bytes,
        "hbm_busy_seconds": prediction.busy,
        "used": prediction.used,
        "parts": [share(x) for x in prediction.parts],
        "layers": [share(x) for x in prediction.layers],
        "waits": [
            {
                "place": x.scope,
                "what": x.what,
                "kind": x.kind,
                "times": x.times,
                "seconds": x.seconds,
                "idle": x.idle,
                "saves": x.saves,
            }
            for x in prediction.stalls
        ],
        "suggestions": suggestions(prediction),
    }
    if figures:
        result["figures"] = [
            {"name": name, "value": each.value, "source": each.source} for name, each in sources(prediction.target)
        ]
    return result
