"""One page of its own: both drawings, the bill, and the definition's source with what each line costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from ...dsl.program.analysis.memory import Bill, Line, bill, gib, mib
from ...dsl.program.print.json import collectives
from ...dsl.source import Source
from ..timeline.summary import Prediction
from . import svg
from .lines import Cost, Costs, costs
from .memory import memory
from .timeline import timeline

_STYLE = """\
:root{--paper:#fff;--ink:#1f2328;--soft:#656d76;--line:#dfe2e6;--sunk:#f6f7f9;--compute:#2f6fb5;--wait:#cf2f3a}
@media (prefers-color-scheme:dark){:root{--paper:#16181b;--ink:#e8e6e3;--soft:#9aa0a8;--line:#33373d;--sunk:#1d2024;
--compute:#5b9de0;--wait:#ff6b6b}}
*{box-sizing:border-box}
body{margin:0;padding:1.25rem 1.5rem 3rem;background:var(--paper);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",sans-serif}
h1{font-size:1.35rem;margin:0 0 .25rem}h2{font-size:1.05rem;margin:2rem 0 .5rem}p{margin:.25rem 0;color:var(--soft)}
dl{display:flex;flex-wrap:wrap;gap:.5rem 2.5rem;margin:1rem 0}dt{color:var(--soft);font-size:.8rem}
dd{margin:0;font-size:1.2rem;font-weight:600;font-variant-numeric:tabular-nums}
figure{margin:1rem 0;overflow-x:auto}figure svg{display:block;width:100%;max-width:1480px;height:auto;min-width:900px}
.columns{display:grid;grid-template-columns:minmax(0,1fr);gap:0 2rem}
@media (min-width:1300px){.columns{grid-template-columns:minmax(0,3fr) minmax(0,8fr)}}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{font-weight:600;text-align:left;color:var(--soft);font-size:.8rem}
td,th{padding:.12rem .5rem;border-bottom:1px solid var(--line);vertical-align:top}
.n{text-align:right;white-space:nowrap}td small{display:block;color:var(--soft);font-size:.75rem;line-height:1.3}
table.source{font-size:12.5px}table.source td{border:0;padding:0 .5rem;white-space:nowrap}
.source td.code,.source td.at{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.source td.code{white-space:pre;tab-size:2}.source th{width:1px}.source th:last-child{width:auto}
.source td.at{color:var(--soft);text-align:right}
.source tr.costs{background:var(--sunk)}
.bar{display:flex;width:90px;height:.8em;margin-top:.3em}.bar i{display:block;height:100%}
details summary{cursor:pointer;color:var(--soft);padding:.3rem .5rem}
.bar .c{background:var(--compute)}.bar .w{background:var(--wait)}
"""
_LEAST = 1 / 400  # of a memory's total: lines below it are folded


def page(prediction: Prediction) -> str:
    """HTML, which asks nothing of anywhere else."""
    program, counted = prediction.program, bill(prediction.program)
    schedule = program.schedule
    title = f"{schedule.name} of {schedule.model.name}, {program.of.words}"
    pictures = [memory(prediction), timeline(prediction)]
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>',
        f"<style>\n{_STYLE}{svg.style()}\n</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{schedule.target.name} {'x'.join(map(str, schedule.topology))}, one of {schedule.cores} cores, context "
        f"{schedule.context}, position {prediction.position}. "
        f"Times are predicted; compute is {prediction.compute}.</p>",
        _figures(prediction, counted),
        *(f"<figure>{svg.inline(drawing)}</figure>" for drawing in pictures),
        '<div class="columns"><section>',
        *_bill(counted),
        "</section><section>",
        *_sources(prediction),
        "</section></div></body></html>\n",
    ]
    return "\n".join(parts)


def _figures(prediction: Prediction, counted: Bill) -> str:
    waits = sum(stall.seconds for stall in prediction.stalls)
    sent = sum(each["sent_bytes"] * each["runs"] for each in collectives(prediction.program))
    figures = [
        ("step", f"{prediction.step * 1e3:.3f} ms"),
        ("time of its bytes", f"{prediction.floor * 1e3:.3f} ms"),
        ("HBM used", f"{prediction.used:.1%}"),
        ("from and to HBM", f"{prediction.bytes / 1e9:.3f} GB"),
        ("the core waits", f"{waits * 1e3:.3f} ms"),
        ("sent over links", f"{sent / 1e6:.3g} MB"),
        ("VMEM at the peak", f"{mib(counted.total)} of {mib(counted.limit)}"),
    ]
    return f"<dl>{''.join(f'<div><dt>{name}</dt><dd>{value}</dd></div>' for name, value in figures)}</dl>"


def _bill(counted: Bill) -> Iterator[str]:
    yield "<h2>Bill</h2>"
    vmem = f"VMEM{f', at its peak in {counted.peak}' if counted.peak else ''}"
    memories = (
        (vmem, counted.lines, counted.total, counted.limit, _size),
        ("SMEM", counted.smem, counted.scalars, counted.smem_limit, _size),
        ("semaphores", counted.semaphores, sum(x.bytes for x in counted.semaphores), None, _size),
        ("HBM", counted.hbm, counted.held, counted.hbm_limit, gib),
    )
    for name, lines, total, limit, sized in memories:
        of = "" if limit is None else f" of {sized(limit)}"
        yield f'<table><tr><th>{escape(name)}</th><th class="n">{sized(total)}{of}</th></tr>'
        shown = [line for line in lines if line.bytes >= _LEAST * total and name != "semaphores"]
        yield from (_row(line, sized(line.bytes)) for line in shown)
        yield "</table>"
        rest = [line for line in lines if line not in shown]
        if rest:
            size = sized(sum(line.bytes for line in rest))
            yield f"<details><summary>{len(rest)} {'smaller' if shown else 'small'} ones, {size}</summary><table>"
            yield from (_row(line, sized(line.bytes)) for line in rest)
            yield "</table></details>"
        yield "<br>"


def _row(line: Line, size: str) -> str:
    why = f"{line.why}; {line.place}" if line.place else line.why
    return f'<tr><td>{escape(line.name)}<small>{escape(why)}</small></td><td class="n">{size}</td></tr>'


def _size(size: int) -> str:
    if size < 1 << 10:
        return f"{size} B"
    return mib(size) if size >= 1 << 17 else f"{size / 1024:.2f} KiB"


def _sources(prediction: Prediction) -> Iterator[str]:
    """The definition's text, and those of other files that its lines come from."""
    by_line = costs(prediction)
    longest = max(cost.seconds for cost in by_line.values())
    first = prediction.program.schedule.span.source
    texts = [first, *dict.fromkeys(key[0] for key in by_line if key is not None and key[0] is not first)]
    for source in texts:
        yield f"<h2>{escape(source.name)}</h2>"
        yield "<p>What a step spends on each line: computing in blue, waiting in red; bytes between HBM and VMEM.</p>"
        yield '<div class="scroll"><table class="source">'
        heads = "".join(f'<th class="n">{head}</th>' for head in ("us", "", "of the step", "MB", ""))
        yield f"<tr>{heads}<th></th></tr>"
        yield from _lines(source, by_line, prediction, longest)
        yield "</table></div>"
    rest = by_line.get(None)
    if rest is not None:
        yield f"<p>Of no line: {rest.seconds * 1e6:.2f} us, {rest.bytes / 1e6:.2f} MB.</p>"


def _lines(source: Source, by_line: Costs, prediction: Prediction, longest: float) -> Iterable[str]:
    count = len(source.line_starts) - source.text.endswith("\n")
    for number in range(1, count + 1):
        code = f'<td class="at">{number}</td><td class="code">{escape(source.line(number))}</td>'
        cost = by_line.get((source, number))
        if cost is None:
            yield f"<tr><td></td><td></td><td></td><td></td>{code}</tr>"
        else:
            yield f'<tr class="costs">{_cost(cost, prediction, longest)}{code}</tr>'


def _cost(cost: Cost, prediction: Prediction, longest: float) -> str:
    computing, waiting = (100 * part / longest for part in (cost.computing, cost.waiting))
    tip = f"computes {cost.computing * 1e6:.2f} us, waits {cost.waiting * 1e6:.2f} us"
    bar = (
        f'<div class="bar" title="{tip}"><i class="c" style="width:{computing:.1f}%"></i>'
        f'<i class="w" style="width:{waiting:.1f}%"></i></div>'
    )
    moved = f"{cost.bytes / 1e6:.2f}" if cost.bytes else ""
    return (
        f'<td class="n">{cost.seconds * 1e6:.2f}</td><td>{bar}</td><td class="n">{cost.seconds / prediction.step:.1%}'
        f'</td><td class="n">{moved}</td>'
    )
