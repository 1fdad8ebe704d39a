"""How far a packing run came: a line for each layer that is on the disk, and first what is packed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from attrs import frozen

from ...dsl.diagnostics import Diagnostic, MksError
from ...dsl.text.files import read_regular
from .checksums import is_sealed
from .layout import JOURNAL, MANIFEST, core_file
from .manifest import Job

# Checksums of whole pieces so far, by core and array.
type Sums = list[dict[str, list[str]]]

_NAMES = {"name": "definition's file", "definition": "definition", "layout": "kernels' layout", "format": "format"}


@frozen
class Journal:
    """The journal of a folder."""

    folder: Path

    @property
    def path(self) -> Path:
        """Its file; there as long as the folder is unfinished."""
        return self.folder / JOURNAL

    def finished(self, job: Job) -> bool:
        """Whether the folder holds this very job, done. Raises `MksError` (E433) where it is another."""
        try:
            text = read_regular(self.folder / MANIFEST)
            entry = json.loads(text)
        except FileNotFoundError:
            return False
        except (ValueError, RecursionError):
            entry = None
        self._same(entry, job.manifest)
        if not is_sealed(text.encode()):
            raise self._other([f"its `{MANIFEST}` is damaged"])
        self.end()
        return True

    def resume(self, job: Job, size: int) -> tuple[int, Sums]:
        """How many layers are done, and the checksums then; 0 where the work begins anew.

        `size` is that of a core's file. Raises `MksError` (E433) where the folder holds something else.
        """
        try:
            lines = self.path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            others = sorted(path.name for path in self.folder.iterdir())
            if others:
                raise MksError(
                    [
                        Diagnostic(
                            "E433",
                            f"`{self.folder}` holds other files already",
                            notes=(f"`{others[0]}`" + (f" and {len(others) - 1} more" if others[1:] else ""),),
                            helps=("name a new folder",),
                        )
                    ]
                ) from None
            return 0, []
        if not lines:
            return 0, []
        try:
            begun, last = json.loads(lines[0]), json.loads(lines[-1])
            begun_job, files = begun["job"], begun["files"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self.torn() from None
        self._same(begun_job, job.manifest)
        if files != job.files:
            raise self._other(["the checkpoint's files were changed meanwhile"])
        sizes = [
            path.stat().st_size
            for core in range(job.manifest["cores"])
            if (path := self.folder / core_file(core)).is_file()
        ]
        if sizes != [size] * job.manifest["cores"] or len(lines) == 1:
            return 0, []
        # What a torn line leaves behind must not run into the next one.
        os.truncate(self.path, sum(len(line) + 1 for line in lines))
        try:
            sums = [{name: [str(each) for each in done] for name, done in one.items()} for one in last]
        except (TypeError, AttributeError):
            raise self.torn() from None
        if len(sums) != job.manifest["cores"]:
            raise self.torn()
        return len(lines) - 1, sums

    def begin(self, job: Job) -> None:
        """Start anew."""
        self.path.write_bytes(b"")
        self._add({"job": job.manifest, "files": job.files})

    def add(self, sums: Sums) -> None:
        """One more layer is on the disk."""
        self._add(sums)

    def end(self) -> None:
        """The folder is finished."""
        self.path.unlink(missing_ok=True)

    def _add(self, entry: Any) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _same(self, there: Any, here: dict[str, Any]) -> None:
        if not isinstance(there, dict):
            raise self._other([f"its `{MANIFEST}` is not JSON"])
        differences = [
            _difference(key, there.get(key), value) for key, value in here.items() if there.get(key) != value
        ]
        if differences:
            raise self._other(differences)

    def torn(self) -> MksError:
        """What it says cannot be gone on from."""
        return self._other([f"its `{JOURNAL}` is not whole"])

    def _other(self, notes: list[str]) -> MksError:
        return MksError(
            [
                Diagnostic(
                    "E433",
                    f"`{self.folder}` holds another packed model",
                    notes=tuple(notes),
                    helps=("name a new folder, or delete this one",),
                )
            ]
        )


def _difference(key: str, there: Any, here: Any) -> str:
    if key in _NAMES or key == "checkpoint":
        return f"another {_NAMES.get(key, key)}"
    if key == "sizes" and isinstance(there, dict):
        names = [f"`{n}` is {there.get(n)}, here {v}" for n, v in here.items() if there.get(n) != v]
        return f"other sizes: {', '.join(names[:3])}"
    return f"{key}: there {there}, here {here}"
