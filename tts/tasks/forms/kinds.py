"""What looks like arithmetic and is none: times, dates, ranges, telephone and version numbers.

`7:00` is no ratio, `1990-1995` no difference, `7/4/2020` no quotient and `1.2.3` no number. What may be one of these is
compared as such: `kind_form` returns its one spelling, which differs for different times, dates, ranges and numbers of
things.
"""

from __future__ import annotations

import math
import re

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH_OF = {name: place for place, name in enumerate(_MONTHS, start=1)} | {
    name[:3]: place for place, name in enumerate(_MONTHS, start=1)
}
_MONTH_OF["sept"] = 9
_MONTH = r"(?P<name>" + "|".join(sorted(_MONTH_OF, key=len, reverse=True)) + r")\b\.?"
_DAY = r"(?:the )?(?P<day>[0-3]?[0-9])(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>[0-9]{4})"
_NAMED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_MONTH} ?{_DAY}(?:,? {_YEAR})?",
        rf"{_DAY}(?: of)? ?-?{_MONTH}(?:,? ?-?{_YEAR})?",
        rf"{_MONTH},? {_YEAR}",
        rf"{_YEAR} {_MONTH} {_DAY}",
    )
)
_ORIENTAL = re.compile(r"(?:(?P<year>[0-9]{4}) ?年 ?)?(?P<month>[01]?[0-9]) ?月 ?(?P<day>[0-3]?[0-9]) ?[日号號]")
_ORIENTAL_MONTH = re.compile(r"(?P<year>[0-9]{4}) ?年 ?(?P<month>[01]?[0-9]) ?月")
_YEAR_FIRST = re.compile(r"([0-9]{4})([-/.])([01]?[0-9])\2([0-3]?[0-9])")
_YEAR_LAST = re.compile(r"([0-3]?[0-9])([-/.])([0-3]?[0-9])\2([0-9]{4}|[0-9]{2})")

_HALVES = re.compile(r"([0-9]{1,2})(?:[:.]([0-5][0-9]))? ?([ap])\.? ?m\b\.?", re.IGNORECASE)
_CLOCK = re.compile(r"([0-9]{1,2}) ?: ?([0-9]{2})(?: ?: ?([0-9]{2}))?(\.[0-9]+)?")
_O_CLOCK = re.compile(r"([0-9]{1,2}) ?o'? ?clock", re.IGNORECASE)
_NAMED_TIMES = {"noon": "12pm", "12 noon": "12pm", "midnight": "12am", "12 midnight": "12am"}

_PLAIN = r"[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?"
_SIGNED = rf"[+-]?{_PLAIN}"
_SPAN = re.compile(rf"({_PLAIN})(?:\\?%)? ?(?P<dash>--?|~|\\sim) ?({_PLAIN})")
_FROM_TO = re.compile(rf"(?:from )?({_SIGNED})(?:\\?%)? ?(?:to|through|until|till|\\to|至|到) ?({_SIGNED})")
_CHAIN = re.compile(r"\+?[0-9]+(?:-[0-9]+){2,}")
_TELEPHONE = re.compile(
    r"(?:\+?[0-9]{1,3}[ .-]?)?\([0-9]{2,5}\)[ .-]?[0-9]{2,5}(?:[ .-][0-9]{2,5})+|\+[0-9]{1,3}(?:[ .-][0-9]{2,5}){2,}"
)
_VERSION = re.compile(r"v?[0-9]+(?:\.[0-9]+){2,}(?:-[0-9A-Za-z]+)?", re.IGNORECASE)
_MAY_BE_ONE = re.compile(
    r"(?i)[0-9].*(?:[-:/.~年月)至到]|to|through|until|till|\\sim)|[A-Za-z]{3}|^\+[0-9]|[0-9] ?[ap]\.? ?m", re.DOTALL
)
_LONGEST = 60


def kind_form(text: str, *, dash: bool = False) -> str | None:
    """Return the one spelling of a time, a date, a range, or a number that names a thing.

    It is None where a text is none of these.

    Args:
        text: An answer without dollar signs, units and LaTeX spaces. A form that this function returned is its own
            form.
        dash: Whether the text had a long dash, which stands for a range and not for a difference.
    """
    if len(text) > _LONGEST or _MAY_BE_ONE.search(text) is None:
        return None
    return _time(text) or _date(text) or _number_of_thing(text) or _range(text, dash=dash)


def _time(text: str) -> str | None:
    if text.casefold() in _NAMED_TIMES:
        return _NAMED_TIMES[text.casefold()]
    if (match := _HALVES.fullmatch(text)) is not None:
        return _half_day(int(match[1]), match[2] or "00", match[3].lower())
    if (match := _O_CLOCK.fullmatch(text)) is not None:
        return f"{int(match[1])}:00"
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute, second, part = match.groups()
    if second is not None or part is not None:
        return f"{int(hour)}:{minute}" + (f":{second}" if second else "") + (part or "")
    if int(minute) < 60 and (12 < int(hour) < 24 or hour == "00"):
        return _half_day((int(hour) - 1) % 12 + 1, minute, "p" if int(hour) >= 12 else "a")
    # Two times are equal only as written. A ratio in lowest terms is no other ratio that may be a time, so it may stay
    # a ratio.
    is_ratio = minute[0] != "0" and hour[0] != "0" and (int(minute) >= 60 or math.gcd(int(hour), int(minute)) == 1)
    return None if is_ratio else f"{int(hour)}:{minute}"


def _half_day(hour: int, minute: str, half: str) -> str:
    return f"{hour}{'' if minute == '00' else ':' + minute}{half}m"


def _date(text: str) -> str | None:
    for pattern in (*_NAMED, _ORIENTAL, _ORIENTAL_MONTH):
        if (match := pattern.fullmatch(text)) is not None:
            groups = match.groupdict()
            month = _MONTH_OF[groups["name"].lower().rstrip(".")] if "name" in groups else int(groups["month"])
            day, year = (int(groups[name]) if groups.get(name) else None for name in ("day", "year"))
            return _write(year, month, day)
    if (match := _YEAR_FIRST.fullmatch(text)) is not None:
        year, _, month, day = match.groups()
        return _write(int(year), int(month), int(day)) or text
    if (match := _YEAR_LAST.fullmatch(text)) is not None:
        first_text, sign, second_text, year = match.groups()
        first_number, second_number = int(first_text), int(second_text)
        if len(year) == 4 and (first_number > 12) != (
            second_number > 12
        ):  # only then it is clear which of them is the month
            return _write(int(year), min(first_number, second_number), max(first_number, second_number)) or text
        return f"{first_number}/{second_number}/{year}" if sign != "." or len(year) == 4 else text
    return None


def _write(year: int | None, month: int, day: int | None) -> str | None:
    if not 1 <= month <= 12 or (day is not None and not 1 <= day <= 31):
        return None
    name = _MONTHS[month - 1]
    return " ".join([name, *([str(day)] if day is not None else []), *([str(year)] if year is not None else [])])


def _number_of_thing(text: str) -> str | None:
    if _TELEPHONE.fullmatch(text) is not None:
        return text[: text.startswith("+")] + "-".join(re.findall("[0-9]+", text))
    if _CHAIN.fullmatch(text) is not None:
        return text
    return text.casefold().removeprefix("v") if _VERSION.fullmatch(text) is not None else None


def _range(text: str, *, dash: bool) -> str | None:
    match = _SPAN.fullmatch(text)
    if match is None:
        words = _FROM_TO.fullmatch(text)
        return None if words is None else f"{_format_bound(words[1])} to {_format_bound(words[2])}"
    low, high = match[1].replace(",", ""), match[3].replace(",", "")
    coded = any(part[0] == "0" and part[1:2].isdigit() for part in (low, high))
    if not dash and match["dash"] == "-" and not coded and float(low) > float(high):
        return None  # a difference: a range is written upwards
    return f"{_format_bound(low)} to {_format_bound(high)}"


def _format_bound(number: str) -> str:
    number = number.replace(",", "").removeprefix("+")
    return number.rstrip("0").rstrip(".") if "." in number else number
