"""Names of tensors, told by a few patterns: a checkpoint has a name for every layer and every expert."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from attrs import frozen

from .tensor_names import NUMBER, numbers, pattern


@frozen
class Group:
    """Names that are told as one. `texts` are they or what they begin with, all of one pattern.

    `exact` where only its numbers tell that pattern from those of names that are not in the group.
    """

    texts: tuple[str, ...]
    names: tuple[str, ...]
    exact: bool

    @property
    def shown(self) -> str:
        """`model.layers.{0..27}.self_attn.q_norm.weight (28)`."""
        return f"{fold(self.texts)}{self._rest} ({len(self.names)})"

    @property
    def covering(self) -> list[str]:
        """Patterns, in which `*` is any text, that cover the group and nothing else."""
        texts = self.texts if self.exact or len(self.texts) == 1 else (pattern(self.texts[0]).replace("#", "*"),)
        return [text + self._rest for text in texts]

    @property
    def _rest(self) -> str:
        return "*" if self.texts[0].endswith(".") else ""


def grouped(names: Iterable[str], others: Collection[str]) -> list[Group]:
    """Names by the first part, to a point, with which none of `others` begins; by the whole name where it has none."""
    kinds = {pattern(other) for other in others}
    kind_starts, starts = _starts(kinds), None
    groups: dict[tuple[str, bool], list[tuple[str, str]]] = {}
    for name in names:
        exact = pattern(name) in kinds
        if exact:
            starts = _starts(others) if starts is None else starts
            text = next((start for start in _to_points(name) if start not in starts), name)
        else:
            text = next((start for start in _to_points(name) if pattern(start) not in kind_starts), name)
        groups.setdefault((pattern(text), exact), []).append((text, name))
    return [_group(pairs, exact) for (_, exact), pairs in groups.items()]


def _group(pairs: list[tuple[str, str]], exact: bool) -> Group:
    names = tuple(name for _, name in pairs)
    alike = not exact and len({pattern(name) for name in names}) == 1
    return Group(names if alike else tuple(dict.fromkeys(text for text, _ in pairs)), names, exact)


def fold(texts: Collection[str]) -> str:
    """Texts of one pattern as one: each number that varies as the ranges that it takes."""
    between = {tuple(NUMBER.split(text)) for text in texts}
    if len(between) > 1:  # what looks like a placeholder in a name
        return min(texts)
    ((first, *rest),) = between
    columns = zip(*map(numbers, texts), strict=True)
    return first + "".join(_ranges(set(column)) + text for column, text in zip(columns, rest, strict=True))


def _ranges(values: set[int], limit: int = 4) -> str:
    """`7`, `{0..27}`, `{3, 7, 11, … 63}`."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    texts = [str(first) if first == last else f"{first}..{last}" for first, last in runs]
    if len(texts) > limit:
        texts = [*texts[: limit - 1], f"… {texts[-1]}"]
    return texts[0] if len(values) == 1 else f"{{{', '.join(texts)}}}"


def _starts(names: Collection[str]) -> frozenset[str]:
    return frozenset(start for name in names for start in _to_points(name))


def _to_points(name: str) -> Iterator[str]:
    return (name[: at + 1] for at, letter in enumerate(name) if letter == ".")
