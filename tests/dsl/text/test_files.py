"""Reading a definition's text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mks.dsl.diagnostics import Diagnostic
from mks.dsl.render import render
from mks.dsl.source import Source
from mks.dsl.text.files import LARGEST, decode_source, read_source


def refused(path: str | Path) -> Diagnostic:
    """Why a file is not read."""
    found = read_source(path)
    assert isinstance(found, Diagnostic)
    return found


def test_text_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is as it stands in the file, line ends included, and the name is the path as given."""
    monkeypatch.chdir(tmp_path)
    Path("a.mks").write_bytes("mks 1\r\n# é\n".encode())

    found = read_source("./a.mks")

    assert isinstance(found, Source)
    assert (found.name, found.text) == ("./a.mks", "mks 1\r\n# é\n")


def test_a_byte_order_mark_is_left_out() -> None:
    """Only at the beginning, and once."""
    found = decode_source("a", b"\xef\xbb\xbfmks 1\n")

    assert isinstance(found, Source)
    assert found.text == "mks 1\n"


def test_what_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a directory and a name that cannot be are told apart."""
    file = tmp_path / "file"
    file.write_text("mks 1")

    assert refused(tmp_path / "none.mks").code == "E003"
    assert "does not exist" in refused(tmp_path / "none.mks").message
    assert "is a directory" in refused(tmp_path).message
    assert "not a directory" in refused(file / "a.mks").message
    assert refused("a\0b").code == "E003"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    """Lacking permission is told."""
    file = tmp_path / "file"
    file.write_text("mks 1")
    file.chmod(0)

    assert "permission denied" in refused(file).message


def test_not_utf8(tmp_path: Path) -> None:
    """The first byte that is not UTF-8 is named with its offset, and its line is shown."""
    file = tmp_path / "a.mks"
    file.write_bytes("mks 1\n# é ".encode() + b"\xff here\n")

    found = refused(file)

    assert found.code == "E004"
    assert found.primary is not None
    assert found.primary.text == "byte 0xff at offset 11"
    assert found.primary.span.source.position(found.primary.span.start) == (2, 5)
    assert render(found).splitlines()[2:4] == [" 2| # é \ufffd here", "  |     ^ byte 0xff at offset 11"]


def test_too_large(tmp_path: Path) -> None:
    """A file above the limit is not read to its end."""
    file = tmp_path / "a.mks"
    with file.open("wb") as out:
        out.truncate(1 << 40)  # takes no room on the disk

    assert refused(file).code == "E005"
    assert isinstance(decode_source("a", b"#" * LARGEST), Source)
