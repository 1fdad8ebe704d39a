"""The page at `/`."""

from __future__ import annotations

from importlib import resources

from starlette.responses import Response

# The page brings all that it needs, and talks to nobody but the server that it came from.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def page() -> Response:
    """A chat in one file of HTML."""
    text = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    headers = {"content-security-policy": _POLICY, "x-content-type-options": "nosniff", "cache-control": "no-cache"}
    return Response(text, media_type="text/html", headers=headers)
