"""A packed folder's manifest, read back: whole, sealed, and of this version's format."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from ...dsl.diagnostics import Diagnostic, MksError
from ...dsl.text.files import read_regular
from . import checksums
from .checksums import has_seal, is_sealed
from .layout import FORMAT, JOURNAL, MANIFEST

AGAIN = ("pack the checkpoint again",)

# What a manifest says besides its format and seal, as JSON holds it.
_FIELDS: dict[str, type] = {
    "mks": str,
    "name": str,
    "definition": str,
    "model": str,
    "schedule": str,
    "dtype": str,
    "sizes": dict,
    "plain": list,
    "target": str,
    "topology": list,
    "mesh": dict,
    "cores": int,
    "layout": str,
    "checkpoint": str,
    "checksums": dict,
    "arrays": dict,
    "files": list,
    "texts": dict,
}


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a folder says of itself. Raises `MksError`: E430 where it is no finished one, E431, E432."""
    text = _text(folder)
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise packed_error("E432", f"the manifest of `{folder}` is not JSON", notes=(str(e),)) from None
    if not isinstance(manifest, dict):
        raise packed_error("E432", f"the manifest of `{folder}` is not a JSON object")
    form = manifest.get("format")
    if not is_sealed(text.encode()):
        if form == 1 and not has_seal(manifest):
            raise packed_error(
                "E431",
                f"`{folder}` has no checksums: it was packed in format 1, and this version reads {FORMAT}",
                helps=(f"`{_command(manifest)}` packs it again",),
            )
        raise packed_error(
            "E432", f"`{folder / MANIFEST}` is damaged: it has another checksum than it says", helps=AGAIN
        )
    if type(form) is not int or form != FORMAT:
        raise packed_error("E431", f"`{folder}` has format {form}; this version reads {FORMAT}", helps=AGAIN)
    return manifest


def check_kinds(manifest: dict[str, Any]) -> None:
    """Raises `ValueError` or `KeyError` where a field is not what `mks pack` writes."""
    wrong = [name for name, kind in _FIELDS.items() if type(manifest[name]) is not kind]
    if "plain" not in wrong and any(type(x) is not str for x in manifest["plain"]):
        wrong.append("plain")
    if "texts" not in wrong and not all(
        Path(name).name == name and type(entry) is str for name, entry in manifest["texts"].items()
    ):
        wrong.append("texts")
    if wrong:
        raise ValueError(f"wrong kinds: {', '.join(f'`{name}`' for name in wrong)}")
    if manifest["checksums"] != {"kind": checksums.KIND, "piece": checksums.PIECE}:
        raise ValueError(f"`checksums` are {manifest['checksums']}")


def packed_error(code: str, message: str, *, notes: tuple[str, ...] = (), helps: tuple[str, ...] = ()) -> MksError:
    """One diagnostic, to be raised."""
    return MksError([Diagnostic(code, message, notes=notes, helps=helps)])


def _text(folder: Path) -> str:
    try:
        return read_regular(folder / MANIFEST)
    except FileNotFoundError:
        if (folder / JOURNAL).is_file():
            helps = ("start `mks pack` again as before: it goes on where it stopped",)
            raise packed_error("E430", f"`{folder}` is not finished", helps=helps) from None
        helps = ("`mks pack MODEL --checkpoint DIR -o FOLDER` makes one",)
        message = f"`{folder}` is not a packed model"
        raise packed_error("E430", message, notes=(f"no `{MANIFEST}`",), helps=helps) from None
    except OSError as e:
        raise packed_error("E430", f"`{folder}` cannot be read: {e.strerror or e}") from None
    except UnicodeDecodeError as e:
        raise packed_error("E432", f"the manifest of `{folder}` is not UTF-8", notes=(str(e),), helps=AGAIN) from None


def _command(manifest: dict[str, Any]) -> str:
    """What packs the same model again, as far as a manifest of format 1 tells."""
    command = ["mks", "pack", str(manifest.get("name", "MODEL")), "--checkpoint", "DIR", "--sizes", "config"]
    for option in ("schedule", "dtype"):
        command += [f"--{option}", str(manifest[option])] if isinstance(manifest.get(option), str) else []
    return shlex.join([*command, "-o", "NEW"])
