"""Formats and patterns of JSON schemas, as regular expressions for a value that is written as it is."""

from __future__ import annotations

import re

# The months of 31 days, those of 30, and February.
_LONG, _SHORT = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])", "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_DAY = f"(?:{_LONG}|{_SHORT}|02-(?:0[1-9]|1[0-9]|2[0-9]))"
_DATE = f"[0-9]{{4}}-{_DAY}"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:(?:[0-5][0-9]|60)(?:\.[0-9]+)?(?:[Zz]|[+-]{_CLOCK})"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_H16 = "[0-9A-Fa-f]{1,4}"


def _ipv6() -> str:
    """Eight groups, of which `::` stands for one or more."""
    cut = (rf"(?:{_H16}(?::{_H16}){{0,{left}}})?::(?:{_H16}(?::{_H16}){{0,{5 - left}}})?" for left in range(6))
    return "|".join([rf"{_H16}(?::{_H16}){{7}}", *cut, rf"{_H16}(?::{_H16}){{6}}::"])


def _uri() -> str:
    """RFC 3986, with a scheme."""
    char = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
    name = "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
    user = "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@"
    host = rf"(?:\[(?:{_ipv6()})\]|{name})"
    path = f"(?://(?:{user})?{host}(?::[0-9]*)?(?:/{char}*)*|/(?:{char}+(?:/{char}*)*)?|{char}+(?:/{char}*)*|)"
    return rf"[A-Za-z][A-Za-z0-9+.-]*:{path}(?:\?(?:{char}|[/?])*)?(?:#(?:{char}|[/?])*)?"


def _duration() -> str:
    """RFC 3339, appendix A: units follow one another without a gap."""
    time = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
    date = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
    return f"P(?:{date}(?:{time})?|{time}|[0-9]+W)"


# The formats that llguidance holds strings in JSON to.
FORMATS = {
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "time": _TIME,
    "date": _DATE,
    "duration": _duration(),
    "email": rf"{_ATOM}(?:\.{_ATOM})*@(?:{_HOST}|\[{_IPV4}\])",
    "hostname": _HOST,
    "ipv4": _IPV4,
    "ipv6": _ipv6(),
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "uri": _uri(),
}

# Characters of a text that can be counted: each has states of its own, of which a grammar has only so many.
LONGEST = 4000

# An escape, a class of characters with its escapes, or a single character.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.S)
# Looking around, looking back and what anchors within a pattern: nothing for a regular language.
_BEYOND = re.compile(r"\(\?(?:[=!>]|<[=!])|\\[1-9AzZbBGk]")


def search_pattern(pattern: str) -> str | None:
    """A regular expression for the whole texts in which a pattern is found; None where there may be none.

    `^` and `$` are read at the ends of the pattern's alternatives, and nowhere else.
    """
    depth = 0
    options: list[list[str]] = [[]]
    for token in _TOKEN.findall(pattern):
        if _BEYOND.fullmatch(token) or depth < 0:
            return None
        depth += (token == "(") - (token == ")")
        if token == "|" and depth == 0:
            options.append([])
        else:
            options[-1].append(token)
    if depth or _BEYOND.search("".join(t for option in options for t in option if len(t) == 1)):
        return None
    out = []
    for option in options:
        begins, ends = option[:1] == ["^"], option[-1:] == ["$"]
        inner = option[begins : len(option) - ends]
        if "^" in inner or "$" in inner:
            return None
        out.append(f"{'' if begins else '(?s:.*)'}(?:{''.join(inner)}){'' if ends else '(?s:.*)'}")
    return "|".join(out)


def quoted(regex: str) -> str:
    """A regular expression as Lark writes it."""
    escapes = {"/": r"\/", "\n": r"\n", "\r": r"\r"}
    return "/" + "".join(escapes.get(token, token) for token in re.findall(r"\\.|.", regex, re.S)) + "/"
