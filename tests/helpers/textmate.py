"""What a TextMate grammar makes of a text: the part of the format that ours uses, with Python's regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any


def scopes(grammar: dict[str, Any], text: str) -> list[tuple[str, ...]]:
    """For each character the names of the rules around it, outermost first."""
    found: list[tuple[str, ...]] = []
    open_: list[dict[str, Any]] = []
    for line in text.splitlines(keepends=True):
        marks: list[tuple[str, ...]] = [()] * len(line)
        at = 0
        while at <= len(line.rstrip("\r\n")):
            at = _step(grammar, line, at, open_, marks)
        found += marks
    return found


def _step(
    grammar: dict[str, Any], line: str, at: int, open_: list[dict[str, Any]], marks: list[tuple[str, ...]]
) -> int:
    """Apply the rule that matches first, and go behind it; of several at one place the first that is listed."""
    rules = [open_[-1]["end_rule"]] if open_ else []
    rules += _flat(grammar, open_[-1].get("patterns", []) if open_ else grammar["patterns"])
    body = line.rstrip("\r\n")
    tried = ((re.compile(r.get("match") or r["begin"]).search(body, at), r) for r in rules)
    matched = min(((m, r) for m, r in tried if m is not None), key=lambda each: each[0].start(), default=None)
    outer = tuple(r["name"] for r in open_)
    until = len(body) if matched is None else matched[0].start()
    _mark(marks, at, until, outer)
    if matched is None:
        return len(line) + 1
    match, rule = matched
    name = (rule["name"],) if "name" in rule else ()
    _mark(marks, match.start(), match.end(), outer + name)
    for group, capture in rule.get("captures", {}).items():
        if match.start(int(group)) >= 0:
            _mark(marks, match.start(int(group)), match.end(int(group)), (*outer, *name, capture["name"]))
    if "begin" in rule:
        open_.append({**rule, "end_rule": {"match": rule["end"], "ends": True}})
    elif rule.get("ends"):
        open_.pop()
        return match.end() if match.end() > match.start() else len(line) + 1
    assert match.end() > match.start(), f"{rule} matches nothing"
    return match.end()


def _flat(grammar: dict[str, Any], rules: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for rule in rules:
        if "include" in rule:
            yield from _flat(grammar, [grammar["repository"][rule["include"].removeprefix("#")]])
        elif "match" in rule or "begin" in rule:
            yield rule
        else:
            yield from _flat(grammar, rule["patterns"])


def _mark(marks: list[tuple[str, ...]], start: int, end: int, names: tuple[str, ...]) -> None:
    marks[start:end] = [names] * (end - start)
