"""Reading of JSON objects from replies of models, which bend the format.

Replies have single quotes, raw line ends, LaTeX, trailing commas, or a cut end.

Objects that are valid JSON are read by `json`, all others by the package json-repair. Such a repair may be a guess. So
a repaired value counts only where the reply shows it in one unambiguous way (`Reading.verdict`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

_QUOTES: Final = "\"'`“”„‟‘’«»"
# the start of an object; other braces of prose are followed by other characters
_BEGINS: Final = re.compile(rf"\{{\s*[{_QUOTES}\w}}\\]")
_SPECIAL: Final = re.compile(r'["{}]|\\.', re.DOTALL)
_VALUE: Final = re.compile(
    rf"([^,，;{{}}\[\]{_QUOTES}\n\r/#\\]{{0,40}}(?:/\s{{0,9}}\d{{1,9}})?)\s*(?:[,，](?!\d)|[;}}\]{_QUOTES}\n\r\\]|//|/\*|#|$)"
)
_MAY_GO_ON: Final = re.compile(r"1|.*\.")
_LONGEST: Final = 1 << 15  # characters of an object that is repaired
# the bound on length times the number of braces and quotes, with which the time of a repair grows
_MOST_WORK: Final = 1 << 20
_DEEPEST_WRAPPER: Final = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """An object of a reply.

    Args:
        members: The members of the object, by name in lower case; where names differ in case alone, the last one.
        source: The text that was repaired; "" where it is valid JSON.
    """

    members: dict[str, Any]
    source: str = ""

    def verdict(self, name: str, read: Callable[[Any], float | None]) -> float | None:
        """Return the verdict in a member; None: the member has no verdict.

        A repaired object has a verdict only where all values agree that its text gives for the name, and where the text
        shows the value whole. So neither a quotation within a reason nor a number that was cut becomes a verdict.

        Args:
            name: The name of the member, in lower case.
            read: A function that returns the verdict in a value, or None.
        """
        if not self.source or name not in self.members:
            return read(self.members.get(name))
        mentions = re.finditer(
            rf"\b{re.escape(name)}[{_QUOTES}\\]{{0,3}}\s{{0,9}}[:：=]\s{{0,9}}[{_QUOTES}\\]*",
            self.source,
            re.IGNORECASE,
        )
        verdicts = {read(_shown_at(self.source, found.end())) for found in mentions} - {None}
        return verdicts.pop() if len(verdicts) == 1 else None


def read_objects(reply: str, name: str) -> list[Reading]:
    """Return the outermost objects of a reply that mention a member, the last first.

    Args:
        reply: The text of a model.
        name: The name of the member, in lower case.
    """
    return list(_objects(_unquote(reply), name))[::-1]


def _objects(reply: str, name: str) -> Iterator[Reading]:
    decoder, at = json.JSONDecoder(), 0
    while (start := _BEGINS.search(reply, at)) is not None:
        try:
            value, at = decoder.raw_decode(reply, start.start())
            yield Reading(_name(value))
        except (ValueError, RecursionError):
            at = _end_of_object(reply, start.start())
            source = reply[start.start() : at]
            if name in source.casefold() and isinstance(value := _repair(source), dict):
                yield Reading(_name(value), source)


def _name(members: dict[str, Any]) -> dict[str, Any]:
    """Return an object's members by their names in lower case.

    An object that only wraps another is replaced by the inner one.
    """
    for _ in range(_DEEPEST_WRAPPER):
        if len(members) != 1 or not isinstance(inner := next(iter(members.values())), dict):
            break
        members = inner
    return {str(name).strip().strip(_QUOTES).casefold(): value for name, value in members.items()}


def _end_of_object(reply: str, start: int) -> int:
    """Return the end of an object by its braces outside of texts.

    Where the braces do not close, the result is the end of the reply.
    """
    depth, in_text = 0, False
    for match in _SPECIAL.finditer(reply, start):
        match match[0]:
            case '"':
                in_text = not in_text
            case "{" if not in_text:
                depth += 1
            case "}" if not in_text:
                depth -= 1
                if not depth:
                    return match.end()
            case _:
                pass
    return len(reply)


def _repair(source: str) -> Any:
    """Return the value that json-repair reads in a text; None: reading would take long, or fails."""
    if len(source) > _LONGEST or len(source) * (source.count("{") + source.count("`") + 1) > _MOST_WORK:
        return None
    from json_repair import loads

    try:
        return loads(source, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError, TypeError, KeyError):  # of a text that is no object
        return None


def _shown_at(source: str, start: int) -> str | None:
    """Return the value that a text shows from a place on; None where nothing follows that ends a value.

    At the end of the text, a value is whole only where no more digits could follow: `1` may be the beginning of `10`.
    """
    match = _VALUE.match(source, start)
    if match is None:
        return None
    return None if match.end() == match.end(1) and _MAY_GO_ON.fullmatch(match[1].strip()) else match[1].strip()


def _unquote(reply: str) -> str:
    """Return a reply, or the text that it is the JSON of."""
    text = reply.strip()
    if text.startswith('"') and text.endswith('"'):
        try:
            inner = json.loads(text)
        except ValueError:
            return reply
        return inner if isinstance(inner, str) else reply
    return reply
