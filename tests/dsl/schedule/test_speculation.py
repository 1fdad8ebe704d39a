"""A target and a drafter that do not fit each other."""

import pytest
from helpers.definitions import changed


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("24, 48, 72, 88, 92", "24, 48, 72, 88, 93", "`aux` is read before layer 93; `kimi_k3` runs 0 to 92"),
        ("24, 48, 72, 88, 92", "24, 24, 72, 88, 92", "`aux` is read before a layer twice"),
        ("context 4096", "context 1024", "the drafter's context has 1024 tokens, the target's 4096"),
        ("target tpu7x 2x2x4", "target v6e 4x8", "the target runs on tpu7x, the drafter on v6e"),
        (
            "verify  = 7 drafts",
            "verify  = 8 drafts",
            "8 drafts are verified in a span of 9 rows; `ironwood16` has 1, 8",
        ),
    ],
)
def test_what_does_not_fit_is_said(old: str, new: str, words: str) -> None:
    """One cause, one error."""
    assert not changed("dspark").diagnostics
    assert [(d.code, d.message) for d in changed("dspark", (old, new)).diagnostics] == [("E212", words)]
