"""What `mks check` reports of schedules, against figures computed here from the shapes."""

import re

import pytest
from helpers.definitions import changed

from mks.dsl.diagnostics import Sink
from mks.dsl.program.analysis.report import ScheduleReport, as_json, as_text, report


def reported(name: str, *edits: tuple[str, str]) -> tuple[ScheduleReport, Sink]:
    """The report of a definition's first own schedule."""
    found = changed(name, *edits)
    assert not found.diagnostics
    key = found.own_schedules[0]
    schedule = found.schedules[key]
    assert schedule is not None
    sink = Sink()
    return report(schedule, found.instances[key[0]], sink), sink


def test_qwen38_reads_what_its_shapes_say() -> None:
    """Weights of one of eight cores in bf16, added up by hand: kv heads are held twice."""
    d, ffn, vocab, layers, full = 5120, 17408, 248320, 64, 16
    delta = d * (16 * 128 + 16 * 128 + 48 * 128 + 48 * 128 + 48 + 48) // 8 + 48 * 128 * d // 8
    attention = d * (24 * 2 * 256) // 8 + 2 * d * 256 + 24 * 256 * d // 8
    matrices = (layers - full) * delta + full * attention + layers * 3 * d * ffn // 8 + vocab * d // 8
    found, sink = reported("qwen38")
    counts, _ = found.rows[0]
    weights = next(line.bytes for line in counts.read if line.name == "weights")
    assert weights == pytest.approx(2 * matrices, rel=2e-3)
    assert weights > 2 * matrices
    assert not sink.diagnostics
    assert counts.bound == "bytes"
    assert counts.floor_seconds == pytest.approx(counts.read_bytes / 3.2e12)


def test_states_and_caches_grow_with_rows() -> None:
    """Qwen3.8: a delta state of 151 MB in f32 and 65,536 bytes of cache a position, over eight cores (kv twice)."""
    found, _ = reported("qwen38")
    for counts, _bill in found.rows:
        lines = {line.name: line.bytes for line in counts.read}
        conv = 48 * 3 * 10240 * 2 // 8
        assert lines["states"] == counts.of.tokens * (48 * 48 * 128 * 128 * 4 // 8 + conv)
        assert lines["caches"] == counts.of.tokens * 4096 * 65536 * 2 // 8


def test_kimi_k3_reads_what_was_computed_from_its_shapes() -> None:
    """4.7 GB of weights and experts on the slowest core at ep 4, as computed from the shapes alone elsewhere."""
    found, sink = reported("kimi_k3")
    counts, charged = found.rows[0]
    lines = {line.name: line.bytes for line in counts.read}
    assert lines["weights"] + lines["experts"] == pytest.approx(4.7e9, rel=0.04)
    assert charged.held < 94.7 * 2**30
    assert not sink.diagnostics


def test_padding_is_reported() -> None:
    """Nine heads over two cores are five each."""
    edits = ("  target v5e 1x1\n", "  target v5e 1x2\n  mesh tp = 2\n  shard tp : ffn, vocab, layers9\n")
    found = changed("smollm2", (edits[0], edits[1].replace(", layers9", "")))
    (schedule,) = found.schedules.values()
    assert schedule is not None
    assert not report(schedule, found.instances["smollm2"], Sink()).padding
    odd = changed(
        "smollm2", ("  target v5e 1x1\n", "  target v5e 1x2\n  mesh tp = 2\n  shard tp : q_heads, kv_heads\n")
    )
    assert [d.code for d in odd.diagnostics] == ["E213"]
    three = ("  target v5e 1x1\n", "  target v5p 1x1x5\n  mesh tp = 5\n  shard tp : ffn\n")
    found = changed("smollm2", three)
    (schedule,) = found.schedules.values()
    assert schedule is not None
    assert report(schedule, found.instances["smollm2"], Sink()).padding == (
        "ffn = 1536 over 5 cores: 308 each, padded to 1540",
    )


def test_a_ring_that_does_not_fit_is_refused_with_one_that_does() -> None:
    """E301 shows the parties and the arithmetic; the depth that it proposes is accepted, one more is not."""
    _, sink = reported("qwen38", ("slots = 14", "slots = 40"))
    (refusal,) = sink.diagnostics
    assert refusal.code == "E301"
    assert "at span = 8" in refusal.message
    assert refusal.primary is not None
    assert "40 slots x 2.50 MiB = 100.00 MiB" in refusal.primary.text
    assert refusal.notes[0].startswith("bill (MiB): stream dense 100.0 + state delta.S 6.8 + tiles of attention.keys ")
    fits = int(refusal.helps[0].split("=")[1].split()[0])
    assert not reported("qwen38", ("slots = 14", f"slots = {fits}"))[1].diagnostics
    assert [d.code for d in reported("qwen38", ("slots = 14", f"slots = {fits + 1}"))[1].diagnostics] == ["W301"]


TILES = ("tile = 1024 tokens, slots = 8", "tile = 8192 tokens, slots = 6")


def test_every_value_that_is_proposed_fits() -> None:
    """A ring that no depth saves: shorter tiles or fewer do, each as the help says and not a step more."""
    _, sink = reported("qwen38", TILES, ("context 4096", "context 16384"))
    (refusal,) = sink.diagnostics
    helps = [help_.split(" fits")[0] for help_ in refusal.helps]
    assert [text.split(" = ")[0] for text in helps] == ["tile", "slots"]
    tile, slots = (int(text.split(" = ")[1].split()[0]) for text in helps)
    for made, more in (((tile, 6), (tile + 128, 6)), ((8192, slots), (8192, slots + 1))):
        for (length, count), fine in ((made, True), (more, False)):
            edit = (TILES[0], f"tile = {length} tokens, slots = {count}")
            assert (not reported("qwen38", edit, ("context 4096", "context 16384"))[1].diagnostics) == fine


def test_fewer_rows_are_proposed() -> None:
    """A ring that is too deep for eight rows, and for eight tokens of a sequence, is not for fewer."""
    _, sink = reported("qwen38", ("slots = 14", "slots = 20"))
    (refusal,) = sink.diagnostics
    assert refusal.code == "E301"
    (rows,) = (help_ for help_ in refusal.helps if help_.startswith("rows"))
    found = re.match(r"rows = (\d+) and span = (\d+) fit ", rows)
    assert found is not None
    fewer = [each for each in ("1", "2", "4") if int(each) <= int(found[1])]
    edits = (("slots = 14", "slots = 20"), ("rows 1, 2, 4, 8", f"rows {', '.join(fewer)}"))
    assert not reported("qwen38", *edits, ("span 1, 8 ", f"span 1, {found[2]} "))[1].diagnostics
    assert reported("qwen38", *edits, ("span 1, 8 ", f"span 1, {int(found[2]) + 1} "))[1].diagnostics


def test_a_span_is_billed() -> None:
    """Eight tokens do not fit where two rows do; the span that is proposed does, and a longer one does not."""
    edits = (("slots = 14", "slots = 20"), ("rows 1, 2, 4, 8", "rows 1, 2"))
    _, sink = reported("qwen38", *edits)
    (refusal,) = sink.diagnostics
    assert refusal.code == "E301"
    assert "at span = 8" in refusal.message
    (help_,) = (each for each in refusal.helps if each.startswith("span"))
    fits = int(help_.split(" fits")[0].removeprefix("span = "))
    for span, fine in ((fits, True), (fits + 1, False)):
        found, sink = reported("qwen38", *edits, ("span 1, 8 ", f"span 1, {span} "))
        assert (not sink.diagnostics) == fine
    assert [str(counts.of) for counts, _ in found.passes] == ["rows = 1", "rows = 2", f"span = {fits + 1}"]
    assert f"span {fits + 1} " in as_text(found)
    assert as_json(found)["spans"][0]["span"] == fits + 1


def test_a_span_reads_weights_and_caches_once() -> None:
    """Eight tokens of one sequence read its states and its cache as one token does, and compute eight times as much."""
    found, _ = reported("qwen38")
    one, span = found.passes[0][0], found.passes[-1][0]
    assert str(span.of) == "span = 8"
    assert {line.name: line.bytes for line in one.read} == {line.name: line.bytes for line in span.read}
    assert span.flops == 8 * one.flops
    assert found.largest.of == span.of


def test_where_nothing_fits_the_help_says_so() -> None:
    """A state alone is larger than the memory."""
    _, sink = reported("qwen38", ("size val      = 128", "size val      = 32768"), ("rows 1, 2, 4, 8", "rows 1"))
    refusal = next(d for d in sink.diagnostics if d.code == "E301")
    assert refusal.helps == ("no depth of a ring, tile, wire type, number of rows or span makes it fit",)


@pytest.mark.parametrize(
    ("codec", "listed"),
    [("int4 group 128", 128), ("int4 group 64", None), ("fp8 block 128", 128), ("int8 by column", None)],
)
def test_a_share_that_ends_inside_a_group_is_listed(codec: str, listed: int | None) -> None:
    """1536 columns over 8 cores are 192 on each: three groups of 64, one and a half of 128."""
    found, _ = reported(
        "smollm2",
        ("  target v5e 1x1\n", "  target v5e 2x4\n  mesh tp = 8\n  shard tp : ffn\n"),
        ("down     : bf16", f"down     : {codec}"),
        ('"mlp.down_proj.weight"', 'rounded "mlp.down_proj.weight"'),
    )
    lines = [line for line in found.padding if "mlp.down" in line]
    assert bool(lines) == (listed is not None)
    assert all("shares of 192 of 1536" in line for line in lines)


def test_experts_that_are_stored_as_fp8_take_twice_the_bytes() -> None:
    """Kimi K3's 224 experts of a core in 92 layers: a byte a number, and one for each output and block."""
    lines = ("fetch moe.experts  (slots = 4)", "fetch moe.experts  (slots = 4)\n  store moe.down as fp8 block 256")
    (before, _), (after, sink) = reported("kimi_k3", ("4, 8\n", "4\n")), reported("kimi_k3", ("4, 8\n", "4\n"), lines)
    held = [next(line.bytes for line in found.rows[0][0].held if line.name == "weights") for found in (before, after)]
    down = 92 * 224 * 3584 * 384

    assert not sink.diagnostics
    assert held[1] - held[0] == down - down // 2 + 92 * 224 * 3584 * (2 - 384 // 32)
    assert not any("moe.down" in line for line in after.padding)
    assert after.rows[0][0].read_bytes > before.rows[0][0].read_bytes


def test_a_ring_of_any_depth_is_answered_at_once() -> None:
    """What would fit is computed, not tried slot by slot."""
    _, sink = reported("qwen38", ("slots = 14", "slots = 1099511627775"), ("rows 1, 2, 4, 8", "rows 1"))
    _, fewer = reported("qwen38", ("slots = 14", "slots = 40"), ("rows 1, 2, 4, 8", "rows 1"))
    assert sink.diagnostics[0].helps == fewer.diagnostics[0].helps


def test_a_model_that_does_not_fit_hbm_is_refused() -> None:
    """Kimi K3 on four chips."""
    edits = (("target tpu7x 2x2x4 ", "target tpu7x 2x2x1 "), ("mesh ep = 2, tp = 16", "mesh ep = 2, tp = 4"))
    _, sink = reported("kimi_k3", *edits)
    assert "E302" in [d.code for d in sink.diagnostics]


def test_an_expanded_cache_is_larger() -> None:
    """Per-head keys and values, 96 x (192 + 128) over 32 cores, beside 576 numbers on each that no step reads."""
    plain, _ = reported("kimi_k3")
    wide, _ = reported("kimi_k3", ("  fetch moe.experts", "  form mla.cache = expanded\n\n  fetch moe.experts"))
    held, read = (
        [next(x.bytes for x in getattr(r.rows[0][0], what) if x.name == "caches") for r in (plain, wide)]
        for what in ("held", "read")
    )
    latents, expanded = 24 * 4096 * 576 * 2, 24 * 4096 * 3 * 320 * 2
    assert read == [latents, expanded]
    assert held == [latents, latents + expanded]


def test_text_and_json_tell_the_same() -> None:
    """Every row count is in both."""
    found, _ = reported("qwen38")
    numbers = as_json(found)
    assert [row["rows"] for row in numbers["rows"]] == [1, 2, 4, 8]
    assert numbers["rows"][0]["read_bytes"]["total"] == found.rows[0][0].read_bytes
    text = as_text(found)
    assert f"{found.rows[3][0].read_bytes / 1e9:.3f} GB" in text
    assert "predicted" in text
    assert "kv_heads = 4 over 8 cores: 1 each, repeated 2 times" in text
