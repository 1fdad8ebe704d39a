"""The search for a faster schedule: one choice after the other, kept where it fits, is proven, and gains time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from attrs import frozen

from ...dsl.model.instance import Instance
from ...dsl.program import ir as p
from ...dsl.program.analysis.capacity import lower_fitting
from ...dsl.program.verify.prove import prove
from ...dsl.schedule.ir import Schedule
from .moves import Move, choices, fitting
from .simulate import simulate
from .unroll import unroll

LEAST = 1e-3  # of the step: what gains less is not worth a line
_ROUNDS = 3


@frozen
class AcceptedMove:
    """A change that was kept, and the predicted steps with it, in seconds, by rows."""

    text: str
    steps: dict[int, float]


@frozen
class Tuned:
    """What was found: `before` and `after` are predicted steps by rows; `tried` counts simulated schedules.

    `searched` says of each choice, by its name, how many of its alternatives were made, and how many of them fitted.
    """

    schedule: Schedule
    before: dict[int, float]
    after: dict[int, float]
    accepted: tuple[AcceptedMove, ...]
    searched: tuple[tuple[str, int, int], ...]

    @property
    def tried(self) -> int:
        """All that were simulated."""
        return sum(fitted for _, _, fitted in self.searched)


def tune(
    schedule: Schedule,
    instance: Instance,
    rows: tuple[int, ...] | None = None,
    position: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Tuned:
    """Search from a schedule on. Steps at `rows` count alike, each in proportion; all of the schedule's must fit.

    Raises:
        MksError: the schedule itself cannot be lowered, or does not fit at all of its rows.
    """
    tuned_rows = rows or schedule.rows
    at = schedule.context - 1 if position is None else min(position, schedule.context - 1)
    programs = {n: lower_fitting(schedule, instance, n) for n in schedule.rows}
    before = best = steps(programs, tuned_rows, at)
    accepted: list[AcceptedMove] = []
    tried: Counter[str] = Counter()
    fitted: Counter[str] = Counter()
    for _ in range(_ROUNDS):
        known = len(accepted)
        for choice in choices(schedule, instance, programs[tuned_rows[0]]):
            won: tuple[float, Move, dict[int, float]] | None = None
            for move in choice.moves(schedule):
                tried[choice.name] += 1
                candidates = fitting(move.schedule, instance)
                if candidates is None:
                    continue
                fitted[choice.name] += 1
                times = steps(candidates, tuned_rows, at)
                gain = 1 - sum(times[n] / best[n] for n in tuned_rows) / len(tuned_rows)
                if gain > LEAST and (won is None or gain > won[0] + LEAST) and proven(candidates):
                    won = gain, move, times
            if won is not None:
                schedule, best = won[1].schedule, won[2]
                accepted.append(AcceptedMove(won[1].text, best))
                say(f"{won[1].text}: {_shown(best)}")
        if len(accepted) == known:
            break
    searched = tuple((name, many, fitted[name]) for name, many in tried.items())
    return Tuned(schedule, before, best, tuple(accepted), searched)


def steps(programs: Mapping[int, p.Program], rows: tuple[int, ...], position: int) -> dict[int, float]:
    """Predicted seconds by rows."""
    times = {}
    for n in rows:
        model = programs[n].schedule.target
        times[n] = simulate(unroll(programs[n], model, position), model, keep=False).step
    return times


def proven(programs: Mapping[int, p.Program]) -> bool:
    """Whether they neither race nor hang."""
    return not any(prove(program) for program in programs.values())


def _shown(times: dict[int, float]) -> str:
    return ", ".join(f"{n} row{'s' * (n > 1)} {step * 1e3:.3f} ms" for n, step in times.items())
