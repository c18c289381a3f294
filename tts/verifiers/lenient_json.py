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
_PARTIAL_NUMBER: Final = re.compile(r"1|.*\.")
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

        The text of a repaired object may give several values for the name. The object has a verdict only where these
        agree, and where the text shows the value whole. So neither a quotation within a reason nor a number that was
        cut becomes a verdict.

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
        verdicts = {read(_shown_at(self.source, mention.end())) for mention in mentions} - {None}
        return verdicts.pop() if len(verdicts) == 1 else None


def read_objects(reply: str, name: str) -> list[Reading]:
    """Return the outermost JSON objects of a reply, the last first; broken objects must mention a member.

    Args:
        reply: The text of a model.
        name: The name of the member, in lower case.
    """
    return list(_objects(_unquote(reply), name))[::-1]


def _objects(reply: str, name: str) -> Iterator[Reading]:
    """Yield the outermost objects of a reply in order; a broken object is repaired if it mentions the member."""
    decoder = json.JSONDecoder()
    search_start = 0
    while (opening := _BEGINS.search(reply, search_start)) is not None:
        object_start = opening.start()
        try:
            value, search_start = decoder.raw_decode(reply, object_start)
            yield Reading(_members_by_name(value))
        except (ValueError, RecursionError):
            search_start = _end_of_object(reply, object_start)
            source = reply[object_start:search_start]
            value = _repair(source) if name in source.casefold() else None
            if isinstance(value, dict):
                yield Reading(_members_by_name(value), source)


def _members_by_name(members: dict[str, Any]) -> dict[str, Any]:
    """Return an object's members by their names in lower case.

    Of an object whose only member is another object, the members of the inner object are returned.
    """
    for _ in range(_DEEPEST_WRAPPER):
        first_value = next(iter(members.values()), None)
        if len(members) != 1 or not isinstance(first_value, dict):
            break
        members = first_value
    return {str(name).strip().strip(_QUOTES).casefold(): value for name, value in members.items()}


def _end_of_object(reply: str, start: int) -> int:
    """Return the index after an object, by its braces outside of texts.

    Where the braces do not close, the result is the end of the reply.
    """
    depth = 0
    in_text = False
    for special in _SPECIAL.finditer(reply, start):
        if special[0] == '"':
            in_text = not in_text
        elif special[0] == "{" and not in_text:
            depth += 1
        elif special[0] == "}" and not in_text:
            depth -= 1
            if not depth:
                return special.end()
    return len(reply)


def _repair(source: str) -> Any:
    """Return the value that json-repair reads in a text; None: reading would take long, or fails."""
    work = len(source) * (source.count("{") + source.count("`") + 1)
    if len(source) > _LONGEST or work > _MOST_WORK:
        return None
    from json_repair import loads

    try:
        return loads(source, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError, TypeError, KeyError):  # of a text that is no object
        return None


def _shown_at(source: str, start: int) -> str | None:
    """Return the value that a text shows from index `start` on; None where the value is not shown whole.

    After the value a comma, bracket or another end must follow. At the end of the text, a value is whole only where no
    more digits could follow: `1` may be the beginning of `10`.
    """
    match = _VALUE.match(source, start)
    if match is None:
        return None
    value = match[1].strip()
    is_at_end = match.end() == match.end(1)
    return None if is_at_end and _PARTIAL_NUMBER.fullmatch(value) else value


def _unquote(reply: str) -> str:
    """Return a reply; of a reply that is a text in JSON, the text."""
    text = reply.strip()
    if text.startswith('"') and text.endswith('"'):
        try:
            quoted = json.loads(text)
        except ValueError:
            return reply
        return quoted if isinstance(quoted, str) else reply
    return reply
