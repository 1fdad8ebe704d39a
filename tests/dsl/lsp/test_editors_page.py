"""What the page on editors says is true."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from helpers import children

import mks.grammar
from mks.dsl.commands import cli

FOLDER = Path(mks.grammar.__file__).parent
PAGE = (FOLDER / "EDITORS.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The page's pieces in one language."""
    return re.findall(rf"```{language}\n(.*?)\n```", PAGE, re.DOTALL)


def test_the_grammar_is_where_the_command_says() -> None:
    """The command prints the path of the file that the extension copies."""
    (command,) = blocks("sh")
    found = re.fullmatch('python -c "(.*)"', command)
    assert found is not None
    done = children.run([sys.executable, "-c", found[1]], capture_output=True, text=True, seconds=60, check=True)
    assert Path(done.stdout.strip()).samefile(FOLDER / "mks.tmLanguage.json")


def test_the_extension_fits_the_grammar() -> None:
    """Its files are JSON, and name the grammar and the language alike."""
    manifest, configuration, setting = blocks("json")
    (language,) = json.loads(manifest)["contributes"]["languages"]
    (colours,) = json.loads(manifest)["contributes"]["grammars"]
    grammar = json.loads((FOLDER / "mks.tmLanguage.json").read_text("utf-8"))
    assert language["extensions"] == [f".{kind}" for kind in grammar["fileTypes"]] == [".mks"]
    assert colours["scopeName"] == grammar["scopeName"]
    assert colours["path"] == "./mks.tmLanguage.json"
    assert (language["id"], language["configuration"]) == (colours["language"], "./language.json")
    assert json.loads(configuration)["comments"] == {"lineComment": "#"}
    assert json.loads(f"{{{setting}}}") == {"[mks]": {"editor.formatOnSave": True}}


def test_the_command_is_ours() -> None:
    """Both editors start `mks lsp`."""
    assert 'cmd = { "mks", "lsp" }' in blocks("lua")[0]
    assert 'args: ["lsp"]' in blocks("js")[0]
    assert "lsp" in cli.BUILT_IN
