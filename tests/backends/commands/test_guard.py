"""How commands that open models end."""

from __future__ import annotations

import argparse

import pytest

from mks.backends.commands.run_command import command_parser, guarded
from mks.backends.opening.cannot_open import CannotOpen
from mks.models.text.files import UnreadableFile
from mks.server.engine.sequence import NotFinite
from mks.server.http.errors import ApiError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CannotOpen("no model"), "no model"),
        (UnreadableFile("cannot read it"), "cannot read it"),
        (ApiError("no such id"), "no such id"),
        (NotFinite("no finite logits"), "no finite logits"),
        (FileNotFoundError(2, "No such file or directory", "x.npz"), "x.npz: No such file or directory"),
    ],
)
def test_what_is_to_be_expected(error: Exception, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line and status 1."""

    def fail(args: argparse.Namespace) -> None:
        raise error

    assert guarded(command_parser("run", "", "").parse_args, [], fail, (ApiError, NotFinite)) == 1
    assert capsys.readouterr().err == f"error: {said}\n"


def test_statuses() -> None:
    """What the work says, 0 where it says nothing, 2 for wrong usage; anything else is raised."""
    parse = command_parser("run", "", "").parse_args
    assert guarded(parse, [], lambda args: None) == 0
    assert guarded(parse, [], lambda args: 1) == 1
    assert guarded(parse, ["--help"], lambda args: 1) == 0
    assert guarded(parse, ["--nothing"], lambda args: 0) == 2
    with pytest.raises(ZeroDivisionError):
        guarded(parse, [], lambda args: 1 // 0)
    with pytest.raises(BrokenPipeError):
        guarded(parse, [], _gone)


def _gone(args: argparse.Namespace) -> None:
    raise BrokenPipeError
