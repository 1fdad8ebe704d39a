"""Checkpoints packed for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mks.dsl.diagnostics import Sink
from mks.dsl.frontend import check_source
from mks.dsl.program.ir import Program
from mks.dsl.program.lower.lower import lower
from mks.dsl.schedule.choose import choose_schedule
from mks.dsl.schedule.fits import check_shares
from mks.dsl.schedule.ir import Schedule
from mks.dsl.source import Source
from mks.models.checkpoint.binding import Binding
from mks.models.checkpoint.load import load
from mks.models.packing.manifest import Job, describe
from mks.models.packing.operands import packed, plain, stored
from mks.models.packing.pack import Progress, Summary, pack_model

# A small model on two cores, whose sizes come from a config.
TEXT = """mks 1

model toy {
  size d      = 64   from d
  size ffn    = 96   from ffn
  size layers = 3    from layers
  size vocab  = 200  from vocab
  weights {
    embed : bf16[vocab, d]  "embed"
    out   : bf16[vocab, d]  "out" or embed
  }
  part mlp {
    weights "l.{layer}." {
      norm     : bf16[d]       "norm"
      gate, up : bf16[ffn, d]  "{name}"
      down     : bf16[d, ffn]  "down"
    }
    x = rms_norm(h, norm, 1e-5)
    h = h + down @ (silu(gate @ x) * (up @ x))
  }
  step {
    h = embed[token]
    for layer in 0 .. layers {
      mlp
    }
    logits = f32(out @ h)
  }
}

schedule two for toy {
  target tpu7x 1x1x1
  context 256
  mesh tp = 2
  shard tp : ffn, vocab
  stream dense {
    slots = 2
    slot  = 2560 KiB
    mlp  : (gate, up), down
    step : out
  }
}

schedule also for toy {
  target tpu7x 1x1x1
  context 256
  mesh tp = 2
  shard tp : ffn, vocab
}
"""


def prepared(
    source: Source, checkpoint: Path, schedule: str | None = None, *, working: str | None = None, **sizes: Any
) -> tuple[Job, Binding, Program]:
    """What `pack_model` takes, the sizes from the config; the first model of the text."""
    definition = check_source(source)
    assert not definition.failed, definition.diagnostics
    model = definition.models[definition.main[0]]
    binding, found = load(model, checkpoint, adopt=True, working=working, overrides=sizes)
    assert binding is not None, found
    chosen = choose_schedule(definition.schedules, model, schedule)
    assert isinstance(chosen, Schedule)
    assert check_shares(chosen, binding.instance, Sink())
    program = lower(chosen, binding.instance, chosen.rows[0], plain(binding))
    return describe(source, chosen, binding, program), binding, program


def pack(made: tuple[Job, Binding, Program], folder: Path, progress: Progress = lambda done, total: None) -> Summary:
    """Pack it."""
    return pack_model(*made, folder, progress)


def in_memory(made: tuple[Job, Binding, Program], core: int) -> dict[str, np.ndarray]:
    """What a core's file must hold."""
    _, binding, program = made
    return packed(program, stored(binding), core)


def content(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
