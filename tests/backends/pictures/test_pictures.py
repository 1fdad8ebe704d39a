"""What is drawn of a Program, and written of its step, agrees with its bill and with the simulation."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import pytest
from helpers.definitions import FOLDER, changed, text

from mks.backends.pictures import perfetto, svg
from mks.backends.pictures.bands import bands
from mks.backends.pictures.entry import draw
from mks.backends.pictures.lanes import Event, Lane, apart, busy, lanes
from mks.backends.pictures.lines import costs
from mks.backends.pictures.memory import memory
from mks.backends.pictures.page import page
from mks.backends.pictures.timeline import timeline
from mks.backends.pictures.windows import columns, kinds, scope_events, windows
from mks.backends.timeline.actions import Where
from mks.backends.timeline.simulate import Transfer
from mks.backends.timeline.summary import Prediction, predict
from mks.dsl.commands.cli import main
from mks.dsl.frontend import Definition
from mks.dsl.program.analysis.memory import bill, mib
from mks.dsl.program.lower.lower import lower

DRAWN = ("qwen38", "kimi_k3", "smollm2", "qwen3")
SVG = "{http://www.w3.org/2000/svg}"


def step(found: Definition, rows: int) -> Prediction:
    """The predicted step of a definition's first schedule."""
    key = found.own_schedules[0]
    schedule = found.schedules[key]
    assert schedule is not None
    return predict(lower(schedule, found.instances[key[0]], rows), 700, savings=False)


@cache
def predicted(name: str, rows: int = 1) -> Prediction:
    """That of a shipped one."""
    return step(changed(name), rows)


def drawn(made: Prediction) -> str:
    """The file of `--svg`."""
    return svg.document([memory(made), timeline(made)])


@pytest.mark.parametrize("name", DRAWN)
def test_drawings_are_well_formed_and_alone(name: str) -> None:
    """XML with a title and a description, in light and dark, which loads nothing and stays within its bounds."""
    said = drawn(predicted(name))
    root = ElementTree.fromstring(said)

    ids = root.attrib["aria-labelledby"].split()
    assert [root.find(f"{SVG}title").attrib["id"], root.find(f"{SVG}desc").attrib["id"]] == ids  # type: ignore[union-attr]
    assert "prefers-color-scheme:dark" in root.findtext(f"{SVG}style", "")
    assert re.findall(r"https?://[^\"]*|<script|@import|url\(|href", said) == ["http://www.w3.org/2000/svg"]
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for each in root.iter(f"{SVG}rect"):
        x, y, wide, high = (float(each.attrib[key]) for key in ("x", "y", "width", "height"))
        assert x >= 0
        assert x + wide <= width + 0.5
        assert y + high <= height + 0.5


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("name", DRAWN)
def test_bands_sum_to_the_bill(name: str, rows: int) -> None:
    """Every line of the bill is in one band, and with the largest room of an op they are the peak."""
    made = predicted(name, rows)
    counted = bill(made.program)
    found = bands(made, counted)

    lines = [id(line) for band in found for line in band.lines]
    assert sorted(lines) == sorted(map(id, counted.vmem))
    assert all(band.bytes == sum(line.bytes for line in band.lines) for band in found)
    assert sum(band.bytes for band in found) + max((x.bytes for x in counted.passing), default=0) == counted.total
    said = memory(made).body
    assert f"peak {mib(counted.total)}" in said
    assert f"limit {mib(counted.limit)}" in said


def test_bands_say_when_they_are_in_use() -> None:
    """Tiles of a cache only where their part runs, a part's buffers while it does, within the step."""
    made = predicted("qwen38")
    found = {band.name: band for band in bands(made, bill(made.program))}

    tiles = found["tiles of attention.keys"]
    assert tiles.part == "attention"
    assert len(tiles.used) == 16
    assert 0 < sum(stop - start for start, stop in tiles.used) < 0.1 * made.step
    for band in found.values():
        assert all(0 <= start <= stop <= made.step + 1e-12 for start, stop in band.used)
        assert all(a[1] < b[0] for a, b in zip(band.used, band.used[1:], strict=False))


def test_what_does_not_fit_is_drawn_above_the_limit() -> None:
    """A peak beyond the limit is in the picture."""
    made = step(changed("qwen38", ("slots = 14", "slots = 26")), 1)
    counted = bill(made.program)

    assert counted.total > counted.limit
    ElementTree.fromstring(drawn(made))
    assert f"peak {mib(counted.total)}" in memory(made).body


def test_busy_times_are_joined() -> None:
    """What overlaps or touches is one; what does not outlast its latency is none, and counts nothing twice."""
    times = [(0.0, 1.5), (1.0, 2.5), (2.0, 2.5), (3.0, 3.5), (4.0, 6.0)]
    moved = [Transfer(start, stop, 1, "lane", Where("", None, ""), stop) for start, stop in times]
    assert [(event.start, event.stop) for event in busy(moved, 0.5)] == [(0.5, 2.5), (4.5, 6.0)]


@pytest.mark.parametrize("name", DRAWN)
def test_lanes(name: str) -> None:
    """Each ring's slots, caches' and experts' have a lane; nothing overlaps in one; HBM is busy as simulated."""
    made = predicted(name)
    found = lanes(made)

    names = [lane.name for lane in found]
    assert len(names) == len(set(names))
    program = made.program
    for group, slots in [
        *((x.name, x.slots) for x in program.rings.values()),
        *((x.name, x.slots) for x in program.banks.values()),
        *((each, x.slots) for x in program.caches.values() for each in x.caches),
    ]:
        assert [lane.name for lane in found if lane.group == str(group)] == [f"{group} {i}" for i in range(slots)]
    for lane in found:
        for a, b in zip(lane.events, lane.events[1:], strict=False):
            assert a.start <= a.stop <= a.end <= b.start + 1e-12, (lane.name, a, b)
    moved = [event for lane in found if lane.kind == "slot" for event in lane.events]
    assert sum(event.bytes for event in moved) == made.bytes
    hbm = next(lane for lane in found if lane.kind == "hbm")
    assert sum(event.stop - event.start for event in hbm.events) == pytest.approx(made.busy, rel=1e-9)


def test_what_overlaps_gets_lanes_of_its_own() -> None:
    """Three events, of which two overlap, need two lanes."""
    where = Where("part", 0, "x")
    events = tuple(Event(start, start + 2, "x", where, "part") for start in (0.0, 1.0, 2.0))

    found = list(apart(Lane("x", "slot", "x", events)))
    assert [(lane.name, len(lane.events)) for lane in found] == [("x", 2), ("x (2)", 1)]
    assert [lane.events for lane in apart(Lane("y", "slot", "y", ()))] == [()]


@pytest.mark.parametrize("name", DRAWN)
def test_windows(name: str) -> None:
    """A layer of each kind with some of its neighbours; every ring's slot has its row in each."""
    made = predicted(name)
    found = windows(made)

    assert len(found) == len(kinds(made.program))
    for window in found:
        assert 0 <= window.begin <= window.start < window.stop <= window.end <= made.step
        assert made.program.phase.layer_parts[window.layer or 0]
        assert window.end > window.stop or window.stop == made.step
    assert sum(w.runs for w in columns(made) if w.layer is not None) == len(made.program.phase.layer_parts)
    said = timeline(made).body
    for ring in made.program.rings.values():
        for i in range(ring.slots):
            assert said.count(f">{i}</text>") >= len(found)
    for row in ("HBM", "MXU", "VPU", "links", "waits"):
        assert said.count(f">{row}</text>") == len(found)


@pytest.mark.parametrize("name", DRAWN)
def test_trace(name: str) -> None:
    """An array in JSON by ascending time, all of it in named threads, in which nothing overlaps."""
    made = predicted(name)
    events = json.loads(perfetto.trace(made))

    (process,) = (event for event in events if event["name"] == "process_name")
    assert ", 1 row at position " in process["args"]["name"]
    threads = {event["tid"] for event in events if event["name"] == "thread_name"}
    shown = [event for event in events if event["ph"] == "X"]
    times = [event["ts"] for event in events]
    assert times == sorted(times)
    assert {event["tid"] for event in shown} <= threads
    assert len(shown) == sum(len(lane.events) for lane in lanes(made)) + len(scope_events(made))
    ends: dict[int, float] = {}
    for event in shown:
        assert event["dur"] >= 0
        assert event["ts"] >= ends.get(event["tid"], 0.0) - 1e-3
        ends[event["tid"]] = event["ts"] + event["dur"]
    assert max(ends.values()) == pytest.approx(made.step * 1e6, abs=1e-3)


def test_a_trace_is_bounded() -> None:
    """Of more events than there may be, the longest stay, and it is said how many are missing."""
    made = predicted("smollm2")
    whole = [e for e in json.loads(perfetto.trace(made)) if e["ph"] == "X"]
    events = json.loads(perfetto.trace(made, most=50))

    kept = [event for event in events if event["ph"] == "X"]
    assert len(kept) == 50
    assert min(e["dur"] for e in kept) >= sorted((e["dur"] for e in whole), reverse=True)[49] - 1e-3
    (label,) = [event["args"]["labels"] for event in events if event["name"] == "process_labels"]
    assert label == f"{len(whole) - 50} shortest events left out"


@pytest.mark.parametrize("name", DRAWN)
def test_costs_of_lines_sum_to_the_step(name: str) -> None:
    """Time and bytes of all lines are those of the step, and hardly any are of no line."""
    made = predicted(name)
    found = costs(made)

    assert sum(cost.seconds for cost in found.values()) == pytest.approx(made.step)
    assert sum(cost.bytes for cost in found.values()) == made.bytes
    assert None not in found or found[None].seconds < 0.01 * made.step


def test_costs_stand_at_their_statements() -> None:
    """The MLP's statement reads its matrices and waits for messages; declarations cost nothing."""
    made = predicted("qwen38")
    found = {key[0].line(key[1]).strip(): cost for key, cost in costs(made).items() if key is not None}

    mlp = found["h = h + down @ (silu(gate @ x) * (up @ x))"]
    assert mlp.bytes == sum(t.bytes for t in made.trace.transfers if t.where.what in ("gate+up", "down"))
    assert mlp.waiting > 0
    assert found["o = delta_rule(qn, kn, heads(v, v_heads), decay, rate, S)"].computing > 0
    assert not any(line.startswith("size") for line in found)


class _Code(HTMLParser):
    """Collects the text of the cells with code, and what would fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.fetched: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.fetched += [tag] * (tag in ("script", "link", "img", "iframe") or "src" in given or "href" in given)
        self._inside = tag == "td" and given.get("class") == "code"
        if self._inside:
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.lines[-1] += data


@pytest.mark.parametrize("name", DRAWN)
def test_the_page_has_every_line_once(name: str) -> None:
    """The source as it is written, and nothing that would be fetched from elsewhere."""
    found = _Code()
    found.feed(page(predicted(name)))

    assert found.lines == text(name).splitlines()
    assert found.fetched == []


def test_markup_in_a_definition_is_text() -> None:
    """`<`, `&` and quotes in comments come out as they went in, in the page and in the drawing."""
    comment = "# a < b & c \u2028\x0c > \"d\" 'e' </td><script>alert(1)</script> &amp;"
    made = step(changed("smollm2", ("part attention {", f"part attention {{  {comment}")), 1)
    said = page(made)
    found = _Code()
    found.feed(said)

    assert found.lines == made.program.schedule.span.source.text.removesuffix("\n").split("\n")
    assert sum(line.endswith(comment) for line in found.lines) == 1
    assert found.fetched == []
    assert svg.text(0, 0, "<&>").count("<") == 2
    assert ElementTree.fromstring(svg.rect(0, 0, 1, 1, "f-ink", "a <b> & c"))[0].text == "a <b> & c"


def test_kinds_of_files() -> None:
    """Only what is asked for is drawn."""
    made = draw(predicted("smollm2").program, 10, ("trace",))
    assert list(made) == ["trace"]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups of entry points that are looked up; what draws is among those installed."""
    asked: list[str] = []

    class Point:
        """An installed entry point."""

        def load(self) -> object:
            """What it names."""
            return draw

    def points(group: str) -> object:
        asked.append(group)
        return [Point()]

    monkeypatch.setattr(metadata, "entry_points", points)
    return asked


def test_the_command_writes_files(installed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One Program has the files that were named; of several, each has its own; the words are not printed."""
    path, out = str(FOLDER / "smollm2.mks"), tmp_path / "out.svg"
    assert main(["plan", path, "--rows", "1", "--position", "9", "--svg", str(out), "--html", f"{out}.html"]) == 0
    assert capsys.readouterr().out == f"wrote {out}\nwrote {out}.html\n"
    assert ElementTree.parse(out).getroot().tag == f"{SVG}svg"
    assert "position 9." in Path(f"{out}.html").read_text("utf-8")
    assert installed == ["mks.pictures"]
    out.unlink()

    path = str(FOLDER / "qwen38.mks")
    assert main(["plan", path, "--size", "layers=8", "--trace", str(tmp_path / "t.json")]) == 0
    written = [Path(line.removeprefix("wrote ")) for line in capsys.readouterr().out.splitlines()]
    assert len(written) > 1
    assert all(re.fullmatch(r"t-\w+-\d+\.json", path.name) and json.loads(path.read_text("utf-8")) for path in written)


def test_the_command_says_what_stands_in_the_way(
    installed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that is not there, a negative position, and an installation that cannot draw."""
    path = str(FOLDER / "smollm2.mks")
    missing = tmp_path / "no" / "out.svg"
    assert main(["plan", path, "--rows", "1", "--svg", str(missing)]) == 1
    assert str(missing) in capsys.readouterr().err
    assert main(["plan", path, "--rows", "1", "--svg", str(tmp_path / "a.svg"), "--position", "-1"]) == 2

    monkeypatch.setattr(metadata, "entry_points", lambda group: [])
    assert main(["plan", path, "--rows", "1", "--svg", str(tmp_path / "a.svg")]) == 1
    assert "mks.pictures" in capsys.readouterr().err
    assert main(["plan", path, "--rows", "1"]) == 0


def test_the_command_keeps_what_is_there(
    installed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the definition nor another picture is written over, and nothing is left of one that fails."""
    path, out = tmp_path / "mine.mks", tmp_path / "a.svg"
    path.write_text(text("smollm2"))
    assert main(["plan", str(path), "--svg", str(path)]) == 1
    assert "written over" in capsys.readouterr().err
    assert main(["plan", str(path), "--svg", str(out), "--html", str(out)]) == 1
    assert path.read_text() == text("smollm2")
    assert [file.name for file in tmp_path.iterdir()] == ["mine.mks"]
    out.mkdir()
    assert main(["plan", str(path), "--svg", str(out)]) == 1
    assert str(out) in capsys.readouterr().err
    assert {file.name for file in tmp_path.iterdir()} == {"mine.mks", "a.svg"}
