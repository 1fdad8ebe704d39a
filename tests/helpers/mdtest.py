"""Programs in Markdown pages, with the errors that each must give beside it.

A heading begins a test. Its ```mks blocks are one program: a block `mks` is the main file, `mks file=other.mks` another
one; `mks at=part` replaces the line marked `#: part` in the page's base program (the block `mks base`). Other words of
the info string are options of `mks check` (`target=v6e`, `size=d=8`). A ```json block is the checkpoint's config
(`json adopt`: its sizes are taken). `# error: [E101] "text"` (or `# warning:`) stands on the line of the error's first
place or on one before it; every diagnostic must be expected, and every expected one given. A ```text block holds what
is printed, word for word; MKS_UPDATE=1 writes these anew.
"""

from __future__ import annotations

import os
import re
from argparse import Namespace
from pathlib import Path

from attrs import define, field, frozen

from mks.dsl.commands.check import Answer, examine
from mks.dsl.diagnostics import Diagnostic, reportable
from mks.dsl.render import render_all
from mks.dsl.source import Source

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$|^(#+) +([^\n]+)$", re.MULTILINE | re.DOTALL)
_EXPECTED = re.compile(r'# (error|warning|note): \[([ENW]\d{3})\](?: "(.*)")?')
_MARK = re.compile(r"^( *)(.*?) *#: (\w+)$", re.MULTILINE)


@define
class Case:
    """One test of a page: blocks with their options, where `with` is what a base's line is replaced with.

    `config` says whether its sizes are taken; `snapshot` is where the printed text stands in the page.
    """

    name: str
    blocks: list[tuple[dict[str, str], str]] = field(factory=list)
    config: tuple[bool, str] | None = None
    snapshot: tuple[int, int, str] | None = None


@frozen
class Expected:
    """A diagnostic's file, line, severity, code and a part of its message."""

    file: str
    line: int
    severity: str
    code: str
    text: str


def cases(page: str) -> list[Case]:
    """The tests of a page, headings joined by slashes."""
    found: list[Case] = []
    titles: list[str] = []
    base = ""
    for match in _FENCE.finditer(page):
        if match[3]:
            titles = [*titles[: len(match[3]) - 1], match[4]]
            continue
        language, *words = match[1].split() or [""]
        options = dict(word.partition("=")[::2] for word in words)
        name = " / ".join(titles[1:] or titles)
        if language == "mks" and "base" in options:
            base = match[2]
            continue
        if language not in ("mks", "json", "text"):
            continue
        if not found or found[-1].name != name:
            found.append(Case(name))
        if language == "mks" and "at" in options:
            found[-1].blocks.append(({**options, "with": match[2]}, base))
        elif language == "mks":
            found[-1].blocks.append((options, match[2]))
        elif language == "json":
            found[-1].config = ("adopt" in options, match[2])
        else:
            found[-1].snapshot = (match.start(2), match.end(2), match[2])
    return found


def program(case: Case) -> tuple[dict[str, str], dict[str, str]]:
    """The files of a test, and the options of the command."""
    files: dict[str, str] = {}
    given: dict[str, str] = {}
    parts: dict[str, str] = {}
    for options, text in case.blocks:
        if "at" in options:
            parts[options["at"]] = options["with"]
            files["main.mks"] = text
        else:
            files[options.get("file", "main.mks")] = text
        given |= {k: v for k, v in options.items() if k not in ("at", "with", "file")}
    if parts:
        used = set()

        def put(match: re.Match[str]) -> str:
            used.add(match[3])
            lines = parts.get(match[3])
            if lines is None:
                return match[1] + match[2]
            return "\n".join(match[1] + line if line else "" for line in lines.rstrip("\n").split("\n"))

        files["main.mks"] = _MARK.sub(put, files["main.mks"])
        assert used >= set(parts), f"the base has no place {set(parts) - used}"
    return files, given


def expected(files: dict[str, str]) -> list[Expected]:
    """What the comments of the files say."""
    found = []
    for name, text in files.items():
        waiting: list[re.Match[str]] = []
        for number, line in enumerate(text.split("\n"), 1):
            here = list(_EXPECTED.finditer(line))
            if line.lstrip().startswith("# ") and here:
                waiting += here
                continue
            found += [Expected(name, number, m[1], m[2], m[3] or "") for m in [*waiting, *here]]
            waiting = []
    return found


def diagnostics(case: Case, folder: Path) -> tuple[list[Diagnostic], dict[str, str]]:
    """What `mks check` says of a test's program; `folder` must be the current one."""
    files, given = program(case)
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    config = None
    if case.config is not None:
        config = folder / "config.json"
        config.write_text(case.config[1], "utf-8")
    size = {name: int(value) for name, _, value in [given["size"].partition("=")]} if "size" in given else {}
    answer = Answer()
    args = Namespace(
        compile=False,
        file="main.mks",
        config=config and Path(config.name),
        checkpoint=None,
        adopt=bool(case.config and case.config[0]),
        size=size,
        target=given.get("target"),
        schedule=given.get("schedule"),
    )
    examine(Source("main.mks", files["main.mks"]), args, answer)
    return list(reportable(answer.diagnostics)), files


def run(case: Case, folder: Path) -> str:
    """Compare what is said with what is expected; the printed text. Raises AssertionError with both."""
    found, files = diagnostics(case, folder)
    wanted = expected(files)
    surplus = []
    for diagnostic in found:
        place = diagnostic.primary.span if diagnostic.primary else None
        at = (place.source.name, place.source.position(place.start)[0]) if place else ("main.mks", 1)
        match = next(
            (
                e
                for e in wanted
                if (e.file, e.line, e.severity, e.code) == (*at, diagnostic.severity, diagnostic.code)
                and e.text in diagnostic.message
            ),
            None,
        )
        if match is None:
            surplus.append(diagnostic)
        else:
            wanted.remove(match)
    problems = [f"not given: {e.file}:{e.line}: {e.severity}: [{e.code}] {e.text}" for e in wanted]
    if surplus:
        problems.append("not expected:\n" + render_all(surplus))
    assert not problems, "\n".join(problems)
    return render_all(found)


def check(page: Path, case: Case, folder: Path) -> None:
    """Run a test, its printed text included; write that anew if asked to."""
    printed = run(case, folder)
    if case.snapshot is None:
        return
    start, end, text = case.snapshot
    if printed != text and os.environ.get("MKS_UPDATE"):
        whole = page.read_text("utf-8")
        again = next(c for c in cases(whole) if c.name == case.name)  # earlier updates have moved it
        assert again.snapshot is not None
        start, end, _ = again.snapshot
        page.write_text(whole[:start] + printed + whole[end:], "utf-8")
        return
    assert printed == text, "MKS_UPDATE=1 writes this text into the page"
