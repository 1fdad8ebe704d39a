"""A decoder of kernels, interpreted on virtual cores by a child process.

It is told what to make and what to call, and answers with what each call gave; `{"error": …}` where it raised
`ValueError`. `save` answers with a number by which `restore` finds what was saved.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers import children, stepping

TESTS = Path(__file__).parents[1]


def outcomes(made: dict[str, Any], calls: list[list[Any]], devices: int = 1, seconds: float = 120) -> list[Any]:
    """What a child process says of each call, a method's name and its arguments.

    `made` has `folder`, `definition` and `context`, perhaps `tp` and the `form` of
    a latent cache, or the `lines` of a schedule, and what else `PallasDecoder` takes.
    """
    found: list[Any] = children.call("helpers.decoding:answer", made, calls, seconds=seconds, devices=devices)
    return found


def answer(made: dict[str, Any], calls: list[list[Any]]) -> list[Any]:
    """Make the decoder, and call it."""
    decoder = _decoder(**made)
    saved: list[Any] = []
    return [_call(decoder, saved, *call) for call in calls]


def _call(decoder: Any, saved: list[Any], name: str, *args: Any) -> Any:
    if name == "lose":
        # As a call that fails on the device leaves it: what it was given is gone.
        for array in decoder._held.values():
            array.delete()
        return None
    if name in ("cuts", "vocab"):
        return getattr(decoder, name)
    try:
        if name == "restore":
            args = (args[0], saved[args[1]], *args[2:])
        found = stepping.decode(decoder, *args) if name == "decode" else getattr(decoder, name)(*args)
    except ValueError as e:
        return {"error": str(e)[:200]}
    if name == "save" and found is not None:
        saved.append(found)
        return len(saved) - 1
    return found.tolist() if hasattr(found, "tolist") else found


def _decoder(
    folder: str, definition: str, context: int, tp: int = 1, form: str = "", lines: str = "", **options: Any
) -> Any:
    from attrs import evolve
    from helpers.cases import Case, model_of

    from mks.backends.pallas.runtime.decoder import PallasDecoder
    from mks.backends.pallas.runtime.device import machine
    from mks.dsl.collectives.collective import Wire
    from mks.dsl.frontend import check_source
    from mks.dsl.program.lower.lower import lower
    from mks.dsl.schedule.ir import Form, bare
    from mks.dsl.targets.targets import targets
    from mks.models.checkpoint.load import load
    from mks.models.library import find_definition
    from mks.models.packing import operands

    if lines:
        read_ = model_of(Case(definition, (), lines, folder))
        program = lower(read_.schedule, read_.instance, options.get("rows", 1), read_.plain)
        packed = [operands.packed(program, read_.stored, core) for core in range(read_.schedule.cores)]
        return PallasDecoder(
            read_.schedule,
            read_.instance,
            lambda name, core: packed[core][name.label],
            machine(read_.schedule),
            plain=read_.plain,
            **options,
        )
    source, _ = find_definition(definition)
    found = check_source(source)
    model = found.models[found.main[0]]
    binding, said = load(model, TESTS / "data" / folder, adopt=True, working="f32")
    assert binding is not None, said
    schedule = bare(model, targets["v5e"], context)
    if tp > 1:
        whole = found.schedules[definition, "ironwood4"]
        few = {k: evolve(s, repeat=False) if k == "kv_heads" else s for k, s in whole.shards.items()}
        exact = tuple(evolve(r, wire=Wire.F32) for r in whole.reduces)
        schedule = evolve(whole, mesh=(("tp", tp),), context=context, shards=few, reduces=exact)
    if form:
        schedule = evolve(schedule, forms=(Form("mla", form, model.span),))
    program = lower(schedule, binding.instance, options.get("rows", 1), operands.plain(binding))
    packed = [operands.packed(program, operands.stored(binding), core) for core in range(tp)]
    return PallasDecoder(
        schedule,
        binding.instance,
        lambda name, core: packed[core][name.label],
        machine(schedule),
        plain=operands.plain(binding),
        **options,
    )
