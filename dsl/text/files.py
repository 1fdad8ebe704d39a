"""Reading a definition's text from a file."""

from __future__ import annotations

import os
from pathlib import Path

from ..diagnostics import Diagnostic, Label
from ..source import Source, Span

LARGEST = 4 << 20
_MARK = b"\xef\xbb\xbf"


def read_source(path: str | os.PathLike[str]) -> Source | Diagnostic:
    """A file's text, named as given; or why it cannot be read. A byte order mark at its start is left out."""
    name = os.fspath(path)
    try:
        with Path(name).open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        return Diagnostic("E003", f"`{name}` does not exist")
    except IsADirectoryError:
        return Diagnostic("E003", f"`{name}` is a directory, not a file")
    except (OSError, ValueError) as e:  # ValueError: a name with NUL
        reason = e.strerror.lower() if isinstance(e, OSError) and e.strerror else str(e)
        return Diagnostic("E003", f"`{name}` cannot be read: {reason}")
    return decode_source(name, data)


def decode_source(name: str, data: bytes) -> Source | Diagnostic:
    """The text in a file's bytes, or why there is none."""
    if len(data) > LARGEST:
        return Diagnostic("E005", f"`{name}` is larger than {LARGEST >> 20} MiB, so it is no definition")
    data = data.removeprefix(_MARK)
    try:
        return Source(name, data.decode("utf-8"))
    except UnicodeDecodeError as e:
        before = data[: e.start].decode("utf-8")
        shown = Source(name, before + data[e.start :].decode("utf-8", "replace"))
        place = Label(Span(shown, len(before), len(before) + 1), f"byte 0x{data[e.start]:02x} at offset {e.start}")
        return Diagnostic("E004", f"`{name}` is not UTF-8", place, helps=("save it as UTF-8",))
