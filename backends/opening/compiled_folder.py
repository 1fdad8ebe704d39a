"""What `mks compile` left in a folder, as its manifests say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ...dsl.diagnostics import Diagnostic, MksError
from ...dsl.text.files import read_regular

# What is compared with what is served; a manifest says more.
_KINDS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "definition": str,
    "model": str,
    "schedule": str,
    "dtype": str,
    "sizes": dict,
    "rows": int,
    "consecutive": bool,
    "context": int,
    "target": str,
    "topology": list,
    "mesh": dict,
    "cores": int,
    "layout": str,
    "versions": dict,
}


@frozen
class Step:
    """One compiled step's folder, and what its manifest says."""

    folder: Path
    manifest: Mapping[str, Any] = field(repr=False)

    @property
    def rows(self) -> int:
        """How many sequences it is for."""
        return int(self.manifest["rows"])

    @property
    def context(self) -> int:
        """How many positions a sequence has."""
        return int(self.manifest["context"])


@frozen
class Steps:
    """A folder's steps, by rising rows."""

    folder: Path
    steps: tuple[Step, ...]

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What the first one's manifest says; `mks compile` writes them all of one definition and schedule."""
        return self.steps[0].manifest


def open_compiled(folder: Path) -> Steps:
    """What `mks compile` wrote. Raises `MksError` (E507) where there is no such thing, or not all of it."""
    manifest = _manifest(folder)
    if "steps" not in manifest:
        return Steps(folder, (Step(folder, _whole(folder, manifest)),))
    try:
        folders = [folder / Path(entry["folder"]).name for entry in manifest["steps"]]
    except (TypeError, KeyError, AttributeError):
        folders = []
    if not folders:
        raise _error(f"the manifest of `{folder}` is not whole", ("its `steps` are not a list of folders",))
    steps = [Step(each, _whole(each, _manifest(each))) for each in folders]
    return Steps(folder, tuple(sorted(steps, key=lambda step: step.rows)))


def _manifest(folder: Path) -> dict[str, Any]:
    from ...models.packing.packed import is_packed
    from .artifact import FORMAT, MANIFEST

    try:
        manifest = json.loads(read_regular(folder / MANIFEST))
    except FileNotFoundError:
        raise _error(f"`{folder}` holds no compiled step", (f"no `{MANIFEST}`",)) from None
    except OSError as e:
        raise _error(f"`{folder}` cannot be read: {e.strerror or e}") from None
    except (ValueError, RecursionError) as e:
        raise _error(f"the manifest of `{folder}` is not JSON", (str(e),)) from None
    if isinstance(manifest, dict) and "files" in manifest and is_packed(folder):
        message = f"`{folder}` holds a packed model, and no compiled step"
        raise MksError([Diagnostic("E507", message, helps=("name it as `packed`, not as `compiled`",))])
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        form = manifest.get("format") if isinstance(manifest, dict) else None
        raise _error(f"`{folder}` has format {form}; this version reads {FORMAT}")
    return manifest


def _whole(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """A step's manifest with all that is compared."""
    wrong = [name for name, kind in _KINDS.items() if not isinstance(manifest.get(name), kind)]
    wrong += [name for name in ("rows", "context", "cores") if name not in wrong and manifest[name] < 1]
    if wrong:
        raise _error(f"the manifest of `{folder}` is not whole", (f"without {', '.join(f'`{n}`' for n in wrong)}",))
    return manifest


def _error(message: str, notes: tuple[str, ...] = ()) -> MksError:
    return MksError([Diagnostic("E507", message, notes=notes, helps=("`mks compile MODEL -o FOLDER` makes one",))])
