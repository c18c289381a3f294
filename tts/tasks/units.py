r"""Units, percent and degree signs after a quantity, which are no part of an answer's value."""

from __future__ import annotations

import re

_UNIT_WORDS = """
mm cm dm km mi ft yd kg mg lb lbs oz ml mL cl km/h mph m/s rad deg sec secs hr hrs min mins usd USD eur EUR gbp GBP
inch inches foot feet yard yards mile miles meter meters metre metres centimeter centimeters centimetre centimetres
millimeter millimeters kilometer kilometers kilometre kilometres gram grams kilogram kilograms pound pounds ounce ounces
liter liters litre litres milliliters gallon gallons second seconds minute minutes hour hours day days week weeks
month months year years degree degrees radians percent unit units cent cents dollar dollars euro euros people
"""
_UNITS = frozenset(_UNIT_WORDS.split())
_SHORT_UNITS = frozenset(["m", "s", "g", "h", "l", "L", "N", "J", "W", "V"])
# Words that make a text after a number more than a unit: "3 or more", "2 million", "6 p.m.", "4 (mod 9)".
_MEANING_WORDS = """
or and more less fewer least most million thousand billion trillion hundred dozen am pm a.m. p.m. ad bc mod if is are when for
not no to than base
"""
_MEANING = frozenset(_MEANING_WORDS.split())

_WRAPPED = re.compile(
    r"(?P<quantity>.*?) ?(?P<command>\\(?:text(?:rm|bf|it)?|mbox|mathrm)) ?\{ ?(?P<unit>(?:[^{}]|\^\{-?[0-9]\})*?) ?\}"
    r"(?: ?\^ ?\{?-?[0-9]\}?)?(?:/ ?\\?[A-Za-z]+)?",
    re.DOTALL,
)
_PLAIN = re.compile(r"(?P<quantity>.*?[^A-Za-z\\])(?P<unit>(?:sq(?:uare|\.)? |cubic )?[A-Za-z][A-Za-z/]+)(?:\^\{?[23]\}?)?", re.DOTALL)
_SIGN = re.compile(r"(?P<quantity>.*?) ?(?:\\?%|[£€¥]|\^ ?\{? ?\\circ ?\}?|\\degree)", re.DOTALL)
_CURRENCY = re.compile(r"([+-]?) ?[£€¥] ?")
_QUANTITY_COMMANDS = re.compile(r"\\(?:frac|sqrt|pi|cdot|times)(?![A-Za-z])")
_POWER = re.compile(r"\^(?:\{-?[0-9]\}|[0-9])")
_UNIT_TEXT = re.compile(r"[A-Za-z .,/²³^0-9-]*")


def strip_unit(text: str) -> str:
    r"""Return a quantity without its currency sign, unit, percent or degree sign; any other text as it is.

    A quantity is made of digits and `\frac`, `\sqrt`, `\pi`, `\cdot`, `\times`, without any other letter.
    """
    bare = _CURRENCY.sub(r"\1", text, count=1) if _CURRENCY.match(text) else text
    for pattern in (_WRAPPED, _PLAIN, _SIGN):
        match = pattern.fullmatch(bare)
        if match is not None and _is_quantity(match["quantity"]) and (pattern is _SIGN or _is_unit(match)):
            bare = match["quantity"].strip()
    return bare if _is_quantity(bare) else text


def _is_quantity(text: str) -> bool:
    rest = _QUANTITY_COMMANDS.sub("", text)
    has_value = any(character.isdigit() for character in rest) or r"\pi" in text
    return has_value and not any(character.isalpha() or character in "=<>" for character in rest)


def _is_unit(match: re.Match[str]) -> bool:
    unit = match["unit"].strip()
    command = match.groupdict().get("command")
    words = unit.removeprefix("square ").removeprefix("sq ").removeprefix("sq. ").removeprefix("cubic ").split()
    if command is None or command == r"\mathrm":
        return len(words) == 1 and (words[0] in _UNITS or (command is not None and _is_symbol(words[0])))
    if not words:
        return True
    if len(unit) == 1:
        return unit in _SHORT_UNITS
    return _UNIT_TEXT.fullmatch(unit) is not None and unit[0].isalpha() and _MEANING.isdisjoint(unit.casefold().split())


def _is_symbol(unit: str) -> bool:
    """Whether a text is units in symbols, as in `m/s^2`."""
    return all(each in _UNITS or each in _SHORT_UNITS for each in _POWER.sub("", unit).split("/"))
