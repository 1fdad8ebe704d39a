"""A GGUF file as a checkpoint: Hugging Face names, numbers dequantised tensor by tensor."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, dequantize

from ...dsl.diagnostics import Sink
from .gguf_header import BrokenGguf, CutShort, check_header
from .gguf_names import UnreadableGguf, config, hugging_face
from .gguf_tokenizer import Field
from .safetensors_file import drop_pages, map_file
from .safetensors_header import check_start
from .tensors import DTYPES, Checkpoint, Stored, listed

# Types whose numbers are read as they are; all others are dequantised to f32.
_AS_IS = {
    GGMLQuantizationType.F32: "f32",
    GGMLQuantizationType.F16: "f16",
    GGMLQuantizationType.BF16: "bf16",
    GGMLQuantizationType.F64: "f64",
}
_CHUNK = 1 << 22  # elements dequantised at a time


@frozen
class GgufTensor:
    """A tensor of a GGUF file. `pairs`: the heads whose rotary rows were interleaved when the file was made."""

    name: str
    file: str
    kind: str
    shape: tuple[int, ...]
    nbytes: int
    pairs: int | None
    coded: GGMLQuantizationType
    begin: int
    mapped: mmap.mmap = field(repr=False, eq=False)

    def array(self) -> np.ndarray:
        """Its numbers; a view only where they are stored as they are and in order."""
        data = np.frombuffer(self.mapped, np.uint8, self.nbytes, self.begin)
        as_is = self.coded in _AS_IS
        values = data.view(DTYPES[self.kind]).reshape(self.shape) if as_is else self._dequantised(data)
        return values if self.pairs is None else split_halves(values, self.pairs)

    def _dequantised(self, data: np.ndarray) -> np.ndarray:
        out = np.empty(self.shape, np.float32)
        flat = out.reshape(-1, self.shape[-1])
        rows, step = data.reshape(len(flat), -1), max(1, _CHUNK // self.shape[-1])
        # The library holds its result twice for a moment, so it gets a few rows at a time.
        for at in range(0, len(rows), step):
            flat[at : at + step] = dequantize(rows[at : at + step], self.coded)
        return out

    def release(self) -> None:
        """Let the system drop its pages."""
        drop_pages(self.mapped, self.begin, self.nbytes)


def split_halves(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k in rotate-half order from the pairwise order in which llama GGUFs keep them."""
    width = values.shape[0] // heads
    return values.reshape(heads, width // 2, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def open_gguf(path: Path, sink: Sink) -> tuple[Checkpoint, Mapping[str, Field]] | None:
    """The file as a checkpoint, and its metadata; what is wrong with it goes to the sink."""
    mapped = map_file(path, sink)
    reader = None if mapped is None else _reader(path, mapped, sink)
    if mapped is None or reader is None:
        return None
    try:
        checkpoint = _checkpoint(path, mapped, reader, sink)
        return None if checkpoint is None else (checkpoint, reader.fields)
    except UnreadableGguf as e:
        sink.report("E416", f"`{path}` is a GGUF file that cannot be read: {e}")
    except (ValueError, TypeError, LookupError, OverflowError, ArithmeticError) as e:
        sink.report("E415", f"`{path}` is not a valid GGUF file", notes=(str(e),))
    return None


def _reader(path: Path, mapped: mmap.mmap, sink: Sink) -> GGUFReader | None:
    """The library's reader, once the header is known to be whole."""
    if not check_start(str(path), mapped, len(mapped), sink):
        return None
    try:
        check_header(mapped, len(mapped))
        return GGUFReader(path)
    except CutShort as e:
        sink.report("E403", f"`{path}` is cut short: {e}", helps=("download the file again",))
    except BrokenGguf as e:
        sink.report("E415", f"`{path}` is not a valid GGUF file: {e}")
    except (ValueError, TypeError, LookupError, OverflowError, ArithmeticError) as e:
        sink.report("E415", f"`{path}` is not a valid GGUF file", notes=(str(e),))
    return None


def _checkpoint(path: Path, mapped: mmap.mmap, reader: GGUFReader, sink: Sink) -> Checkpoint | None:
    fields: Mapping[str, Field] = reader.fields
    shapes = {t.name: tuple(int(n) for n in reversed(t.shape)) for t in reader.tensors}
    derived = config(fields, shapes)
    unread = sorted({t.tensor_type.name for t in reader.tensors if not _readable(t.tensor_type)})
    if unread:
        names = [f"`{t.name}`" for t in reader.tensors if t.tensor_type.name in unread]
        sink.report(
            "E416", f"`{path}` has tensors of types that cannot be read: {listed(unread)}", notes=(listed(names),)
        )
        return None
    tensors: dict[str, Stored] = {}
    for stored in reader.tensors:
        name, shape = hugging_face(stored.name), shapes[stored.name]
        pairs = _interleaved(derived, name, shape)
        kind = _AS_IS.get(stored.tensor_type, "f32")
        begin, nbytes = int(stored.data_offset), int(stored.n_bytes)
        tensors[name] = GgufTensor(name, str(path), kind, shape, nbytes, pairs, stored.tensor_type, begin, mapped)
    return Checkpoint(path, derived, tensors)


def _interleaved(derived: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> int | None:
    """How many heads' rows of a tensor are interleaved; only the llama converter does that, to q and k."""
    if derived["model_type"] != "llama":
        return None
    keys = {".q_proj.": "num_attention_heads", ".k_proj.": "num_key_value_heads"}
    heads = next((derived[key] for part, key in keys.items() if part in name), None)
    if heads is not None and shape[0] % (2 * heads):
        raise UnreadableGguf(f"`{name}` has {shape[0]} rows, which {heads} heads cannot share")
    return heads


def _readable(kind: GGMLQuantizationType) -> bool:
    if kind in _AS_IS:
        return True
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True
