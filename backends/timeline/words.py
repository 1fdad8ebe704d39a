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
KINDS = {"tape": "the tape", "copy": "a copy", "cache": "a cache's tiles", "expert": "an expert", "row": "a row",
          "output": "an output", "commit": "states that move to their places", "link": "messages"}  # fmt: skip

LOOPS = {"tiles": "a cache's tile", "experts": "an expert"}


# Figures of a target on which no time rests.
_OTHERS = frozenset({"chips", "hbm", "vmem", "smem", "bf16_rate"})


def sources(target: Target) -> Iterator[tuple[str, Figure]]:
    """The figures that a prediction rests on, by name."""
    return (each for each in target.figures() if each[0] not in _OTHERS)


def words(made: Prediction) -> str:
    """The whole text, which ends without a newline; all times are predicted."""
    program = made.program
    head = f"`{program.schedule.name}` of `{program.schedule.model.name}`, {program.of.words}"
    rate = made.target.memory.hbm_rate.value
    lines = [
        f"{head} at position {made.position}: {made.step * 1e3:.3f} ms a step, predicted; compute {made.compute}",
        f"  {made.bytes / 1e9:.3f} GB take {made.floor * 1e3:.3f} ms at {rate / 1e12:.3g} TB/s: {made.used:.1%} used; "
        f"HBM is idle for {(made.step - made.busy) * 1e3:.3f} ms",
        "",
        "layers by kind, us each",
        *_shares(made.layers, False),
        "",
        "parts, us each",
        *_shares(made.parts, True),
    ]
    if made.counts:
        lines += ["", "bundles each, as counted and as they would be estimated", *_counts(made.counts)]
    if made.stalls:
        lines += ["", "where the core waits, us a step; `saves` if all of it were overlapped", *_stalls(made.stalls)]
    if found := suggestions(made):
        lines += ["", "what would help most", *(f"  {line}" for line in found)]
    return "\n".join(lines)


def _shares(shares: tuple[Share, ...], moved: bool) -> list[str]:
    head = ("", "runs", "total", "matrix", "vector", "wait HBM", "links", "latency", "HBM idle", "bound by")
    rows: list[tuple[str, ...]] = [(*head[:3], "MB", *head[3:]) if moved else head]
    for share in sorted(shares, key=lambda x: -x.seconds):
        each = [f"{value / share.runs * 1e6:.2f}" for value in (
            share.seconds, share.mxu, share.vpu, share.hbm, share.link, share.latency, share.idle)]  # fmt: skip
        size = [f"{share.bytes / share.runs / 1e6:.2f}"] if moved else []
        rows.append((share.name, str(share.runs), each[0], *size, *each[1:], share.bound))
    return [f"  {line}" for line in table(rows, right=range(1, len(rows[0]) - 1))]


def _counts(counts: tuple[Counted, ...]) -> list[str]:
    rows = [("", "counted", "estimated", "off by")]
    for x in counts:
        name = f"{x.place}, {LOOPS[x.loop]}" if x.loop else x.place
        rows.append((name, f"{x.counted:.0f}", f"{x.estimated:.0f}", f"{x.estimated / x.counted - 1:+.0%}"))
    return [f"  {line}" for line in table(rows, right=(1, 2, 3))]


def _stalls(stalls: tuple[Stall, ...]) -> list[str]:
    rows = [("at", "for", "times", "waits", "HBM idle", "saves")]
    for stall in stalls[:_MOST]:
        saves = "" if stall.saves is None else f"{stall.saves * 1e6:.1f}"
        rows.append((f"{stall.place}.{stall.what}", KINDS[stall.kind], str(stall.times), f"{stall.seconds * 1e6:.1f}",
                     f"{stall.idle * 1e6:.1f}", saves))  # fmt: skip
    return [f"  {line}" for line in table(rows, right=(2, 3, 4, 5))]


def suggestions(made: Prediction) -> list[str]:
    """A line for each wait whose overlap would save half a percent or more."""
    found = []
    for stall in made.stalls:
        if stall.saves is not None and stall.saves >= 0.005 * made.step:
            gain = (
                f"up to {stall.saves / max(1, stall.times) * 1e6:.2f} us each time, {stall.saves * 1e3:.3f} ms a step"
            )
            found.append(f"{_advice(stall)}: {gain}")
    return found


def _advice(stall: Stall) -> str:
    name = f"{stall.place}.{stall.what}"
    match stall.kind:
        case "link":
            return f"`overlap` work with the exchange of `{name}`, or choose another `by` or `wire`"
        case "copy":
            what = "vectors" if isinstance(stall.where.of, SmallWeightsRef) else f"{stall.place}.state"
            return f"`prefetch {what}` at an earlier point, for `{stall.what}`"
        case "cache":
            return f"`prefetch {stall.place}.cache` at an earlier point, in more slots or larger tiles"
        case "expert":
            return f"`fetch` more slots for experts of `{stall.place}`, or route earlier"
        case _:
            return f"start `{name}` earlier"


def record(made: Prediction, figures: bool = True) -> dict[str, Any]:
    """Seconds and bytes of one core, all predicted."""
    program = made.program

    def share(x: Share) -> dict[str, Any]:
        fields = ("name", "runs", "seconds", "mxu", "vpu", "hbm", "link", "latency", "idle", "bytes", "bound")
        return {name: getattr(x, name) for name in fields}

    found: dict[str, Any] = {
        "schedule": program.schedule.name,
        "model": program.schedule.model.name,
        "rows": program.rows,
        "position": made.position,
        "predicted": True,
        "compute": made.compute,
        "bundles": [{"place": x.place, "loop": x.loop, "counted": x.counted, "estimated": x.estimated}
                    for x in made.counts],
        "step_seconds": made.step,
        "floor_seconds": made.floor,
        "bytes": made.bytes,
        "hbm_busy_seconds": made.busy,
        "used": made.used,
        "parts": [share(x) for x in made.parts],
        "layers": [share(x) for x in made.layers],
        "waits": [{"place": x.place, "what": x.what, "kind": x.kind, "times": x.times, "seconds": x.seconds,
                   "idle": x.idle, "saves": x.saves} for x in made.stalls],
        "suggestions": suggestions(made),
    }  # fmt: skip
    if figures:
        found["figures"] = [
            {"name": name, "value": each.value, "source": each.source} for name, each in sources(made.target)
        ]
    return found
