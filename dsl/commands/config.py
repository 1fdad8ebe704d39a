"""A checkpoint's `config.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..diagnostics import Diagnostic, Label
from ..source import Span
from ..text.files import read_source


def read_config(path: Path) -> dict[str, Any] | Diagnostic:
    """A checkpoint's `config.json`, or why it cannot be read."""
    source = read_source(path)
    if isinstance(source, Diagnostic):
        return source
    try:
        value = json.loads(source.text)
    except json.JSONDecodeError as e:
        return Diagnostic("E007", f"`{path}` is not JSON: {e.msg}", Label(Span(source, e.pos, e.pos + 1)))
    except ValueError:
        return Diagnostic("E007", f"`{path}` holds a number that is too long")
    except RecursionError:
        return Diagnostic("E007", f"`{path}` is nested too deep for a config")
    return value if isinstance(value, dict) else Diagnostic("E007", f"`{path}` is not a JSON object")
