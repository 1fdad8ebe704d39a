"""What is shown on stderr while a model loads."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator

from ...dsl.diagnostics import Diagnostic
from ...dsl.render import render_all, style_for
from ..opening.progress import Progress


def warn(diagnostics: Iterable[Diagnostic]) -> None:
    """Show what is no reason to stop."""
    print(render_all(diagnostics, style_for(sys.stderr)), end="", file=sys.stderr)


@contextlib.contextmanager
def loading(what: str) -> Iterator[Progress]:
    """A progress bar where stderr is a terminal, nothing elsewhere; yields what moves it."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """A line with the time that it takes where stderr is a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(what, total=None)
        yield
