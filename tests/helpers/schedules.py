"""Lines of schedules for models at a small size."""

from __future__ import annotations

ONE = "target v5e 1x1\ncontext 256\n"
TILES = "prefetch {}.cache at {}.start (tile = 128 tokens, slots = {})\n"
EXPANDED = "form mla.cache = expanded\n"
TOPOLOGIES = {2: "tpu7x 1x1x1", 4: "v5e 2x2", 8: "tpu7x 2x2x1", 32: "tpu7x 2x2x4"}
KIMI = (
    "stream dense {\nslots = 6\nslot = 2560 KiB\nkda : (wq, wk, wv, wg, wb, f_a), f_b, wo\n"
    "mla : (q_a, kv_a), wg, q_b, kv_b, wo\ndense : (gate, up), down\n"
    "moe : (router, z_down), (s_gate, s_up), s_down, z_up\nstep : out\n}\nfetch moe.experts (slots = 2)\n"
    "prefetch kda.state at previous moe.y, previous dense.down\nprefetch vectors at previous layer\n"
    + TILES.format(*["mla"] * 2, 2)
)
BLOCKS = "store moe.gate, moe.up, moe.down as fp8 block 256\n"


def kimi(ep: int, tp: int, wire: str = "f32", by: str = "", positions: str = "", context: int = 256) -> str:
    """Kimi K3's over a mesh of two axes, as the shipped schedule has it; without `tp` every core has the router.

    Sums are completed `by`, and if it is `scatter_gather` that of the shared experts is left scattered. What is left
    scattered travels as f32. `positions` are the axes over which caches are shared out by positions.
    """
    mesh = [f"{name} = {ways}" for name, ways in (("ep", ep), ("tp", tp)) if ways > 1]
    axes = ", ".join(each.partition(" ")[0] for each in mesh)
    by = by or ("two_level" if tp % 2 == 0 else "direct")
    shared = "reduce moe.s (by = scatter, wire = f32)\n" if by == "scatter_gather" else ""
    own = ("shard ep : experts\n" if ep > 1 else "") + ("shard tp : moe\n" if tp > 1 else "")
    own += f"shard {positions} : position\n" if positions else ""
    router, scores, chosen = ("moe.router, ", "moe.score, ", "gather (moe.score, moe.z)\n") if tp > 1 else ("", "", "")
    return (
        f"target {TOPOLOGIES[ep * tp]}\ncontext {context}\nmesh {', '.join(mesh)}\n{own}"
        f"shard {axes} : heads, kda_heads, ffn, shared, vocab\n"
        f"split mla.q_a, mla.kv_a, {router}moe.z_down over {axes}\n{KIMI}"
        f"gather (mla.qa, mla.c, mla.s)\n{chosen}"
        f"reduce kda.a, mla.a (by = {by}, wire = {wire})\n{shared}reduce moe.y (by = scatter, wire = f32)\n"
        f"reduce moe.x, dense.x (by = {by}, wire = {wire})\n"
        f"overlap gather mla.qa, mla.c, mla.s with mla.wg\n"
        f"overlap gather {scores}moe.z with (moe.s_gate, moe.s_up), moe.s_down\n"
    )
