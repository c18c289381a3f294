r"""Units, percent and degree signs after a quantity, which are no part of an answer's value.

After a number every word is a unit ("204 apples", "204人", "5 км"), save those that change what is said ("3 or more", "5
squared", "5 miles north"). A single letter is a unit only in `\text{}`: `5m` is a product.
"""  # noqa: E501

from __future__ import annotations

import re
import unicodedata

_UNIT_WORDS = """
mm cm dm km mi ft yd kg mg lb lbs oz ml mL cl km/h mph m/s rad deg sec secs hr hrs min mins usd USD eur EUR gbp GBP
inch inches in foot feet yard yards mile miles meter meters metre metres centimeter centimeters centimetre centimetres
millimeter millimeters kilometer kilometers kilometre kilometres gram grams kilogram kilograms pound pounds ounce ounces
liter liters litre litres milliliters gallon gallons second seconds minute minutes hour hours day days week weeks
month months year years degree degrees radians percent percentage pct unit units cent cents dollar dollars euro euros people
pts pcs yr yrs kph kmph km/hr mi/h kgs hz Hz kHz MHz GHz kb KB MB GB TB kW MW kWh kJ kPa Pa Wh mol ppm rpm CNY RMB INR JPY CHF Rs
um ug us uL uF nm ns ms sq cu qt pt gal tbsp tsp cc ha
"""  # noqa: E501
_UNITS = frozenset(_UNIT_WORDS.split())
_SHORT_UNITS = frozenset(["m", "s", "g", "h", "l", "L", "N", "J", "W", "V"])
# Words that make a text after a number more than a unit: "3 or more", "2 million", "6 p.m.", "4 (mod 9)".
_MEANING_WORDS = """
or and more less fewer least most million thousand billion trillion hundred dozen am pm a.m. p.m. ad bc ce bce mod if is are was when for
not no to than base then but until factorial squared cubed choose plus minus times over divided halves half thirds fifths sixths sevenths
eighths ninths tenths hundredths thousandths binary octal decimal hexadecimal hex north south east west early late above below negative
remainder infinity pi und oder et ou mehr moins más o y или и modulo
approximately inclusive exclusive millions thousands billions crore lakh
"""  # noqa: E501
_MEANING = frozenset(_MEANING_WORDS.split())
_ORIENTAL_MEANING = re.compile(
    "[或和与及多余百千万亿兆负至到≤≥]|以[上下内外]|[上下左右]$|进制|分之|[东南西北]|または|以降|이상|이하|또는|그리고|と"
)
_ORIENTAL_UNITS = re.compile("千(?=[克米瓦卡赫帕焦])|百分点|左右$|多边形|和尚")
_FUNCTION_NAMES = """
sin cos tan cot sec csc log ln exp max min gcd lcm sqrt arcsin arccos arctan sinh cosh tanh alpha beta gamma delta theta lambda sigma omega
phi psi rho eta tau chi epsilon zeta iota kappa upsilon inf oo cis det abs floor ceil frac
"""  # noqa: E501
_NAMES = frozenset(_FUNCTION_NAMES.split())

_COMMAND = r"\\(?:text|mathrm)"
_WRAPPED = re.compile(
    rf"(?P<quantity>.*?) ?(?P<command>{_COMMAND}) ?\{{ ?(?P<unit>(?:[^{{}}]|\^\{{-?[0-9]\}})*?) ?\}}"
    r"(?: ?\^ ?\{?-?[0-9]\}?)?(?:(?: ?(?:/|\\cdot)? ?\\(?:text|mathrm) ?\{[^{}]*\}|/ ?\\?[A-Za-z]+)(?: ?\^ "
    r"?\{?-?[0-9]\}?)?)*",
    re.DOTALL,
)
_PLAIN = re.compile(
    r"(?P<quantity>.*?[^A-Za-z\\])(?P<unit>(?:sq(?:uare|\.)? |cubic )?[A-Za-z][A-Za-z/]+)\.?(?:\^\{?[23]\}?)?",
    re.DOTALL,
)
_SIGN = re.compile(
    r"(?P<quantity>.*?) ?(?:\\?%|[£€¥₹₽₩₪₫₴¢]|(?:\^ ?\{? ?\\circ ?\}?|\\degree)(?: ?(?:\\(?:text|mathrm) ?\{ ?[CF] "
    r"?\}|[CF]))?)",
    re.DOTALL,
)
_CURRENCY = re.compile(
    r"([+-]?) ?(?:(?:US|HK|NZ|[ACS])(?=\\?\$)|(?:USD|EUR|GBP|CNY|RMB|INR|JPY|CHF|US|Rs\.?) ?(?=[0-9.])|[£€¥₹₽₩₪₫₴¢]) "
    r"?\\?\$? ?"
)
_ORDINAL = re.compile(r"([0-9]*(?:(?<!1)1(?=st)|(?<!1)2(?=nd)|(?<!1)3(?=rd)|(?:1[1-3]|[04-9])(?=th)))(?:st|nd|rd|th)")
_RAISED_ORDINAL = re.compile(r"(?<=[0-9]) ?(?:\^ ?)?(?:\{ ?)?(?:\\(?:text|mathrm) ?\{ ?)?(st|nd|rd|th)[ }]*")
_WORDS = re.compile(
    r"(?P<quantity>[+-]?\.?[0-9](?:[0-9., ]*[0-9])?(?: ?\\frac\{[0-9]+\}\{[0-9]+\}|/[0-9]+)?"
    r"|[+-]?\\frac\{[0-9]+\}\{[0-9]+\})(?P<unit>[^0-9\\]+)"
)
# Words of another script, after any quantity; a symbol after a power of ten.
_FOREIGN = re.compile(r"(?P<quantity>.*[0-9)}]) ?(?P<unit>[^\x00-\x7f][^0-9\\]*)", re.DOTALL)
_MEASURED = re.compile(
    r"(?P<quantity>.*10 ?\^ ?(?:\{-?[0-9]+\}|-?[0-9]+)) ?(?P<unit>[A-Za-z/]+(?:\^-?[0-9])?)", re.DOTALL
)
_SCALED = re.compile(r"([+-]?[0-9][0-9,]*(?:\.[0-9]+)?) ?(万亿|億|亿|萬|万|千|百)(?![克米瓦卡赫帕焦字分])")
_SCALES = {"万亿": 12, "億": 8, "亿": 8, "萬": 4, "万": 4, "千": 3, "百": 2}
_QUANTITY_COMMANDS = re.compile(r"\\(?:frac|sqrt|pi|cdot|times)(?![A-Za-z])")
_POWER = re.compile(r"\^(?:\{-?[0-9]\}|[0-9])")
_UNIT_SIGNS = frozenset(" .,/²³^0123456789-'’()%")
_VOWELS = frozenset("aeiouyAEIOUY")


def strip_unit(text: str) -> str:
    r"""Return a quantity without its currency sign, unit, percent or degree sign; any other text as it is.

    A quantity is made of digits and `\frac`, `\sqrt`, `\pi`, `\cdot`, `\times`, without any other letter.
    """
    quantity = _CURRENCY.sub(r"\1", text, count=1) if _CURRENCY.match(text) else text
    quantity = _scale(quantity)
    for pattern in (_WRAPPED, _SIGN, _PLAIN, _SIGN, _WORDS, _FOREIGN, _MEASURED, _SIGN):
        match = pattern.fullmatch(quantity)
        if match is not None and _is_quantity(match["quantity"]) and (pattern is _SIGN or _is_unit(match)):
            quantity = match["quantity"].strip()
    ordinal = _ORDINAL.fullmatch(_RAISED_ORDINAL.sub(r"\1", quantity))
    if ordinal is not None:
        quantity = ordinal[1]
    return quantity if _is_quantity(quantity) else text


def _scale(text: str) -> str:
    """Return a quantity with a Chinese word of scale, such as "3.5万", in digits; any other text as it is."""
    match = _SCALED.match(text)
    if match is None:
        return text
    number, scale_word = match.groups()
    integer_digits, _, decimal_digits = number.replace(",", "").partition(".")
    num_places = _SCALES[scale_word]  # by which the decimal point moves to the right
    moved_digits = (decimal_digits + "0" * num_places)[:num_places]
    remaining_digits = decimal_digits[num_places:]
    decimals = f".{remaining_digits}" if remaining_digits else ""
    return f"{integer_digits}{moved_digits}{decimals}{text[match.end() :]}"


def is_unit_text(text: str) -> bool:
    """Whether words after a number are a unit, and have no word that changes the value, such as "million"."""
    words = text.casefold().replace(",", " ").replace("(", " ").replace(")", " ").split()
    if not words or not _MEANING.isdisjoint(words) or not _MEANING.isdisjoint(word.strip(".") for word in words):
        return False
    for character in text:
        is_letter_or_mark = unicodedata.category(character)[0] in "LM"
        if not is_letter_or_mark and character not in _UNIT_SIGNS:
            return False
    return not _has_meaning_characters(text)


def _has_meaning_characters(text: str) -> bool:
    return not text.isascii() and _ORIENTAL_MEANING.search(_ORIENTAL_UNITS.sub("", text)) is not None


def _is_quantity(text: str) -> bool:
    without_commands = _QUANTITY_COMMANDS.sub("", text)
    has_value = any(character.isdigit() for character in without_commands) or r"\pi" in text
    return has_value and not any(character.isalpha() or character in "=<>" for character in without_commands)


def _is_unit(match: re.Match[str]) -> bool:
    """Whether the group "unit" of a match is a unit, by the rule of its pattern."""
    unit = match["unit"].strip()
    if match.re in (_WORDS, _FOREIGN):
        return _are_words(match["unit"])
    if match.re is _MEASURED:
        return _is_symbol(unit)
    command = match.groupdict().get("command")
    words = unit.removeprefix("square ").removeprefix("sq ").removeprefix("sq. ").removeprefix("cubic ").split()
    if command is None or command == r"\mathrm":
        is_known = len(words) == 1 and (words[0] in _UNITS or (command is not None and _is_symbol(words[0])))
        return is_known or (command is not None and len(unit) > 2 and is_unit_text(unit))
    if not words:
        return True
    if len(unit) == 1:
        return unit in _SHORT_UNITS or not unit.isascii()
    return unit[0].isalpha() and is_unit_text(unit)


def _are_words(unit: str) -> bool:
    """Whether the text after a number is a unit in words that cannot be a product of variables."""
    words = unit.removeprefix("-").split()
    if not words or not is_unit_text(unit) or not words[0][0].isalpha():
        return False
    first_word = words[0].rstrip(".,")
    if not first_word.isascii() or first_word in _UNITS or first_word.casefold() in ("percent", "percentage", "pct"):
        return True
    letters = first_word.replace("-", "").replace("/", "")
    is_alphabet_run = any(
        letters in alphabet for alphabet in ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    )
    return (
        unit[0] in " -"
        and len(letters) > 2
        and not is_alphabet_run
        and first_word.casefold() not in _NAMES
        and not _VOWELS.isdisjoint(letters)
    )


def _is_symbol(unit: str) -> bool:
    """Whether a text is units in symbols, as in `m/s^2`."""
    symbols = _POWER.sub("", unit).split("/")
    return all(symbol in _UNITS or symbol in _SHORT_UNITS for symbol in symbols)
