"""A GGUF file's metadata and tensor names in the words of a Hugging Face checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from .gguf_tokenizer import Field

# Architectures that are a plain stack of attention and a gated MLP.
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NAME = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<stem>\w+)\.(?P<end>weight|bias)")


class UnreadableGguf(ValueError):
    """Metadata that is absent or of a kind that is not read; the text names the key."""


def hugging_face(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`; a name without counterpart stays."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    layer = match["layer"]
    stem = (_TOP if layer is None else _BLOCK).get(match["stem"])
    if stem is None:
        return name
    return f"{stem}.{match['end']}" if layer is None else f"model.layers.{int(layer)}.{stem}.{match['end']}"


def architecture(fields: Mapping[str, Field]) -> str:
    """`general.architecture`; raises `UnreadableGguf` unless it is one of `ARCHITECTURES`."""
    value = _value(fields, "general.architecture")
    if value not in ARCHITECTURES:
        raise UnreadableGguf(f"its architecture is `{value}`; read are {', '.join(ARCHITECTURES)}")
    return str(value)


def config(fields: Mapping[str, Field], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """What `config.json` would say; `shapes` are those of the file's tensors."""
    arch = architecture(fields)
    if "token_embd.weight" not in shapes:
        raise UnreadableGguf("it has no `token_embd.weight`")

    def whole(key: str, default: int | None = None) -> int:
        value = _value(fields, f"{arch}.{key}", default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UnreadableGguf(f"`{arch}.{key}` is {value!r:.60}; a positive whole number is needed")
        return value

    def real(key: str, default: float | None = None) -> float:
        value = _value(fields, f"{arch}.{key}", default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnreadableGguf(f"`{arch}.{key}` is {value!r:.60}; a number is needed")
        return float(str(np.float32(value)))  # stored as f32: 9.999999747378752e-06 was written as 1e-5

    heads = whole("attention.head_count")
    theta = real("rope.freq_base", 1e4)
    scaling = _value(fields, f"{arch}.rope.scaling.type", "none")
    kind = "llama3" if "rope_freqs.weight" in shapes else "default" if scaling == "none" else scaling
    ids = {"bos": "bos", "eos": "eos", "pad": "padding"}
    return {
        "architectures": [ARCHITECTURES[arch]],
        "model_type": arch,
        "hidden_size": whole("embedding_length"),
        "intermediate_size": whole("feed_forward_length"),
        "num_hidden_layers": whole("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": whole("attention.head_count_kv", heads),
        "head_dim": whole("attention.key_length", whole("embedding_length") // heads or 1),
        "vocab_size": shapes["token_embd.weight"][0],
        "max_position_embeddings": whole("context_length", 2048),
        "rms_norm_eps": real("attention.layer_norm_rms_epsilon"),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": kind, "rope_theta": theta},
        "hidden_act": "silu",
        "attention_bias": "blk.0.attn_q.bias" in shapes,
        "mlp_bias": "blk.0.ffn_up.bias" in shapes,
        "tie_word_embeddings": "output.weight" not in shapes,
        "dtype": "float32",
        **{
            f"{name}_token_id": _value(fields, f"tokenizer.ggml.{role}_token_id")
            for name, role in ids.items()
            if f"tokenizer.ggml.{role}_token_id" in fields
        },
    }


def _value(fields: Mapping[str, Field], key: str, default: Any = None) -> Any:
    field = fields.get(key)
    return default if field is None else field.contents()
