"""What may stand where, in words for people: statements and their forms, and a name for every terminal."""

from __future__ import annotations

from difflib import get_close_matches

# For each kind of context, what it is called and the grammar's start rule for one statement there.
CONTEXTS = {
    "file": ("a file", "top"),
    "model": ("a model", "model_item"),
    "part": ("a part", "part_item"),
    "step": ("a step or a loop", "statement"),
    "weights": ("a `weights` block", "weight"),
    "state": ("a block of states", "state"),
    "schedule": ("a schedule", "schedule_item"),
    "stream": ("a stream", "stream_item"),
    "speculate": ("a `speculate` block", "speculate_item"),
}

# The word that begins a block, and the kind of context between its braces.
BLOCKS = {
    "model": "model",
    "schedule": "schedule",
    "speculate": "speculate",
    "part": "part",
    "step": "step",
    "for": "step",
    "weights": "weights",
    "state": "state",
    "cache": "state",
    "buffer": "state",
    "stream": "stream",
}

_VALUE = "VALUE [from KEY [or KEY]]"
FORMS = {
    "mks": "mks 1",
    "use": 'use "FILE.mks"',
    "model": "model NAME [drafts MODEL] { … }",
    "schedule": "schedule NAME for MODEL { … }",
    "speculate": "speculate NAME { … }",
    "size": f"size NAME = {_VALUE}",
    "const": f"const NAME = {_VALUE}",
    "list": 'list NAME = A, B .. C [by D] [from KEY [where "WORD" or NUMBER]]',
    "require": "require KEY == VALUE [or absent]",
    "ignore": 'ignore "PATTERN", …',
    "taps": "taps NAME = MODEL.VALUE before LIST",
    "function": "function NAME(A, B) = EXPRESSION",
    "weights": 'weights ["PREFIX"] { … }',
    "state": "state { … }",
    "cache": "cache [last LENGTH] { … }",
    "buffer": "buffer { … }",
    "part": "part NAME { … }",
    "step": "step [NAME] [on SIZE] [-> OUTPUT, …] { … }",
    "for": "for NAME in FIRST .. END { … }",
    "target": "target CHIP 2x2x1",
    "rows": "rows 1, 2, 4",
    "span": "span 1, 8 [(keep = every row)]",
    "context": "context 4096",
    "mesh": "mesh AXIS = 4, AXIS = 8",
    "shard": "shard AXIS, … : SIZE, SIZE (repeat)",
    "split": "split PART.WEIGHT, … over AXIS, …",
    "stream": "stream NAME { … }",
    "fetch": "fetch PART.experts [(slots = 4)]",
    "prefetch": "prefetch WHAT at POINT, … [(tile = 256 tokens, slots = 3)]",
    "gather": "gather (PART.VALUE, PART.VALUE)",
    "reduce": "reduce PART.VALUE, … [(by = two_level, wire = bf16)]",
    "overlap": "overlap gather PART.VALUE, … with PART.WEIGHT, …",
    "form": "form PART.STATE = WORD",
    "store": "store PART.WEIGHT, … as CODEC",
}
# Statements that begin with a name of one's own.
NAMED_FORMS = {
    "part": "NAME = EXPRESSION [when CONDITION [else EXPRESSION]]",
    "step": "NAME = EXPRESSION, or PART [when CONDITION [else PART]]",
    "weights": 'NAME, … : TYPE[AXIS, …] "TENSOR" [or OTHER]',
    "state": "NAME, … : TYPE[AXIS, …]",
    "stream": "PART : WEIGHT, (WEIGHT, WEIGHT), or slots = 4",
    "speculate": "target = MODEL on SCHEDULE, or NAME = VALUE",
}

_STATES = frozenset(("weights", "state", "cache", "buffer"))
WORDS: dict[str, frozenset[str]] = {
    "file": frozenset("use model schedule speculate mks".split()),
    "model": frozenset("size const list require ignore taps function part step".split()) | _STATES,
    "part": _STATES | {"for"},
    "step": frozenset(("for",)),
    "weights": frozenset(),
    "state": frozenset(),
    "schedule": frozenset(
        "target rows span context mesh shard split stream fetch prefetch gather reduce overlap form store".split()
    ),
    "stream": frozenset(),
    "speculate": frozenset(),
    "unknown": frozenset(),
}

_OPERATORS = frozenset("OR AND NOT IN EQUALS COMPARE PLUS MINUS STAR SLASH PERCENT FLOOR POWER AT_SIGN".split())
_NAMES = {
    "$END": "the end of the statement",
    "_NL": "the end of the line",
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a text in quotes",
    "TOPOLOGY": "a topology such as `2x2x1`",
    "COMMENT": "a comment",
    "__IGNORE_0": "a space",
    "COMPARE": "a comparison",
    "LBRACE": "`{`",
    "_LAMBDA": "`{`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "EQUAL": "`=`",
    "EQUALS": "`==`",
    "COLON": "`:`",
    "COMMA": "`,`",
    "DOT": "`.`",
    "DOTS": "`..`",
    "ARROW": "`->`",
    "PLUS": "`+`",
    "MINUS": "`-`",
    "STAR": "`*`",
    "SLASH": "`/`",
    "FLOOR": "`//`",
    "PERCENT": "`%`",
    "POWER": "`**`",
    "AT_SIGN": "`@`",
}
_KEYWORDS = frozenset(
    "AND BEFORE AFTER PREVIOUS ROUNDED ABSENT GROUP BLOCK BY DRAFTS FROM WHERE LAST SCALE GLOBAL ON ELSE WHEN OVER AT "
    "WITH AS OR NOT IN".split()
) | {word.upper() for word in FORMS}


def human(terminal: str) -> str | None:
    """What a terminal of the grammar is called in a message; `None` if it has no name."""
    if terminal in _KEYWORDS:
        return f"`{terminal.lower()}`"
    return _NAMES.get(terminal)


def keywords(terminals: frozenset[str]) -> list[str]:
    """The words of the language among terminals."""
    return sorted(t.lower() for t in terminals & _KEYWORDS)


def expected(terminals: frozenset[str]) -> str:
    """`an expression`, or `` `from` or the end of the line ``: what may stand at a point."""
    left = set(terminals)
    phrases = []
    if {"NAME", "NUMBER", "LPAR"} <= left:
        phrases.append("an expression")
        left -= {"NAME", "NUMBER", "LPAR", "MINUS", "NOT"}
    elif {"PLUS", "STAR"} <= left:
        phrases.append("an operator")
        left -= _OPERATORS | {"LPAR", "LSQB", "DOT", "_LAMBDA"}
    if len(left) > 1:
        left -= {"DOT", "_NL"}
    ends = left & {"$END", "_NL"}
    phrases += sorted((human(t) or t for t in left - ends), key=lambda word: (word[0] != "a", word))
    phrases += ["the end of the line"] * bool(ends)
    if len(phrases) > 8:
        phrases = [*phrases[:7], "…"]
    return (
        phrases[0]
        if len(phrases) == 1
        else f"{', '.join(phrases[:-1])} or {phrases[-1]}"
        if phrases
        else "nothing more"
    )


def form(word: str, context: str) -> tuple[str, ...]:
    """A note with the form of the statement that begins with a word."""
    form_ = FORMS.get(word) if word in WORDS[context] else NAMED_FORMS.get(context)
    return (f"form: {form_}",) if form_ else ()


def near(word: str, known: frozenset[str] | list[str]) -> str | None:
    """The known word that this one is most likely a misspelling of."""
    matches = get_close_matches(word[:40].lower(), sorted(known), n=1, cutoff=0.65) if len(word) > 1 else []
    return matches[0] if matches else None


def block_context(word: str) -> str:
    """What stands in the braces of a block that begins with a word, perhaps misspelt."""
    return BLOCKS.get(word) or BLOCKS.get(near(word, frozenset(BLOCKS)) or "") or "unknown"


def homes(word: str) -> list[str]:
    """The contexts in which a statement may begin with a word."""
    return [CONTEXTS[context][0] for context, words in WORDS.items() if word in words and context != "unknown"]
