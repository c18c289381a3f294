"""What looks like arithmetic and is none: times, dates, ranges, telephone and version numbers.

`7:00` is no ratio, `1990-1995` no difference, `7/4/2020` no quotient and `1.2.3` no number. What may be one of these is
compared as such: `kind_form` returns its one spelling, which differs for different times, dates, ranges and numbers of
things.
"""

from __future__ import annotations

import math
import re

_MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = _MONTH_NAMES.split()
_MONTH_OF = {name: number for number, name in enumerate(_MONTHS, start=1)} | {
    name[:3]: number for number, name in enumerate(_MONTHS, start=1)
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
_CANDIDATE_FORM = re.compile(
    r"(?i)[0-9].*(?:[-:/.~年月)至到]|to|through|until|till|\\sim)|[A-Za-z]{3}|^\+[0-9]|[0-9] ?[ap]\.? ?m", re.DOTALL
)
_LONGEST = 60


def kind_form(text: str, *, dash: bool = False) -> str | None:
    """Return the one spelling of a time, a date, a range, or a number that names a thing, or None.

    Args:
        text: An answer without dollar signs, units and LaTeX spaces. A form that this function returned is its own
            form.
        dash: Whether the text had a long dash, which stands for a range and not for a difference.
    """
    if len(text) > _LONGEST or _CANDIDATE_FORM.search(text) is None:
        return None
    return _time(text) or _date(text) or _number_of_thing(text) or _range(text, dash=dash)


def _time(text: str) -> str | None:
    """Return the one spelling of a time of day or a duration, or None."""
    if text.casefold() in _NAMED_TIMES:
        return _NAMED_TIMES[text.casefold()]
    if (match := _HALVES.fullmatch(text)) is not None:
        return _half_day(int(match[1]), match[2] or "00", match[3].lower())
    if (match := _O_CLOCK.fullmatch(text)) is not None:
        return f"{int(match[1])}:00"
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hour, minute, second, second_fraction = match.groups()
    if second is not None or second_fraction is not None:
        second_text = f":{second}" if second else ""
        return f"{int(hour)}:{minute}{second_text}{second_fraction or ''}"
    if int(minute) < 60 and (12 < int(hour) < 24 or hour == "00"):
        return _half_day((int(hour) - 1) % 12 + 1, minute, "p" if int(hour) >= 12 else "a")
    # A text such as 2:15 may be a time or a ratio, and a time equals only itself. In lowest terms the text is read as
    # a ratio, since no other text that may be a time is the same ratio.
    is_ratio = minute[0] != "0" and hour[0] != "0" and (int(minute) >= 60 or math.gcd(int(hour), int(minute)) == 1)
    return None if is_ratio else f"{int(hour)}:{minute}"


def _half_day(hour: int, minute: str, half: str) -> str:
    return f"{hour}{'' if minute == '00' else ':' + minute}{half}m"


def _date(text: str) -> str | None:
    """Return the one spelling of a date, or None; a date that is unclear stays as it is written."""
    for pattern in (*_NAMED, _ORIENTAL, _ORIENTAL_MONTH):
        if (match := pattern.fullmatch(text)) is not None:
            groups = match.groupdict()
            month = _MONTH_OF[groups["name"].lower().rstrip(".")] if "name" in groups else int(groups["month"])
            day = int(groups["day"]) if groups.get("day") else None
            year = int(groups["year"]) if groups.get("year") else None
            return _write(year, month, day)
    if (match := _YEAR_FIRST.fullmatch(text)) is not None:
        year, _separator, month, day = match.groups()
        return _write(int(year), int(month), int(day)) or text
    if (match := _YEAR_LAST.fullmatch(text)) is not None:
        first_text, separator, second_text, year = match.groups()
        first_number, second_number = int(first_text), int(second_text)
        is_month_clear = (first_number > 12) != (second_number > 12)
        if len(year) == 4 and is_month_clear:
            month, day = sorted((first_number, second_number))
            return _write(int(year), month, day) or text
        return f"{first_number}/{second_number}/{year}" if separator != "." or len(year) == 4 else text
    return None


def _write(year: int | None, month: int, day: int | None) -> str | None:
    if not 1 <= month <= 12 or (day is not None and not 1 <= day <= 31):
        return None
    words = [_MONTHS[month - 1]]
    if day is not None:
        words.append(str(day))
    if year is not None:
        words.append(str(year))
    return " ".join(words)


def _number_of_thing(text: str) -> str | None:
    if _TELEPHONE.fullmatch(text) is not None:
        return text[: text.startswith("+")] + "-".join(re.findall("[0-9]+", text))
    if _CHAIN.fullmatch(text) is not None:
        return text
    return text.casefold().removeprefix("v") if _VERSION.fullmatch(text) is not None else None


def _range(text: str, *, dash: bool) -> str | None:
    """Return the one spelling of a range, "LOW to HIGH", or None; `dash` as in `kind_form`."""
    match = _SPAN.fullmatch(text)
    if match is None:
        in_words = _FROM_TO.fullmatch(text)
        return None if in_words is None else f"{_format_bound(in_words[1])} to {_format_bound(in_words[2])}"
    low, high = match[1].replace(",", ""), match[3].replace(",", "")
    has_leading_zero = any(bound[0] == "0" and bound[1:2].isdigit() for bound in (low, high))
    may_be_difference = not dash and match["dash"] == "-" and not has_leading_zero
    if may_be_difference and float(low) > float(high):
        return None  # the bounds of a range ascend
    return f"{_format_bound(low)} to {_format_bound(high)}"


def _format_bound(number: str) -> str:
    number = number.replace(",", "").removeprefix("+")
    return number.rstrip("0").rstrip(".") if "." in number else number
