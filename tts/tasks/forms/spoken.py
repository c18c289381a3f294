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
_CHINESE_DIGITS = "两一二三四五六七八九"
_CHINESE_SCALES = {"十": 1, "百": 2, "千": 3, "万": 4, "萬": 4, "亿": 8, "億": 8}
_CHINESE = re.compile(r"(?=.*[一二三四五六七八九十])(?:[两二三四五六七八九一]?[十百千万萬亿億]?[零〇]?)+")
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
_SYNONYMS = {
    "all real numbers": r"(-\infty,\infty)",
    "all reals": r"(-\infty,\infty)",
    "infinity": r"\infty",
    "dne": "does not exist",
}


def read_quantity(text: str) -> str:
    """Return a quantity with a word of scale, such as "3 million apples", in digits and without its unit.

    Any other text is returned as it is.
    """
    match = _COUNTED.fullmatch(text)
    if match is None:
        return text
    count_text, scale_word, unit = match.groups()
    if unit is not None and not is_unit_text(unit):
        return text
    count_text = count_text.strip().replace(",", "").removeprefix(r"\$")
    count = rational(count_text)
    if count is None:
        count = _number(count_text.casefold())
    return text if count is None else str(count * _SCALES[scale_word.casefold()])


def chinese_number(text: str) -> str:
    """Return a whole number in Chinese numerals, such as "四十二", in digits; any other text as it is."""
    if _CHINESE.fullmatch(numerals := text.rstrip("个個只人元岁天次种")) is None:
        return text
    total = below_10000 = digit = 0
    for character in numerals.replace("零", "").replace("〇", ""):
        if character in _CHINESE_DIGITS:
            digit = _CHINESE_DIGITS.index(character) % 10 or 2
        elif (scale := 10 ** _CHINESE_SCALES[character]) < 10_000:
            below_10000, digit = below_10000 + (digit or 1) * scale, 0
        else:
            total, below_10000, digit = (total + below_10000 + digit) * scale, 0, 0
    return str(total + below_10000 + digit)


def spoken_words(text: str) -> str:
    """Return words in folded case, without an article at their beginning.

    A number is returned in digits, and a statement that there is no solution as the empty set.
    """
    words = text.casefold()
    if _NOTHING.fullmatch(words) is not None:
        return r"\emptyset"
    if words in _SYNONYMS:
        return _SYNONYMS[words]
    is_negative = words.startswith(("minus ", "negative "))
    if is_negative:
        unsigned_words = words.removeprefix("minus ").removeprefix("negative ")
    else:
        unsigned_words = _ARTICLE.sub("", words, count=1)
    value = _fraction(unsigned_words)
    if value is None:
        value = _count_things(unsigned_words)
    if value is None:
        return words if is_negative else unsigned_words
    return rational_key(-value if is_negative else value)


def _count_things(words: str) -> Fraction | None:
    """Return the number before a unit, as in "five apples"; None for words that are no number and unit."""
    number_words, _, unit_words = words.partition(" ")
    while unit_words:
        number = _number(number_words)
        next_word, _, later_words = unit_words.partition(" ")
        if number is not None and _number(f"{number_words} {next_word}") is None:
            is_unit = is_unit_text(unit_words) and _NOT_COUNTED.isdisjoint(unit_words.split())
            return Fraction(number) if is_unit else None
        number_words, unit_words = f"{number_words} {next_word}", later_words
    return None


def _fraction(words: str) -> Fraction | None:
    """Return the whole number, the half, or the parts such as "two thirds" that English words write, or None."""
    *count_words, part_word = words.replace("-", " ").split() or [""]
    denominator = _PARTS.get(part_word if part_word == "halves" else part_word.removesuffix("s"))
    if denominator is None:
        number = _number(words)
        return None if number is None else Fraction(number)
    is_half = not count_words and part_word == "half"
    numerator = 1 if is_half else _number(" ".join(count_words))
    return None if numerator is None else Fraction(numerator, denominator)


def _number(words: str) -> int | None:
    """Return the whole number that English words write, below 10^15, or None."""
    number_words = words.replace("-", " ").replace(" and ", " ").split()
    if not number_words:
        return None
    total = 0  # of the words up to the last word of scale, such as "thousand"
    below_1000 = 0  # of the words after it
    smallest_scale = 10**15
    for word in number_words:
        if word in _NUMBERS:
            value = _NUMBERS[word]
            tens, units = divmod(below_1000 % 100, 10)
            fits = (tens == units == 0) or (tens >= 2 and units == 0 and value < 10)
            if not fits:
                return None
            below_1000 += value
        elif word == "hundred" and 0 < below_1000 < 10:
            below_1000 *= 100
        elif word in _SCALES and word not in ("hundred", "dozen") and below_1000 and _SCALES[word] < smallest_scale:
            smallest_scale = _SCALES[word]
            total += below_1000 * smallest_scale
            below_1000 = 0
        else:
            return None
    return total + below_1000
