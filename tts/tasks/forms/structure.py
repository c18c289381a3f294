"""The outermost structure of an answer: its brackets and the items between its commas."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())


@dataclass(frozen=True, slots=True)
class Parts:
    r"""The outermost structure of an answer.

    Args:
        brackets: The brackets around the whole answer, such as ("[", ")") for a half-open interval; ("", "") if there
            are none.
        items: The texts between commas or semicolons outside of inner brackets, at least one.
    """

    brackets: tuple[str, str]
    items: tuple[str, ...]

    @property
    def bracketed(self) -> bool:
        """Whether brackets are around the whole answer."""
        return self.brackets != ("", "")

    @property
    def unordered(self) -> bool:
        r"""Whether the order of the items is irrelevant, as in a set `\{…\}` or a list without brackets."""
        return self.brackets in ((r"\{", r"\}"), ("", ""))


def top_level_parts(text: str) -> Parts:
    """Return the brackets around a text, of any kind, and its outermost items.

    A text with unbalanced brackets is one item.
    """
    one_item = Parts(("", ""), (text,))
    depth = 0
    first_close = -1  # the index where the depth first falls back to 0
    separators: dict[int, list[int]] = {0: [], 1: []}  # the indices of commas and semicolons by their depth
    for index, character in enumerate(text):
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
            if depth < 0:
                return one_item
            if depth == 0 and first_close < 0:
                first_close = index
        elif character in ",;" and depth in separators:
            separators[depth].append(index)
    if depth != 0:
        return one_item
    opening = text[:2] if text.startswith(r"\{") else text[:1]
    if opening[-1:] in _OPENING and first_close == len(text) - 1:
        closing = text[-2:] if text.endswith(r"\}") else text[-1:]
        return Parts((opening, closing), _cut(text, len(opening), len(text) - len(closing), separators[1]))
    return Parts(("", ""), _cut(text, 0, len(text), separators[0]))


def _cut(text: str, begin: int, end: int, separators: list[int]) -> tuple[str, ...]:
    """Return the items between the separators, from index `begin` to index `end` of a text."""
    inner_separators = [index for index in separators if begin <= index < end]
    edges = [begin - 1, *inner_separators, end]
    return tuple(text[left_edge + 1 : right_edge].strip() for left_edge, right_edge in itertools.pairwise(edges))


def unwrap(text: str, opening: str) -> str:
    """Return a text without the pairs of brackets around all of it.

    Only brackets in `opening` are removed.
    """
    while text and text[0] in opening:
        parts = top_level_parts(text)
        if parts.brackets != (text[0], _OPENING[text[0]]) or len(parts.items) != 1:
            return text
        text = parts.items[0]
    return text


def split_outside(text: str, mark: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Return the pieces of a text between the marks outside of brackets, and the marks.

    Args:
        text: Any text.
        mark: The pattern of a mark.
    """
    pieces: list[str] = []
    marks: list[str] = []
    depth = 0
    piece_start = 0
    for match in re.finditer(r"[(\[{]|[)\]}]|" + mark.pattern, text):
        if match[0] in "([{":
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
        elif depth == 0:
            pieces.append(text[piece_start : match.start()])
            marks.append(match[0])
            piece_start = match.end()
    return [*pieces, text[piece_start:]], marks
