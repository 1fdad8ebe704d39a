"""`mks new`: a small definition to start from."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from ..diagnostics import Diagnostic
from ..render import render_all, style_for

EXAMPLES = """\
examples:
  mks new tiny.mks       # a Llama of three layers; then: mks check tiny.mks

A file that exists is left as it is.
"""

TEMPLATE = """\
mks 1  # the version of the language

# A Llama of three layers. Change the sizes, the tensors' names, the mathematics; `mks check` says what it makes of it.
model NAME {
  size d        = 256   from hidden_size  # a default, and where a checkpoint's config.json says it
  size layers   = 3     from num_hidden_layers
  size ffn      = 768   from intermediate_size
  size vocab    = 4096  from vocab_size
  size q_heads  = 8     from num_attention_heads
  size kv_heads = 4     from num_key_value_heads
  size head     = d / q_heads
  const eps     = 1e-5  from rms_norm_eps
  const theta   = 1e4   from rope_theta or rope_parameters.rope_theta

  # Weights have a type, a shape, and the name of their tensor in the checkpoint.
  weights {
    embed      : bf16[vocab, d]  "model.embed_tokens.weight"
    final_norm : bf16[d]         "model.norm.weight"
    out        : bf16[vocab, d]  "lm_head.weight" or embed  # tied where the checkpoint has none
  }

  part attention {
    weights "model.layers.{layer}." {
      norm : bf16[d]                   "input_layernorm.weight"
      wq   : bf16[q_heads * head, d]   "self_attn.q_proj.weight"
      wk   : bf16[kv_heads * head, d]  "self_attn.k_proj.weight"
      wv   : bf16[kv_heads * head, d]  "self_attn.v_proj.weight"
      wo   : bf16[d, q_heads * head]   "self_attn.o_proj.weight"
    }
    cache { keys, values : bf16[kv_heads, head] }  # one entry for each position

    x = rms_norm(h, norm, eps)
    q = rope(heads(wq @ x, q_heads), position, theta = theta)
    keys[position]   = rope(heads(wk @ x, kv_heads), position, theta = theta)
    values[position] = heads(wv @ x, kv_heads)
    h = h + wo @ flat(attend(q, keys, values, scale = head ** -0.5))
  }

  part mlp {
    weights "model.layers.{layer}." {
      norm     : bf16[d]       "post_attention_layernorm.weight"
      gate, up : bf16[ffn, d]  "mlp.{name}_proj.weight"
      down     : bf16[d, ffn]  "mlp.down_proj.weight"
    }
    x = rms_norm(h, norm, eps)
    h = h + down @ (silu(gate @ x) * (up @ x))
  }

  # One token of every sequence: `h` is carried from layer to layer.
  step {
    h = embed[token]
    for layer in 0 .. layers {
      attention
      mlp
    }
    logits = f32(out @ rms_norm(h, final_norm, eps))
  }
}

# How weights move, for one kind of machine. Target and context are enough; every further line only makes it faster.
schedule one for NAME {
  target v5e 1x1
  rows 1, 8
  context 2048
}
"""


def main(argv: list[str]) -> int:
    """Write a small definition to start from."""
    args = make_parser().parse_args(argv)
    path = Path(args.name if args.name.endswith(".mks") else f"{args.name}.mks")
    if not re.search(r"[^\W\d]", path.stem):
        return _refused(f"`{args.name}` cannot name a definition: it has no letter")
    name = re.sub(r"\W", "_", path.stem)
    text = TEMPLATE.replace("NAME", f"_{name}" if name[:1].isdigit() else name)
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        return _refused(f"`{path}` exists already, and is left as it is")
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        return _refused(f"`{path}` cannot be written: {reason.lower()}")
    print(f"{path} written; try `mks check {path}`")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        "mks new",
        description="Write a small commented definition that checks: a Llama.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="the file, with or without .mks")
    return parser


def _refused(message: str) -> int:
    print(render_all([Diagnostic("E003", message)], style_for(sys.stderr)), end="", file=sys.stderr)
    return 1
