"""Reading a definition's text from a file, and writing files whole."""

from __future__ import annotations

import errno
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
        label = Label(Span(shown, len(before), len(before) + 1), f"byte 0x{data[e.start]:02x} at offset {e.start}")
        return Diagnostic("E004", f"`{name}` is not UTF-8", label, helps=("save it as UTF-8",))


def read_regular(path: Path) -> str:
    """A file's text. Raises OSError, also for what is no file (a pipe would be waited for), and UnicodeDecodeError."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a file", os.fspath(path))
    return path.read_text("utf-8")


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Replace a file at once, so that an interruption cannot leave half of it; to what is no file (a pipe) write.

    Raises OSError, which names the file.
    """
    there = Path(path).resolve()  # of a link, what it leads to
    beside = there.with_name(f".{there.name[:200]}.{os.getpid()}")
    try:
        if Path(path).exists() and (not there.is_file() or Path("/dev") in Path(path).absolute().parents):
            Path(path).write_text(text, "utf-8")
            return
        beside.write_bytes(text.encode("utf-8"))
        if there.exists():
            beside.chmod(there.stat().st_mode)
        beside.replace(there)
    except OSError as e:
        beside.unlink(missing_ok=True)
        raise OSError(e.errno, e.strerror or str(e), os.fspath(path)) from e
