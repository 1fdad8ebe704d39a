"""The printable characters that stand for bytes in byte-level vocabularies: GPT-2's table."""

from __future__ import annotations


def _byte_of_char() -> dict[str, int]:
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + at): byte for at, byte in enumerate(hidden)}


# The byte of each character, and the character of each byte.
BYTES = _byte_of_char()
CHARS = tuple(sorted(BYTES, key=lambda char: BYTES[char]))
