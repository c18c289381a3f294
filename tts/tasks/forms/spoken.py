"""Answers in words.

They are numbers, counted quantities, times of day, and statements that there is no solution.
"""

from __future__ import annotations

import re
from fractions import Fraction

from tts.tasks.forms.rational import rational, rational_key
from tts.tasks.forms.units import is_unit_text

_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_BELOW_20 = {word: value for value, word in enumerate(_UNITS.split())}
_NUMBERS = _BELOW_20 | {word: 10 * (value + 2) for value, word in enumerate(_TENS.split())}
_COUNTED = re.compile(r"(.+?) ?\b(" + "|".join(_SCALES) + r")s?(?: (?:of )?(.+))?", re.DOTALL | re.IGNORECASE)
_ARTICLE = re.compile(r"(?:an?|the) (?=[a-z]{3})")
_NOTHING = re.compile(
    r"(?:there (?:is|are) )?no (?:real |integer |such |possible )?(?:solutions?|roots?|values?)(?: exists?)?|(?:the "
    r")?empty set|empty"
)
_PARTS = {
    "half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
    "ninth": 9, "tenth": 10,
}  # fmt: skip
_NOT_COUNTED = frozenset(
    {*_NUMBERS, *_SCALES, *_PARTS, *(part + "s" for part in _PARTS), "of", "way", "at", "by", "point"}
)
_SAME = {
    "all real numbers": r"(-\infty,\infty)",
    "all reals": r"(-\infty,\infty)",
    "infinity": r"\infty",
    "dne": "does not exist",
}


def read_quantity(text: str) -> str:
    """Return a quantity without a word of scale ("3 million"), and without a unit after it.

    Any other text is returned as it is.
    """
    match = _COUNTED.fullmatch(text)
    if match is None or (match[3] is not None and not is_unit_text(match[3])):
        return text
    quantity = match[1].strip().replace(",", "").removeprefix(r"\$")
    value = rational(quantity)
    if value is None and (number := _number(quantity.casefold())) is not None:
        value = Fraction(number)
    return text if value is None else str(value * _SCALES[match[2].casefold()])


def spoken_words(text: str) -> str:
    """Return words in folded case.

    A number is returned in digits, and a statement that there is no solution as the empty set.
    """
    words = text.casefold()
    if _NOTHING.fullmatch(words) is not None:
        return r"\emptyset"
    if words in _SAME:
        return _SAME[words]
    sign = -1 if words.startswith(("minus ", "negative ")) else 1
    words = words.removeprefix("minus ").removeprefix("negative ") if sign < 0 else _ARTICLE.sub("", words, count=1)
    value = _fraction(words)
    if value is None:
        value = _count_things(words)
    if value is None:
        return text.casefold() if sign < 0 else words
    return rational_key(sign * value)


def _count_things(words: str) -> Fraction | None:
    """Return the number before a unit, as in "five apples"; None where no number begins the words, or they say more."""
    head, _, remaining = words.partition(" ")
    while remaining:
        number = _number(head)
        following, _, later = remaining.partition(" ")
        if number is not None and _number(f"{head} {following}") is None:
            return Fraction(number) if is_unit_text(remaining) and _NOT_COUNTED.isdisjoint(remaining.split()) else None
        head, remaining = f"{head} {following}", later
    return None


def _fraction(words: str) -> Fraction | None:
    """Return the number that English words write: a whole one, a half, or parts such as "two thirds"; or None."""
    *count, part = words.replace("-", " ").split() or [""]
    denominator = _PARTS.get(part if part == "halves" else part.removesuffix("s"))
    if denominator is None:
        number = _number(words)
        return None if number is None else Fraction(number)
    numerator = 1 if not count and part == "half" else _number(" ".join(count))
    return None if numerator is None else Fraction(numerator, denominator)


def _number(words: str) -> int | None:
    """Return the whole number that English words write, below 10^15, or None."""
    total, group, smallest_scale, count = 0, 0, 10**15, 0
    for word in words.replace("-", " ").replace(" and ", " ").split():
        count += 1
        if word in _NUMBERS:
            value = _NUMBERS[word]
            if group % 100 and (value >= 10 or group % 10 or group % 100 < 20):
                return None
            group += value
        elif word == "hundred" and 0 < group < 10:
            group *= 100
        elif word in _SCALES and word not in ("hundred", "dozen") and group and _SCALES[word] < smallest_scale:
            smallest_scale = _SCALES[word]
            total, group = total + group * smallest_scale, 0
        else:
            return None
    return total + group if count else None
