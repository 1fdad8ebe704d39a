"""What is shown on stderr while a model loads."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from .load import Progress


@contextlib.contextmanager
def loading(what: str) -> Iterator[Progress]:
    """A progress bar where stderr is a terminal, nothing elsewhere; yields what moves it."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
