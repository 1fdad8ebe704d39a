"""What the language server knows, without an editor."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from helpers.definitions import FOLDER, NAMES, text

from mks.dsl.commands import cli
from mks.dsl.lsp import convert
from mks.dsl.lsp.analysis import Analysis
from mks.dsl.lsp.complete import complete
from mks.dsl.lsp.hover import hover
from mks.dsl.lsp.outline import outline
from mks.dsl.lsp.positions import lines
from mks.dsl.program.analysis.traffic import array_bytes, tapes
from mks.dsl.program.ir import StreamRef
from mks.dsl.program.layout.tiling import ROW_BYTES
from mks.dsl.source import Source

_TIMED = re.compile(r"([\d,]+) bytes, ([\d.e+]+) (s|ms|µs|ns) at ([\d.]+) TB/s")


def timed(said: str) -> list[int]:
    """The bytes in a hover that have a time, which is right to three digits."""
    found = []
    for size, time, unit, rate in _TIMED.findall(said):
        found.append(int(size.replace(",", "")))
        seconds = float(time) * {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]
        assert seconds == pytest.approx(found[-1] / (float(rate) * 1e12), rel=6e-3)
    return found


def analysed(source: str, name: str = "x") -> Analysis:
    """A text beside the shipped definitions."""
    return Analysis(Source(f"{name}.mks", source), FOLDER)


@pytest.fixture(scope="module")
def known() -> dict[str, Analysis]:
    """The shipped definitions."""
    return {name: analysed(text(name), name) for name in NAMES}


def shown(given: Analysis, words: str) -> str:
    """The hover of the first character of `^` in some words of the text."""
    at = given.source.text.index(words.replace("^", "")) + words.index("^")
    found = hover(given, at)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_declared(name: str, known: dict[str, Analysis]) -> None:
    """Each name of a shipped definition leads to a declaration that has the same text."""
    places = known[name].index
    own = [m for m in places.mentions if m.span.source is known[name].source]
    assert len(own) > 100
    for mention in own:
        if mention.key.kind not in ("op", "input", "file"):
            found = places.declarations(mention)
            assert found, mention
            assert mention in places.references(found[0])
            assert mention.span.text in {found[0].span.text, "step"}


def test_a_value_leads_to_where_it_was_set_last(known: dict[str, Analysis]) -> None:
    """Within a part to the statement before; what a part reads first, to the step that it is carried from."""
    given = known["kimi_k3"]
    source = given.source

    def leads(words: str) -> str:
        mention = given.index.at(source, source.text.index(words.replace("^", "")) + words.index("^"))
        assert mention is not None
        (found,) = given.index.declarations(mention)
        return source.line(source.position(found.span.start)[0]).strip()

    assert leads("banks[layer // block] = ^x when") == "x = embed[token]"
    assert leads("res_norm * res_proj, eps)\n    h = rms_norm(^m, norm").startswith("m = mix(banks")
    assert leads("x + down @ situ(gate @ ^h") == "h = x  # names set here are carried through the layers"
    assert leads("reduce kda.^a").startswith("a = wo @ flat(y)")
    assert leads("{ e -> down[^e]").startswith("y = experts(z, chosen) { e ->")
    assert leads("situ(^gate[e]").startswith("gate : mxfp4[experts, moe, latent]")
    assert leads("shard tp     : ^moe").startswith("size moe")
    assert leads("else ^moe").startswith("part moe")


def test_hovers(known: dict[str, Analysis]) -> None:
    """Types, shapes, values, bytes and the time that they take at the target's rate."""
    kimi = known["kimi_k3"]
    assert "= 6144" in shown(kimi, "size ^shared")
    assert "24: 4, 8, 12" in shown(kimi, "in ^full")
    q_b = shown(kimi, "heads(^q_b @")
    assert "= bf16[18432, 1536]: 56,623,104 bytes a layer, 1,358,954,496 in all 24" in q_b
    assert "[576, 1536], 1,769,472 bytes, 553 ns at 3.2 TB/s" in q_b  # 1,769,472 / 3.2e12
    assert "one expert 365,568 bytes, 114 ns at 3.2 TB/s" in shown(kimi, "^up[e]")  # 192 x 3584 x (1/2 + 1/32)
    assert "decay : f32[kda_heads, key]" in shown(kimi, "^decay = f32")
    assert "= f32[96, 128]" in shown(kimi, "^decay = f32")
    assert "[3, 128]" in shown(kimi, "^decay = f32")
    assert "rms_norm(x, gain, eps)" in shown(kimi, "^rms_norm(o, o_norm")
    assert "x / sqrt(mean(x * x) + eps) * gain" in shown(kimi, "^rms_norm(o, o_norm")
    assert "function situ(g, u) = beta *" in shown(kimi, "^situ(gate @ h")
    assert "24 layers: 3, 7, 11" in shown(kimi, "part ^mla")
    assert "schedule `ironwood16` for `kimi_k3`" in shown(kimi, "schedule ^ironwood16")
    assert "size NAME = VALUE" in shown(kimi, "^size d ")


def test_lines_of_a_schedule(known: dict[str, Analysis]) -> None:
    """Each kind of line with its bytes, of HBM, of VMEM and of messages."""
    kimi = known["kimi_k3"]
    program = kimi.programs["kimi_k3", "ironwood16"]
    (bank,) = program.banks.values()
    assert re.search(
        r"VMEM at span = 8: stream dense [\d.]+ MiB \(\d+ slots x 2.50 MiB\)", shown(kimi, "^stream dense")
    )
    assert timed(shown(kimi, "stream^ dense")) == [tapes(program)[StreamRef("dense")].bytes]
    own = (StreamRef("dense"), "moe")
    made = [x.tiling.rows * ROW_BYTES for x in program.products.values() if (x.ring, x.place) == own]
    layers = len(program.instance.part_layers["moe"])
    assert timed(shown(kimi, "(router, z_down)^, (s_gate")) == [*made, sum(made), layers * sum(made)]
    assert timed(shown(kimi, "^fetch moe.experts"))[0] == bank.layout.nbytes
    assert f"; {bank.slots} slots" in shown(kimi, "^fetch moe.experts")
    for name, kind in (("mla.cache", "cache"), ("kda.state", "state"), ("vectors", "vectors")):
        held = [a for a in program.arrays.values() if a.kind == kind]
        each = 1 if kind == "vectors" else len(program.instance.part_layers[name[:3]])
        assert timed(shown(kimi, f"^prefetch {name}")) == [sum(map(array_bytes, held)) // each]
    assert "state kda.S 3.38 MiB" in shown(kimi, "^prefetch kda.state")
    assert "tiles of mla.lat 1.50 MiB" in shown(kimi, "^prefetch mla.cache")
    assert re.search(r"mla.q_a\+kv_a: gather by .*: a core sends [\d,]+ bytes, in", shown(kimi, "^gather (mla.qa"))
    assert re.search(r"moe.y: \w+ by \w+, \w+: a core sends [\d,]+ bytes, in", shown(kimi, "^reduce moe.s, moe.y"))
    assert "meanwhile" in shown(kimi, "^overlap gather")
    assert "heads = 96 over 32 cores: 3 each" in shown(kimi, "^shard ep, tp")
    assert "mla.q_a: 48 of 1536 rows a core" in shown(kimi, "^split mla.q_a")
    assert "32 cores" in shown(kimi, "^target tpu7x")
    assert "rows = 8: reads" in shown(kimi, "^rows 1, 2, 4, 8")
    dspark = known["dspark"]  # its drafter has no Program: the statements' own bytes
    assert "a layer reads 7,340,032 bytes" in shown(dspark, "(wq, wk, wv)^, wo")
    assert "stream drafter 30.00 MiB" in shown(dspark, "^stream drafter")


def test_figures_outlive_an_error(known: dict[str, Analysis]) -> None:
    """While a statement is half written, names and lines have the figures of the version before."""
    before = known["kimi_k3"]
    for edit in (("qa = q_a @ h", "qa = q_a @ ("), ("fetch moe.experts  (", "fetch moe.experts (((")):
        given = analysed(before.source.text.replace(*edit), "kimi_k3")
        assert given.definition.failed
        for words in ("model kimi_k3", "heads(q_b", "stream dense", "q_a, kv_a), wg, q_b", "shared  "):
            at = given.source.text.index(words) + words.startswith("model") * 6
            now, then = (
                hover(given, at, before),
                hover(before, before.source.text.index(given.source.text[at : at + 20])),
            )
            assert now is not None
            assert then is not None
            assert timed(now[0]) == timed(then[0])
            assert now[1].text == then[1].text
    fine = analysed(before.source.text.replace("size d             = 7168", "size d             = 14336"), "kimi_k3")
    for words in ("^kimi_k3 {", "heads(^q_b @ rms"):
        at = fine.source.text.index(words.replace("^", "")) + words.index("^")
        assert hover(fine, at, before) == hover(fine, at)
    assert hover(fine, at + 0, before) is not None
    assert hover(fine, fine.source.text.index("kimi_k3 {"), before) != hover(
        before, fine.source.text.index("kimi_k3 {")
    )


def test_the_outline(known: dict[str, Analysis]) -> None:
    """Models with parts and their weights, schedules with their streams; each name inside its thing."""
    model, *schedules = outline(known["kimi_k3"].definition.file)
    (schedule,) = (each for each in schedules if each.name.startswith("ironwood16 "))
    assert [x.name for x in model.children if x.kind == "part"] == ["enter", "kda", "mla", "leave", "dense", "moe"]
    assert schedule.name == "ironwood16 for kimi_k3"
    assert [x.name for x in schedule.children] == ["dense"]
    for each in (model, schedule, *model.children, *schedule.children):
        assert each.span.start <= each.selection.start <= each.selection.end <= each.span.end


@pytest.mark.parametrize(
    ("words", "has", "lacks"),
    [
        ("    q  = ^heads(q_b", "q_b heads rms_norm eps position h situ experts", "wq embed2 size part target"),
        ("    ^mla when layer", "mla kda for x", "size target"),
        ("  ^fetch moe", "fetch prefetch reduce stream", "size weights"),
        ("  fetch moe.^experts", "experts gate router y start", "size mla"),
        ("    mla   : (^q_a", "q_a kv_b", "wq x"),
        ("  target ^tpu7x", "tpu7x v5e", "size mla"),
        ("schedule ironwood16 for ^kimi_k3", "kimi_k3", "size"),
        ("^schedule ironwood16", "model schedule use", "size"),
        ("# names set ^here", "", "size x"),
        ('"q_a_^proj.weight"', "", "size x"),
        ("q_norm  : ^bf16", "bf16 mxfp4 int4", "wq"),
    ],
)
def test_completion(words: str, has: str, lacks: str, known: dict[str, Analysis]) -> None:
    """What may stand at a place is proposed, and what may not is not; also where the rest is not yet written."""
    source = known["kimi_k3"].source.text
    at = source.index(words.replace("^", "")) + words.index("^")
    for given in (known["kimi_k3"], analysed(source[:at])):
        found = {each.word for each in complete(given, at)}
        assert set(has.split()) - found <= (set() if given is known["kimi_k3"] else {"y", "h", "mla", "kda"})
        assert not set(lacks.split()) & found


def test_the_same_as_the_checker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Codes, severities and places of each diagnostic, and their order, as `mks check --json` has them."""
    edits = {
        "kimi_k3": [("slot  = 2560 KiB", "slot  = 9 MiB"), ("by = scatter, ", ""), ("x = a when", "x = aa when")],
        "qwen38": [
            ("slot  = 2560 KiB", "slot  = 16 KiB"),
            ("heads(", "heads(("),
            ("  prefetch vectors", "  prefetch vektors"),
        ],
        "smollm2": [("kv_heads * head, d", "kv_heads, d"), ("context 2048", "context 2048\n  rows 1, 1")],
    }
    seen = set()
    for name, changes in edits.items():
        for old, new in changes:
            source = text(name).replace(old, new, 1)
            assert source != text(name)
            path = tmp_path / f"{name}.mks"
            path.write_text(source, "utf-8")
            cli.main(["check", str(path), "--json"])
            wanted = [
                (d["code"], d["severity"], *(tuple(s[k] for k in _PLACE) for s in d["spans"] if s["primary"]))
                for d in json.loads(capsys.readouterr().out)["diagnostics"]
            ]
            given = Analysis(Source(str(path), source), tmp_path)
            made = [convert.diagnostic(d, given.source, None, "utf-32") for d in given.diagnostics]
            got = [(d.code, d.severity.name.lower() if d.severity else "", _place(d.range)) for d in made]
            assert got == wanted
            seen |= {d.code for d in made}
    assert len(seen) > 4


_PLACE = ("line", "column", "end_line", "end_column")


def _place(given: object) -> tuple[int, ...]:
    start, end = given.start, given.end  # type: ignore[attr-defined]
    return start.line + 1, start.character + 1, end.line + 1, end.character + 1


@pytest.mark.parametrize("name", ["dspark", "kimi_k3", "muse_spark"])
def test_broken_texts_raise_nothing(name: str) -> None:
    """Cut anywhere, with a piece lost or doubled: diagnostics, hovers, definitions and completion everywhere."""
    rng = random.Random(name)
    whole = text(name)
    for _ in range(6):
        a, b = sorted(rng.sample(range(len(whole)), 2))
        b = min(b, a + 40)
        source = rng.choice(
            [whole[:a], whole[:a] + whole[b:], whole[:b] + whole[a:], whole[:a] + "\t}📏{ " + whole[a:]]
        )
        given = analysed(source, name)
        for diagnostic in given.diagnostics:
            convert.diagnostic(diagnostic, given.source, None, "utf-16")
        convert.symbols(outline(given.definition.file), "utf-16")
        for at in rng.sample(range(len(source)), min(40, len(source))):
            hover(given, at)
            complete(given, at)
            mention = given.index.at(given.source, at)
            if mention is not None:
                given.index.declarations(mention)


@pytest.mark.parametrize("unit", ["utf-8", "utf-16", "utf-32"])
def test_positions_and_offsets(unit: str) -> None:
    """There and back for every character, whatever ends the lines; inside a character is its start."""
    source = "a\t宽📏é\r\n\r\n𝕏\rz\u2028w\x0b\n📏"
    made = lines(source, unit)
    assert len(made.starts) == 5
    for at in range(len(source) + 1):
        back = made.offset(*made.position(at))
        assert back == at or source[back : at + 1] == "\r\n"
    codec = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}[unit]
    size = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[unit]
    assert made.position(source.index("é")) == (0, len("a\t宽📏".encode(codec)) // size)
    assert made.offset(0, 10**6) == source.index("\r\n")
    assert made.offset(99, 0) == len(source)
    if unit != "utf-32":
        assert made.offset(0, made.position(source.index("📏"))[1] + 1) == source.index("📏")
