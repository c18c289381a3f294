"""The meaning of the fields of a row of recorded samples, and the checks of their values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, cast

from tts.characters import in_whole_characters
from tts.errors import ConfigError, shown, unknown_name
from tts.experiments.datasets.rows import BadRow, answer_in
from tts.types import Prompt

# What fields are mostly called, the first that a row has. A field of another name is named by the caller.
USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "problem": ("problem", "problem_id", "id", "task_id", "doc_id", "idx"),
    "sample": ("sample", "sample_id", "epoch"),
    "prompt": ("prompt", "question", "input"),
    "text": ("text", "completion", "response", "output", "generation"),
    "answer": ("answer", "prediction", "pred"),
    "reference": ("reference", "target", "gold", "gt"),
    "correct": ("correct", "right", "is_correct"),
    "tokens": ("tokens", "num_tokens", "completion_tokens"),
    "scores": ("scores", "score", "reward"),
    "steps": ("steps", "step_scores"),
    "outcomes": ("outcomes",),
    "tests": ("tests",),
    "written_tests": ("written_tests", "generated_tests"),
    "group": ("group",),
    "truncated": ("truncated",),
    "verifier_tokens": ("verifier_tokens",),
    "like": ("like",),
    "shared": ("shared",),
    "same": ("same",),
}
_OF_SAMPLE: Final = USUAL.keys() - {"problem", "prompt", "reference", "tests", "written_tests", "group"}
_SHOW_SAMPLES: Final = ("text", "answer", "correct")  # a row has at least one of them
_MOST: Final = 1 << 40  # of a count
_DIGITS: Final = 4300  # of a number, fewer than which Python reads
_WORDS: Final = {"true": True, "false": False, "1": True, "0": False}

Names = Mapping[str, "str | Mapping[str, str]"]  # field of each meaning; of scores and steps also one for each role


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """One recorded sample, as its source gives it. None: it is not given.

    Args:
        place: file and line, for messages. problem: its id; None: that of its prompt. sample: its number within the problem.
        prompt, reference, tests, group: of the problem. written_tests: those that a model wrote for it, each as often as it did.
        text: what the model wrote. answer: the final answer; "": there is none. correct: the source's verdict. tokens: generated.
        scores: of the whole by verifier role; NaN: unknown. steps: by role, of each step. outcomes: by role, of each test.
        truncated: whether a limit ended it.
        verifier_tokens: computed to score it. like, shared, same: as in `RecordedSample`, places among the samples of the problem.
    """

    place: str
    problem: str | None
    sample: str | None = None
    prompt: Prompt | None = None
    text: str | None = None
    answer: str | None = None
    reference: str | None = None
    correct: bool | None = None
    tokens: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    steps: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    outcomes: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    tests: str | None = None
    written_tests: tuple[str, ...] | None = None
    group: str | None = None
    truncated: bool = False
    verifier_tokens: int = 0
    like: int | None = None
    shared: int = 0
    same: int | None = None


class SampleFields:
    """Reads rows of one sample each, or of one problem with lists of samples.

    Args:
        names: the field of a meaning in `USUAL`, where it has another name: {"text": "completions"}. Of `scores` and `steps` it may be a
            field for each verifier role: {"scores": {"main": "reward", "judge": "rating"}}. A dot reaches into a field: "doc.answer".

    Raises:
        ConfigError: a meaning is unknown, or a name is no text.
    """

    def __init__(self, names: Names | None = None) -> None:
        self._named = {meaning: _checked(meaning, name) for meaning, name in (names or {}).items()}
        self._chosen: dict[str, str] = {}

    def read(self, row: Mapping[str, Any], place: str) -> Iterator[SampleRow]:
        """Yield the samples of a row.

        Raises:
            ConfigError: a field is missing or has no such value; the text begins with the place.
        """
        try:
            values = {meaning: value for meaning in USUAL if (value := self._value(meaning, row)) is not None}
            if not any(meaning in values or self._has(meaning, row) for meaning in _SHOW_SAMPLES):
                raise self._nothing(row)
            for number, one in enumerate(_spread(values)):
                yield _sample(one, place if number == 0 else f"{place}, sample {number}")
        except BadRow as bad:
            raise ConfigError(f"{place}: {bad}") from None

    def _value(self, meaning: str, row: Mapping[str, Any]) -> Any:
        """Return the value of a meaning; None where the row has none."""
        name = self._named.get(meaning)
        if isinstance(name, Mapping):
            return {role: _at(row, each) for role, each in name.items()}
        if name is not None:
            return _at(row, name)
        if meaning not in self._chosen:
            taken = {each for each in self._named.values() if isinstance(each, str)}
            found = next((usual for usual in USUAL[meaning] if usual in row and usual not in taken), None)
            if found is None:
                return None
            self._chosen[meaning] = found
        return row.get(self._chosen[meaning])

    def _has(self, meaning: str, row: Mapping[str, Any]) -> bool:
        """Whether a row has the field of a meaning, empty or not."""
        return meaning in self._named or self._chosen.get(meaning) in row

    def _nothing(self, row: Mapping[str, Any]) -> BadRow:
        usual = ((meaning, near) for meaning in _SHOW_SAMPLES for name in USUAL[meaning] for near in get_close_matches(name, row, 1, 0.75))
        meaning, near = next(usual, ("text", "…"))
        known = ", ".join(map(repr, row)) or "none at all"
        return BadRow(
            f"it has neither text, answer nor correct, only {known}; name a field by --field {meaning}={near}, "
            f"in Python by fields={{{meaning!r}: {near!r}}}"
        )


def identity_in(row: Mapping[str, Any], name: str, place: str) -> str:
    """Return the id in a field of a log.

    Raises:
        ConfigError: it is no text or number, or empty; the text begins with the place.
    """
    try:
        found = answer_in(row, name)
    except BadRow as bad:
        raise ConfigError(f"{place}: {bad}") from None
    if found is None:
        raise ConfigError(f"{place}: its {name} is {shown(row.get(name))}, but must be a text or a number")
    return found


def _checked(meaning: str, name: Any) -> str | Mapping[str, str]:
    if meaning not in USUAL:
        raise unknown_name("key of fields", meaning, USUAL)
    by_role = meaning in ("scores", "steps") and isinstance(name, Mapping) and name
    if not (isinstance(name, str) or (by_role and all(isinstance(each, str) for each in (*name, *name.values())))):
        raise ConfigError(f"fields has {shown(name)} for {meaning!r}, but must have the name of a field")
    return name


def _at(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field that must be there; a dot reaches into a field.

    Raises:
        BadRow: it is not there; the text has the nearest names.
    """
    if name in row:
        return row[name]
    first, _, rest = name.partition(".")
    if rest and isinstance(inner := row.get(first), Mapping):
        return _at(cast("Mapping[str, Any]", inner), rest)
    raise BadRow(f"it has no field {name!r}; {unknown_name('field', name, row).hint}")


def _spread(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the values of each sample: one, or those of lists that are equally long.

    Raises:
        BadRow: the lists are of different lengths, or empty.
    """
    lists = {name for name in ("text", "answer", "correct") if isinstance(values.get(name), list)}
    if not lists:
        yield values
        return
    columns = {name: _column(value) for name, value in values.items() if name in _OF_SAMPLE and isinstance(value, list | Mapping)}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise BadRow(f"its lists are of different lengths: {', '.join(f'{name} {length}' for name, length in lengths.items())}")
    if not any(lengths.values()):
        raise BadRow("its lists are empty, but a problem must have a sample; leave the row out")
    for number in range(next(iter(lengths.values()))):
        of_first = values if number == 0 else {**values, "written_tests": None}  # they may be long, and are the problem's
        yield {"sample": str(number), **of_first, **{name: column[number] for name, column in columns.items()}}


def _column(value: Any) -> list[Any]:
    """Return the values of each sample: of a list, or of a list for each verifier role."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    if not all(isinstance(each, list) for each in value.values()) or len({len(each) for each in value.values()}) != 1:
        raise BadRow(f"it has {shown(value)} beside lists of samples, but must have a list for each role, equally long")
    return [dict(zip(value, each, strict=True)) for each in zip(*value.values(), strict=True)]


def _sample(values: Mapping[str, Any], place: str) -> SampleRow:
    scores, steps, outcomes = (_scores(values.get(name), name) for name in ("scores", "steps", "outcomes"))
    for name, given in (("steps", steps), ("outcomes", outcomes)):
        if single := next((role for role, value in given.items() if not isinstance(value, list)), None):
            raise BadRow(f"its {name} by {single!r} is {shown(given[single])}, but must be a list of scores")
    stepwise = {role: _numbers(value, role) for role, value in {**scores, **steps}.items() if isinstance(value, list)}
    whole = {role: _number(value, role) for role, value in scores.items() if not isinstance(value, list)}
    return SampleRow(
        place=place,
        problem=answer_in(values, "problem"),
        sample=answer_in(values, "sample"),
        prompt=_prompt(values.get("prompt")),
        text=_text(values, "text"),
        answer="" if "answer" in values and answer_in(values, "answer") is None else answer_in(values, "answer"),
        reference=answer_in(values, "reference"),
        correct=_verdict(values.get("correct"), "correct"),
        tokens=whole_number(values.get("tokens"), "tokens"),
        scores={**{role: found[-1] if found else math.nan for role, found in stepwise.items()}, **whole},
        steps=stepwise,
        outcomes={role: _numbers(value, role) for role, value in outcomes.items()},
        tests=_text(values, "tests") or None,
        written_tests=_tests(values.get("written_tests")),
        group=answer_in(values, "group"),
        truncated=_verdict(values.get("truncated"), "truncated") or False,
        verifier_tokens=whole_number(values.get("verifier_tokens"), "verifier_tokens") or 0,
        like=whole_number(values.get("like"), "like"),
        shared=whole_number(values.get("shared"), "shared") or 0,
        same=whole_number(values.get("same"), "same"),
    )


def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRow(f"its {name} is {shown(value)}, but must be a text")
    return value


def _tests(value: Any) -> tuple[str, ...] | None:
    """Return the tests that a model wrote: a list of texts, or JSON of it in a cell of CSV."""
    value = _of_cell(value, ("[",), "written_tests", "a list of texts")
    if value is None or value == "":
        return None
    if not isinstance(value, list) or not all(isinstance(one, str) for one in cast("list[Any]", value)):
        raise BadRow(f"its written_tests is {shown(value)}, but must be a list of texts")
    return tuple(cast("list[str]", value)) or None


def _of_cell(value: Any, marks: tuple[str, ...], name: str, rule: str) -> Any:
    """Return the value of the JSON in a cell of CSV that begins with one of the marks; other values unchanged.

    Raises:
        BadRow: the cell begins with one, but is no JSON.
    """
    if not (isinstance(value, str) and value.lstrip().startswith(marks)):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise BadRow(f"its {name} is {shown(value)}, but must be {rule}") from None


def _prompt(value: Any) -> Prompt | None:
    """Return a prompt: a text; what is no text, such as messages, as JSON."""
    return value or None if isinstance(value, str | None) else json.dumps(value)


def _verdict(value: Any, name: str) -> bool | None:
    if isinstance(value, str) and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    if value is None or value == "":
        return None
    if not isinstance(value, bool | int | float) or value not in (0, 1):
        raise BadRow(f"its {name} is {shown(value)}, but must be true or false")
    return bool(value)


def whole_number(value: Any, name: str) -> int | None:
    """Return a count, such as of tokens; None: it is not given.

    Raises:
        BadRow: it is no whole number of at least 0, or above 2 ** 40, so that sums of any number of samples stay exact.
    """
    if value is None or value == "":
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < _DIGITS else value
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if type(number) is not int or number < 0:
        raise BadRow(f"its {name} is {shown(value)}, but must be a whole number of at least 0")
    if number > _MOST:
        raise BadRow(f"its {name} is {shown(value)}, but must be at most {_MOST:,}")
    return number


def _scores(value: Any, name: str) -> Mapping[str, Any]:
    """Return scores by role; a value without a role is that of "main"."""
    value = _of_cell(value, ("{", "["), name, "a number or JSON")
    if value is None or value == "":
        return {}
    by_role = cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else {"main": value}
    if unnamed := [role for role in by_role if not isinstance(role, str) or not role.strip() or in_whole_characters(role) != role]:
        raise BadRow(f"its {name} has the verifier role {shown(unnamed[0])}, but a role must be a text")
    return {role: each for role, each in by_role.items() if each != ""}


def _numbers(values: Sequence[Any], role: str) -> tuple[float, ...]:
    return tuple(_number(value, role) for value in values)


def _number(value: Any, role: str) -> float:
    """Return a score; None: it is unknown.

    Raises:
        BadRow: it is no number, not finite, or a verdict.
    """
    if value is None:
        return math.nan
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        kind = "a verdict; name its field as correct" if isinstance(value, bool) else "no finite number; write null where it is unknown"
        raise BadRow(f"its score by {role!r} is {shown(value)}, {kind}")
    return number
