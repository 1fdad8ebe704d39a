"""Where an answer ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mks.server.engine.scores import Scored
from mks.server.text.answer import Answer, Delta, Finish, Limits, merge

# Two-character pieces, so that stop strings cross tokens; 9 ends, 8 is half of a character, 7 the other half.
PIECES = {0: b"ab", 1: b"ba", 2: b"aa", 3: b"b", 7: "é".encode()[1:], 8: "é".encode()[:1], 9: b"<end>"}


def piece(token: int) -> bytes:
    """The bytes of a token."""
    return PIECES[token]


def whole(ids: list[int], limits: Limits) -> Delta:
    """The answer, pushed at once."""
    return Answer(limits, piece).push(Scored(token) for token in ids)


@given(
    st.lists(st.sampled_from(sorted(PIECES)), min_size=1, max_size=12),
    st.lists(st.text(alphabet="abé", min_size=1, max_size=3), max_size=3),
    st.integers(1, 12),
    st.integers(1, 4),
)
def test_blocks_of_tokens_change_nothing(ids: list[int], stops: list[str], budget: int, block: int) -> None:
    """One by one or several at a time, an answer has the same text, tokens, offsets and reason."""
    limits = Limits(budget, end_ids=frozenset({9}), stop_ids=frozenset({3}), stops=tuple(stops))
    answer = Answer(limits, piece)
    parts = [answer.push(map(Scored, ids[at : at + block])) for at in range(0, len(ids), block)]

    assert merge(part for part in parts if part.tokens) == whole(ids, limits)


@given(st.lists(st.sampled_from([0, 1, 2]), min_size=8, max_size=8), st.integers(1, 8))
def test_a_stop_within_the_budget_wins(ids: list[int], budget: int) -> None:
    """For every budget: the text is cut at the stop if it completes in time, else at the budget."""
    text = b"".join(map(piece, ids)).decode()
    end = text.find("bb")
    got = whole(ids, Limits(budget, stops=("bb",)))

    if 0 <= end <= 2 * budget - 2:
        assert (got.text, got.finish, got.stop_reason) == (text[:end], Finish.STOP, "bb")
        assert len(got.tokens) == (end + 2 + 1) // 2
    else:
        assert (got.text, got.finish) == (text[: 2 * budget], Finish.LENGTH)
        assert len(got.tokens) == budget


def test_an_end_token_counts_but_shows_nothing() -> None:
    """It is among the tokens, and later ones are dropped; at the last place it still is a stop."""
    got = whole([0, 9, 1], Limits(2, end_ids=frozenset({9})))

    assert (got.text, got.finish, got.stop_reason) == ("ab", Finish.STOP, None)
    assert [token.token for token in got.tokens] == [0, 9]


def test_a_stop_id_is_named() -> None:
    """An id asked for by the client is the reason; asked to, its text is shown."""
    assert whole([0, 1], Limits(9, stop_ids=frozenset({1}))).stop_reason == 1
    assert whole([0, 1], Limits(9, stop_ids=frozenset({1}), include_stop=True)).text == "abba"
    assert whole([0, 1], Limits(9, stops=("bb",), include_stop=True)).text == "abb"


def test_held_text_is_flushed_once_at_any_end() -> None:
    """The beginning of a stop string that never completes is delivered, before an end token and at the budget."""
    assert whole([0, 9], Limits(9, end_ids=frozenset({9}), stops=("bx",))).text == "ab"
    assert whole([0], Limits(1, stops=("bx",))).text == "ab"
    assert whole([0, 8], Limits(2)).text == "ab\ufffd"


def test_stops_are_looked_for_after_min_tokens() -> None:
    """A stop string among the first tokens is text."""
    assert whole([0, 1, 0], Limits(9, stops=("b",), min_tokens=2)).text == "abbaa"


def test_s10_a_stop_may_begin_within_min_tokens() -> None:
    """It counts when it is complete behind them; one that is complete before is text, and may overlap the next."""
    assert whole([0, 1, 0], Limits(9, stops=("abba",), min_tokens=1)).text == ""
    assert whole([0, 1, 0], Limits(9, stops=("bba",), min_tokens=1)).text == "a"
    assert whole([0, 0, 1, 0], Limits(9, stops=("abab", "bb"), min_tokens=2)).text == "aba"
    assert whole([0, 0, 0], Limits(9, stops=("abab",), min_tokens=2)).text == "ab"
    assert whole([0, 0], Limits(2, stops=("abab",), min_tokens=2)).text == "abab"


def test_offsets_count_complete_characters() -> None:
    """A token that continues a character begins where that character begins."""
    assert whole([0, 8, 7, 1], Limits(4)).offsets == (0, 2, 2, 3)
