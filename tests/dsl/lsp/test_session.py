"""A session of an editor with `mks lsp`, over its standard input and output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import children
from helpers.definitions import FOLDER, text
from helpers.editor import PUBLISHED, SCRIPT, Editor, place, uri_of

from mks.dsl.commands import cli

SMALL = text("smollm2")
WRONG = SMALL.replace("heads(wk @ x, kv_heads)", "heads(wk @ x, q_heads)")


def test_a_session(tmp_path: Path) -> None:
    """An error arrives, a change removes it; hover, definition, references, symbols, formatting; a clean end."""
    uri = uri_of(tmp_path / "small.mks")
    with Editor() as editor:
        assert editor.capabilities["positionEncoding"] == "utf-16"
        editor.open(uri, WRONG)
        (found,) = editor.diagnostics(uri, 1)
        line, column = place(WRONG, "heads(wk @ x, q_heads)")
        assert (found["code"], found["severity"], found["source"]) == ("E107", 1, "mks")
        assert found["range"]["start"]["line"] == line
        assert column <= found["range"]["start"]["character"]
        assert "E1xx.md#L" in found["codeDescription"]["href"]
        editor.change(uri, SMALL, 2)
        assert editor.diagnostics(uri, 2) == []

        hover = editor.at("hover", uri, *place(SMALL, "wk @ x"))
        assert "attention.wk : bf16[head * kv_heads, d]" in hover["contents"]["value"]
        assert "bf16[192, 576]: 221,184 bytes a layer, 6,635,520 in all 30" in hover["contents"]["value"]
        assert "270 ns at 0.819 TB/s" in hover["contents"]["value"]  # 221,184 / 819e9

        (defined,) = editor.at("definition", uri, *place(SMALL, "wk @ x"))
        assert defined["uri"] == uri
        line, column = place(SMALL, "wk   :")
        assert defined["range"]["start"] == {"line": line, "character": column}
        assert defined["range"]["end"] == {"line": line, "character": column + 2}
        found = editor.at("references", uri, line, column, context={"includeDeclaration": False})
        assert [x["range"]["start"] for x in found] == [position(SMALL, "wk @ x")]

        symbols = editor.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
        assert [x["name"] for x in symbols] == ["smollm2", "one for smollm2"]
        assert {"attention", "mlp", "step", "d"} <= {x["name"] for x in symbols[0]["children"]}

        words = editor.at("completion", uri, *place(SMALL, "wk @ x"))
        assert {"wq", "rope", "q_heads", "x", "position"} <= {x["label"] for x in words}

        assert formatted(editor, uri) == []
        editor.change(uri, SMALL.replace("size d        = 576 ", "size d=576"), 3)
        (edit,) = formatted(editor, uri)
        assert edit["newText"] == SMALL
        editor.change(uri, SMALL + "model {", 4)
        assert formatted(editor, uri) is None
        assert editor.end() == 0
    assert editor.errors == b""


def position(source: str, word: str) -> dict[str, int]:
    """A word's place, as the protocol writes it."""
    line, column = place(source, word)
    return {"line": line, "character": column}


def formatted(editor: Editor, uri: str) -> Any:
    """The edits that lay a file out."""
    options = {"tabSize": 2, "insertSpaces": True}
    return editor.ask("textDocument/formatting", {"textDocument": {"uri": uri}, "options": options})


def test_fast_typing_is_checked_after_a_pause(tmp_path: Path) -> None:
    """Thirty changes at once are not thirty checks, and what is published last is of the last text."""
    uri = uri_of(tmp_path / "small.mks")
    with Editor() as editor:
        editor.open(uri, "")
        for version in range(2, 32):
            editor.change(uri, SMALL if version == 31 else WRONG[: 40 * version], version)
        assert editor.diagnostics(uri, 31) == []
        assert len([note for note in editor.notes if note.get("method") == PUBLISHED]) < 10
        assert editor.end() == 0


@pytest.mark.parametrize("unit", ["utf-16", "utf-8", "utf-32"])
def test_columns_count_what_was_agreed(unit: str, tmp_path: Path) -> None:
    """Behind a tab, Chinese and an emoji, in the units that the editor asked for."""
    uri = uri_of(tmp_path / "宽 📏.mks")
    wide = SMALL.replace('"model.embed_tokens.weight"', '"宽📏🚀\t"  or nothing  # 📏', 1)
    with Editor(unit) as editor:
        assert editor.capabilities["positionEncoding"] == unit
        editor.open(uri, wide)
        (found,) = (d for d in editor.diagnostics(uri, 1) if "nothing" in d["message"])
        line, column = place(wide, "nothing", unit)
        assert found["range"]["start"] == {"line": line, "character": column}
        assert found["range"]["end"] == {"line": line, "character": column + len("nothing")}
        assert editor.end() == 0


def test_names_of_other_scripts(tmp_path: Path) -> None:
    """A name outside of the first plane is two units wide: hover and definition agree on its ends."""
    uri = uri_of(tmp_path / "small.mks")
    wide = SMALL.replace("ffn", "𝕗宽")
    with Editor() as editor:
        editor.open(uri, wide)
        line, column = place(wide, '𝕗宽, d]  "mlp.{name}')
        for at in (column, column + 2):
            hover = editor.at("hover", uri, line, at)
            assert hover["range"]["start"] == {"line": line, "character": column}
            assert hover["range"]["end"] == {"line": line, "character": column + 3}
            assert "= 1536" in hover["contents"]["value"]
        (defined,) = editor.at("definition", uri, line, column)
        assert defined["range"]["start"] == position(wide, "𝕗宽")
        assert editor.end() == 0


def test_a_file_that_is_used(tmp_path: Path) -> None:
    """As it is being edited: definitions lead there, and its errors stand at the `use` line."""
    (tmp_path / "dspark.mks").write_text(text("dspark"), "utf-8")
    (tmp_path / "kimi_k3.mks").write_text("mks 1\n", "utf-8")
    target, drafter = uri_of(tmp_path / "kimi_k3.mks"), uri_of(tmp_path / "dspark.mks")
    source = text("dspark")
    with Editor() as editor:
        editor.open(target, text("kimi_k3"))
        editor.open(drafter, source)
        assert [d["code"] for d in editor.diagnostics(drafter, 1)] == ["N901"]
        (defined,) = editor.at("definition", drafter, *place(source, "kimi_k3 on"))
        assert defined["uri"] == target
        (defined,) = editor.at("definition", drafter, *place(source, '"kimi_k3.mks"'))
        start = {"line": 0, "character": 0}
        assert defined == {"uri": target, "range": {"start": start, "end": start}}
        editor.change(target, text("kimi_k3").replace("  step {", "  step { nothing", 1), 2)
        found = editor.diagnostics(drafter, 1)
        assert {d["range"]["start"]["line"] for d in found} == {place(source, "use ")[0]}
        assert {r["location"]["uri"] for d in found for r in d["relatedInformation"]} == {target}
        editor.tell("textDocument/didClose", {"textDocument": {"uri": drafter}})
        assert editor.diagnostics(drafter, None) == []
        assert editor.end() == 0


def test_half_a_text_ends_nothing(tmp_path: Path) -> None:
    """Whatever is typed, wherever is asked, there is an answer and no traceback; so with odd places and files."""
    uri = uri_of(tmp_path / "absent" / "half.mks")
    with Editor() as editor:
        editor.open(uri, "")
        for version, end in enumerate(range(0, len(SMALL), 97), 2):
            editor.change(uri, SMALL[:end], version)
            line, column = place(SMALL[:end] + "§", "§")
            for method in ("hover", "definition", "completion"):
                editor.at(method, uri, line, max(0, column - 1))
            editor.at("references", uri, line + 7, 10**6, context={"includeDeclaration": True})
            editor.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
            formatted(editor, uri)
        assert editor.diagnostics(uri, version)
        editor.open("untitled:Untitled-1", 'mks 1\nuse "x.mks"\n')
        assert [d["code"] for d in editor.diagnostics("untitled:Untitled-1", 1)] == ["E123"]
        assert editor.end() == 0
    assert b"Traceback" not in editor.errors


def test_the_editor_goes_away() -> None:
    """Without a word, the server ends too, and says so in its status."""
    with Editor() as editor:
        assert editor.child.stdin is not None
        editor.child.stdin.close()
        assert editor.child.wait(10) == 1


@pytest.mark.parametrize("size", [str(10**14), str(10**30)])
def test_a_message_that_is_too_long(size: str) -> None:
    """Its length is believed no more than it is read: the session ends, and says why."""
    found = children.run(
        [sys.executable, "-c", SCRIPT],
        input=f"Content-Length: {size}\r\n\r\n{{}}".encode(),
        capture_output=True,
        seconds=20,
    )

    assert found.returncode == 1
    assert (
        found.stderr.decode() == f"mks lsp: a message of {size} bytes, where 67108864 are the most; the session ends\n"
    )
    assert found.stdout == b""


def test_without_pygls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What to install is said."""
    monkeypatch.setitem(sys.modules, "pygls", None)
    assert cli.main(["lsp"]) == 1
    assert "pip install 'mks[lsp]'" in capsys.readouterr().err


def test_the_checker_does_without_pygls() -> None:
    """Nothing but `mks lsp` imports it."""
    code = "import sys; from mks.dsl.commands.cli import main; main(['check', sys.argv[1]]); main(['lsp', '--help'])"
    code += "; sys.exit('pygls' in sys.modules or 'lsprotocol' in sys.modules)"
    done = children.run([sys.executable, "-c", code, str(FOLDER / "smollm2.mks")], capture_output=True, seconds=60)
    assert done.returncode == 0


def test_a_file_that_is_nowhere(tmp_path: Path) -> None:
    """Neither open nor on disk: what is asked of it has no answer, and the session goes on."""
    with Editor() as editor:
        uri = uri_of(tmp_path / "nowhere.mks")
        assert editor.at("hover", uri, 0, 0) is None
        options = {"tabSize": 2, "insertSpaces": True}
        assert not editor.ask("textDocument/formatting", {"textDocument": {"uri": uri}, "options": options})
        editor.open(uri_of(tmp_path / "small.mks"), SMALL)
        assert editor.diagnostics(uri_of(tmp_path / "small.mks"), 1) == []
