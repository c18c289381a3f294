"""The meaning of the fields of a row of recorded samples, and the checks of their values."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, cast

from tts._common.characters import join_surrogates
from tts.errors import ConfigError, quote, unknown_name
from tts.experiments.datasets.rows import BadRow, PlacedRow, answer_in, reference_in
from tts.tasks.by_references import final_of
from tts.thoughts import THINK
from tts.types import Prompt
from tts_addons.logs.layouts import LISTS, PLAIN, USUAL, Paths, layout_of
from tts_addons.logs.paths import has_path, value_at
from tts_addons.logs.source import COMPARED, SourceFacts, place_errors

NONE: Final = "-"  # the name of a meaning's field where no field has this meaning
_COMPARED: Final = "compared"  # an answer of the source beside a text from which the task extracts
_OF_PROBLEM: Final = ("problem", "prompt", "reference", "tests", "written_tests", "group", "model")
_OF_SAMPLE: Final = (USUAL.keys() | {_COMPARED}) - {*_OF_PROBLEM}
_SHOW_SAMPLES: Final = ("text", "answer", "correct")  # a row has at least one of these meanings
_JSON_CELLS: Final = ("scores", "steps", "outcomes", "written_tests")  # meanings whose cells of CSV may have JSON
# words in the names of fields that may have references
_OF_REFERENCES: Final = re.compile(r"gold|gt|truth|ref|target|expected|label|solution", re.IGNORECASE)
_MOST: Final = 1 << 40  # bound of a count
_DIGITS: Final = 4300  # bound of a number's digits, which Python converts
_WORDS: Final = {"true": True, "false": False, "1": True, "0": False}
# reasons why a sample ended, at a limit or by itself
CUT: Final = ("length", "max_tokens", "model_length", "max_output_tokens", "gconf_threshold")
_WHOLE: Final = ("stop", "eos", "eos_token", "end_turn", "stop_sequence", "tool_calls", "content_filter")
_VERDICTS: Final = re.compile(r"\[ *(true|false|[01])( *, *(true|false|[01]))* *\]", re.IGNORECASE)
_DEEPEST: Final = 8  # of nested parts of a message
_COMMAND: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\(?=[A-Za-z])(?!u[0-9a-fA-F]{4})")
_LONGEST: Final = 100_000  # characters of a reference that is read as a list
_PARTS: Final = (None, "text", "output_text", "input_text")  # types of the parts of a message that are its text
# names of costs, lengths and times, which are no scores
_COST: Final = re.compile(
    r"(?!.*(?:score|reward|prob|confidence|quality))(?:.*[\W_])?(?:steps|seconds?|secs?|ms|minutes|hours|times?|duration|"
    r"latency|elapsed|runtime|tokens|length|len|chars|characters|bytes|lines|turns|calls|iterations|iters|rounds|retries|"
    r"costs?|usd|dollars|price)(?:[\W_].*)?",
    re.IGNORECASE | re.DOTALL,
)
_UNKNOWN: Final = -1  # a count of tokens that was not made

Names = Mapping[str, "str | Mapping[str, str]"]  # field of each meaning; of scores and steps also one for each role


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """One recorded sample, as its source gives it. None: the source does not give the value.

    Args:
        place: The file and line, for messages.
        problem: The problem's id; None: the prompt identifies the problem.
        sample: The sample's number within the problem.
        prompt: The prompt of the problem.
        reference: The reference answer of the problem.
        tests: The tests of the problem's programs.
        group: The group of the problem.
        written_tests: The tests that a model wrote for the problem, with repetitions.
        text: The text that the model wrote.
        answer: The final answer; "": there is none.
        extractor: The source of the answer, as in `SourceFacts.extracting`.
        compared: An answer of the source that is only compared with the extracted answer.
        correct: The source's verdict.
        tokens: The number of generated tokens.
        usd: The dollars that the sample cost.
        scores: The score of the whole by verifier role; NaN: unknown.
        steps: The score of each step, by role.
        outcomes: The outcome of each test, by role.
        truncated: Whether a limit ended the sample.
        verifier_tokens: The number of tokens computed to score the sample.
        like: As in `RecordedSample`, a place among the samples of the problem.
        shared: As in `RecordedSample`.
        same: As in `RecordedSample`, a place among the samples of the problem.
        model: The model that wrote the sample.
        copy_in: The file in which the sample is a copy of an earlier sample, made by another filter; "": no copy.
    """

    place: str
    problem: str | None
    sample: str | None = None
    prompt: Prompt | None = None
    text: str | None = None
    answer: str | None = None
    extractor: str = ""
    compared: str | None = None
    reference: str | None = None
    correct: bool | None = None
    tokens: int | None = None
    usd: float | None = None
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
    model: str | None = None
    copy_in: str = ""


class SampleFields:
    """Reads rows of one sample each, or of one problem with lists of samples.

    The field of a meaning is chosen by the caller, else by the layout of a well-known program, else by its usual names.
    Answers of a field that the caller did not choose are only compared with the answers that the task extracts from
    texts. Such answers count only in rows with the names `text`, `answer` and `reference`.

    Args:
        names: The field of a meaning in `USUAL`, where it has another name: {"text": "completions"}. The meanings
            `scores` and `steps` may have a field for each verifier role: {"scores": {"main": "reward"}}. A name may
            be a path, as in `paths`. "-": no field has the meaning.
        facts: The collector of the fields that were read and of notes on samples; None: a new collector.

    Raises:
        ConfigError: a meaning is unknown, or a name is no text.
    """

    def __init__(self, names: Names | None = None, facts: SourceFacts | None = None) -> None:
        self._named_fields = {meaning: _check(meaning, name) for meaning, name in (names or {}).items()}
        self._facts = facts or SourceFacts()
        self._chosen_fields: dict[str, str] = {}  # by meaning, the first path of the layout that a row has
        self._layout = PLAIN
        self._is_layout_known = False

    def read(self, row: Mapping[str, Any], place: str) -> Iterator[SampleRow]:
        """Yield the samples of a row, none for a failed request of a batch.

        Raises:
            BadRow: a field is missing or has another kind of value.
        """
        if self._is_failed(row):
            self._facts.notes["requests failed, and are left out"] += 1
            return
        row = self._layout.prepare(row)
        self._facts.seen.update(dict.fromkeys(row))
        names = self._names(row)
        values = {meaning: _read_cell(_value(row, name), meaning) for meaning, name in names.items()}
        values = _lists_in_cells({meaning: value for meaning, value in values.items() if value is not None}, names)
        if not any(meaning in values or self._has(meaning, row) for meaning in _SHOW_SAMPLES):
            raise self._nothing(row)
        if "text" in values and "answer" in values:
            values = self._settle_answer(row, values, names)
        self._note_meanings(values, names)
        values["reference"] = self._reference(listing(values.get("reference")))
        if "text" in values:
            values["text"] = text_in(values["text"])
        self._check_samples(row, values, names)
        is_repeat = self._named_fields.get("sample") == NONE or self._layout.repeats
        for number, sample_values in enumerate(_spread(values, self._named_fields.keys(), self._facts)):
            sample = _sample(self._check_scores(sample_values), place if number == 0 else f"{place}, sample {number}")
            sample = dataclasses.replace(sample, sample=None) if is_repeat else sample
            self._facts.models.update({} if sample.model is None else {sample.model: None})
            if sample.answer is not None and sample.text is not None and not is_response(sample.answer, sample.text):
                self._facts.extracting.add(sample.extractor)
            yield sample

    def _reference(self, reference: Any) -> Any:
        """Return the only reference of a list, the final answer of a worked solution, or another value as it is."""
        if isinstance(reference, list):
            references = cast("list[Any]", reference)
            if len(references) > 1:
                self._facts.notes["rows have several references, so that the verdicts of the source count"] += 1
            return references[0] if len(references) == 1 else None
        final = final_of(reference) if isinstance(reference, str) else reference
        if final != reference:
            self._facts.notes["rows have a worked solution as reference, of which the final answer is taken"] += 1
        return final

    def _check_scores(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return values without the scores and steps that are costs or texts, unless the caller named their fields.

        Raises:
            BadRow: a score may be the verdict.
        """
        read = dict(values)
        for meaning in {"scores", "steps"} & read.keys() - self._named_fields.keys():
            value = read[meaning]
            if isinstance(value, Mapping):
                read[meaning] = without_costs(cast("Mapping[str, Any]", value), self._facts)
            elif meaning == "steps" and not _may_be_scores(value):
                self._facts.notes["samples have steps that are no lists of scores, and are not read"] += 1
                read[meaning] = None
            elif isinstance(value, bool):
                raise BadRow(f"its score is {quote(value)}, a verdict; name its field as correct, or as scores")
        return read

    def _note_meanings(self, values: Mapping[str, Any], names: Mapping[str, Paths]) -> None:
        """Note the fields of the meanings that a row has values for."""
        for meaning in values:
            is_compared = meaning == _COMPARED
            for name in _names_in(names["answer" if is_compared else meaning]):
                self._facts.add_meaning(COMPARED if is_compared else meaning, name)

    def _is_failed(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row is a failed request of a batch. The first other row decides the layout of all rows."""
        if self._is_layout_known:
            return self._layout.failed(row)
        self._layout = layout_of(row)
        self._is_layout_known = not self._layout.failed(row)
        if self._is_layout_known and self._layout is not PLAIN:
            self._facts.layouts[self._layout.name] = None
        return not self._is_layout_known

    def _names(self, row: Mapping[str, Any]) -> dict[str, Paths]:
        """Return the path of each meaning that a row has a field of."""
        names = {meaning: self._name(meaning, row) for meaning in USUAL}
        return {meaning: name for meaning, name in names.items() if name is not None}

    def _name(self, meaning: str, row: Mapping[str, Any]) -> Paths | None:
        """Return the path of a meaning, or a path for each role; None: the row has no field of the meaning."""
        named_field = self._named_fields.get(meaning)
        if named_field is not None:
            return None if named_field == NONE else named_field
        other_fields = {field for field in self._named_fields.values() if isinstance(field, str)}
        paths = self._layout.paths.get(meaning, ())
        if isinstance(paths, Mapping):
            return paths if all(has_path(row, path) for path in paths.values()) else None
        if meaning not in self._chosen_fields:
            candidates = (paths,) if isinstance(paths, str) else paths
            candidates = [path for path in candidates if path not in LISTS or _size(listing(row.get(path)))]
            found = [path for path in candidates if path not in other_fields and has_path(row, path)]
            if not found:
                return None
            self._chosen_fields[meaning] = found[0]
        chosen_field = self._chosen_fields[meaning]
        return chosen_field if has_path(row, chosen_field) else None

    def _has(self, meaning: str, row: Mapping[str, Any]) -> bool:
        """Return whether a row may have the field of a meaning, empty or not."""
        is_named = self._named_fields.get(meaning, NONE) != NONE
        return is_named or self._chosen_fields.get(meaning) in row or self._layout is not PLAIN

    def _settle_answer(
        self, row: Mapping[str, Any], values: dict[str, Any], names: Mapping[str, Paths]
    ) -> dict[str, Any]:
        """Return values in which the answer either counts, or is only compared with the extracted answer.

        An answer counts if the caller named its field, or if the row has texts in `text` and answers in `answer`.

        Args:
            row: The row.
            values: The values of the row by meaning, among them a text and an answer.
            names: The path of each meaning.

        Raises:
            BadRow: the caller did not name the field `answer`, which may be the reference.
        """
        name = names["answer"]
        if "answer" in self._named_fields:
            return values
        is_doubtful = name in ("answer", "answers") and not 1 < _size(values["answer"]) == _size(values["text"])
        if is_doubtful and self._named_fields.get("reference") != NONE and not self._has_reference(row):
            raise BadRow(
                f"it has texts and a field {name!r}, which may be the reference or the answers of the model; "
                f"name it by --field reference={name} or --field answer={name}"
            )
        if name == "answer" and names["text"] == "text" and "text" not in self._named_fields:
            return values
        other_values = {meaning: value for meaning, value in values.items() if meaning != "answer"}
        return {**other_values, _COMPARED: values["answer"]}

    def _has_reference(self, row: Mapping[str, Any]) -> bool:
        if "reference" in self._named_fields or self._layout is not PLAIN:
            return True
        return any(usual in row for usual in USUAL["reference"])

    def _check_samples(self, row: Mapping[str, Any], values: Mapping[str, Any], names: Mapping[str, Paths]) -> None:
        """Refuse a row of verdicts, answers or scores whose texts or answers are in fields that are not read.

        Raises:
            BadRow: there are such fields, or one text or answer stands beside a list of verdicts.
        """
        size = max((_size(value) for name, value in values.items() if name in _OF_SAMPLE), default=0)
        shown = {name: values[name] for name in ("text", "answer", _COMPARED) if name in values}
        if size < 2 or "text" in self._named_fields or any(isinstance(value, list) for value in shown.values()):
            return
        if "text" in shown and not isinstance(values.get("correct"), list):
            return  # the list may be the scores of steps
        read_fields = {name for path in names.values() for name in _names_in(path)}
        fields = [name for name in _possible_fields(row) if name not in read_fields and _size(row[name]) == size]
        cures = [f"--field text={name}" for name in fields if _may_be("text", row[name])]
        cures += [f"--field text={name}.*.text" for name in fields if isinstance(row[name][0], Mapping)]
        if not cures and isinstance(values.get("correct"), list) and shown:
            cures = ["--field text=-" if "text" in shown else f"--field reference={names['answer']}"]
        if cures:
            field_names = ", ".join(map(repr, row))
            raise BadRow(
                f"it has a list of {size} values, but no list of texts or answers is read from its fields "
                f"{field_names}; name them by {cures[0]}"
            )

    def _nothing(self, row: Mapping[str, Any]) -> BadRow:
        """Return the error of a row without a sample, with a hint that names a likely field.

        Fields that may have the reference or another meaning are not named.
        """
        fields = _possible_fields(row)
        likely_fields: list[tuple[str, str]] = []  # each with its meaning, the likeliest first
        for meaning in _SHOW_SAMPLES:
            possible_fields = [field for field in fields if _may_be(meaning, row[field])]
            for usual_name in USUAL[meaning]:
                likely_fields += [(meaning, field) for field in get_close_matches(usual_name, possible_fields, 1, 0.75)]
        meaning, likely_field = likely_fields[0] if likely_fields else ("text", "…")
        field_names = ", ".join(map(repr, row)) or "none at all"
        return BadRow(
            f"it has neither text, answer nor correct, only {field_names}; name a field by "
            f"--field {meaning}={likely_field}, in Python by fields={{{meaning!r}: {likely_field!r}}}"
        )


def read_rows(
    file: Path, rows: Iterable[PlacedRow], read: Callable[[Mapping[str, Any], str], Iterator[SampleRow]]
) -> Iterator[SampleRow]:
    """Yield the samples of a file's rows.

    Args:
        file: The file.
        rows: The rows, each with its place in the file.
        read: A function that yields the samples of a row with the given place.

    Raises:
        ConfigError: a row cannot be read; the error begins with file and place.
    """
    for row_place, row in rows:
        place = f"{file.name}, {row_place}"
        with place_errors(place):
            if isinstance(row, BadRow):
                raise row
            yield from read(row, place)


def identity_in(row: Mapping[str, Any], name: str) -> str:
    """Return the id in a field of a log.

    Raises:
        BadRow: the id is no text or number, or empty.
    """
    identity = answer_in(row, name)
    if identity is None:
        raise BadRow(f"its {name} is {quote(row.get(name))}, but must be a text or a number")
    return identity


def text_in(content: Any, depth: int = _DEEPEST) -> Any:
    """Return the text of parts, of a message, or of the model's last message that is not blank.

    Other values, lists of them, and what is nested deeper than `depth`, are returned as they are.
    """
    if depth and isinstance(content, Mapping) and "content" in content:
        return text_in(content["content"], depth - 1)
    if not depth or not isinstance(content, list) or not content:
        return content
    items = cast("list[Any]", content)
    if not all(isinstance(item, Mapping) for item in items):
        return [text_in(item, depth - 1) for item in items]
    if any("role" in item for item in items):
        texts = [text_in(item.get("content"), depth - 1) for item in items if item.get("role") == "assistant"]
        return next((text for text in reversed(texts) if isinstance(text, str) and text.strip()), "")
    parts = [item for item in items if item.get("type") in _PARTS and isinstance(item.get("text"), str)]
    return "\n".join(str(part["text"]) for part in parts) if any("type" in item for item in items) else content


def listing(text: Any) -> Any:
    """Return the texts of a list that a text writes in the form of JSON or Python; another value as it is.

    A single backslash before a letter begins a command of LaTeX, not an escape.
    """
    if not isinstance(text, str) or text[:1] not in ("[", "(") or len(text) >= _LONGEST:
        return text
    try:
        value = ast.literal_eval(_COMMAND.sub(r"\1\\\\", text))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    if not isinstance(value, list | tuple):
        return text
    texts = list(cast("Sequence[Any]", value))
    return texts if texts and all(isinstance(item, str | tuple) for item in texts) else text


def without_costs(scores: Mapping[str, Any], facts: SourceFacts) -> dict[str, Any]:
    """Return scores by role, without those named like costs, lengths and times, which are noted."""
    for role in filter(_COST.fullmatch, scores):
        facts.notes[f"values of {role!r} are costs, and are not read as scores"] += 1
    return {role: score for role, score in scores.items() if not _COST.fullmatch(role)}


def _possible_fields(row: Mapping[str, Any]) -> list[str]:
    """Return the fields of a row that may have samples: no reference, and of no other usual meaning."""
    others = {name for meaning, names in USUAL.items() if meaning not in _SHOW_SAMPLES for name in names}
    return [name for name in row if name not in others and not _OF_REFERENCES.search(name)]


def _size(value: Any) -> int:
    """Return the length of a list; 0: another value."""
    return len(cast("list[Any]", value)) if isinstance(value, list) else 0


def _may_be(meaning: str, value: Any) -> bool:
    """Return whether a value, or each item of a list, may have a meaning of `_SHOW_SAMPLES`."""
    kind: Any = {"text": str, "answer": str | int | float, "correct": bool | int}[meaning]
    items = cast("list[Any]", text_in(value)) if isinstance(text_in(value), list) else [text_in(value)]
    return all(isinstance(item, kind) and (meaning != "correct" or item in (0, 1)) for item in items)


def _may_be_scores(value: Any) -> bool:
    """Return whether a value of steps, which is no object, may be scores."""
    items = cast("list[Any]", value) if isinstance(value, list) else [value or None]
    return all(item is None or (isinstance(item, int | float) and isinstance(value, list)) for item in items)


def _check(meaning: str, name: Any) -> str | Mapping[str, str]:
    """Return the name of a meaning's field, or its names by verifier role, if it is one of these.

    Raises:
        ConfigError: the meaning is unknown, or the name is no text.
    """
    if meaning not in USUAL:
        raise unknown_name("key of fields", meaning, USUAL)
    if isinstance(name, str):
        return name
    if meaning in ("scores", "steps") and isinstance(name, Mapping) and name:
        roles_and_fields = [*name.keys(), *name.values()]
        if all(isinstance(text, str) for text in roles_and_fields):
            return name
    raise ConfigError(f"fields has {quote(name)} for {meaning!r}, but must have the name of a field")


def _value(row: Mapping[str, Any], name: Paths) -> Any:
    """Return the value at a path, or the values at the paths of roles."""
    if isinstance(name, Mapping):
        return {role: value_at(row, path) for role, path in name.items()}
    assert isinstance(name, str), "of several paths one was chosen"
    return value_at(row, name)


def _names_in(name: Paths) -> list[str]:
    if isinstance(name, str):
        return [name]
    return list(name.values()) if isinstance(name, Mapping) else list(name)


def is_response(answer: str, text: str) -> bool:
    """Return whether an answer is the whole text, or its part after a thought, and so was not extracted."""
    bare_answer, bare_text = answer.strip().casefold(), text.strip().casefold()
    if bare_answer == bare_text:
        return True
    return bool(bare_answer) and bare_answer == THINK.response(bare_text).strip()


def _spread(values: Mapping[str, Any], named: Collection[str], facts: SourceFacts) -> Iterator[Mapping[str, Any]]:
    """Yield the values of each sample of a row. The lists of several samples have equal lengths.

    A single value beside lists of several samples is given to no sample.

    Args:
        values: The values of the row by meaning, one value, or a list with a value for each sample.
        named: The meanings whose fields the caller named.
        facts: The collector of notes on values that are not read.

    Raises:
        BadRow: the lists have different lengths or are empty, or a field that the caller named has a single value.
    """
    if not any(isinstance(values.get(name), list) for name in _SHOW_SAMPLES):
        yield {name: value for name, value in values.items() if name != _COMPARED or not isinstance(value, list)}
        return
    sample_values = {name: value for name, value in values.items() if name in _OF_SAMPLE and name != "sample"}
    columns = {name: _column(value) for name, value in sample_values.items() if isinstance(value, list | Mapping)}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise BadRow(
            f"its lists are of different lengths: {', '.join(f'{name} {length}' for name, length in lengths.items())}"
        )
    num_samples, *_ = lengths.values()  # equal lengths
    if num_samples == 0:
        raise BadRow("its lists are empty, but a problem must have a sample; leave the row out")
    for name in sample_values.keys() - columns.keys():
        value = sample_values[name]
        if num_samples == 1:
            columns[name] = [value]
        elif name in named and value != _UNKNOWN:
            raise BadRow(
                f"its {name} is {quote(value)}, one value, but it has {num_samples} samples; name a list, or leave it "
                "out"
            )
        elif value != _UNKNOWN:
            facts.notes[f"rows have one value of {name!r} for several samples, which is not read"] += 1
    problem_values = {name: value for name, value in values.items() if name not in sample_values}
    for number in range(num_samples):
        own_values = {name: column[number] for name, column in columns.items()}
        yield {"sample": str(number), **problem_values, **own_values}
        # written tests are of the problem and may be long, so that only the first sample has them
        problem_values["written_tests"] = None


def _column(value: Any) -> list[Any]:
    """Return the value of each sample, from a list, or from a list for each verifier role."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    are_lists = all(isinstance(role_values, list) for role_values in value.values())
    if not are_lists or len({len(role_values) for role_values in value.values()}) != 1:
        raise BadRow(f"it has {quote(value)} beside lists of samples, but must have a list for each role, equally long")
    roles = list(value)
    return [dict(zip(roles, sample_values, strict=True)) for sample_values in zip(*value.values(), strict=True)]


def _sample(values: Mapping[str, Any], place: str) -> SampleRow:
    """Return the sample with these values by meaning."""
    scores = _scores(values.get("scores"), "scores")
    steps = _scores(values.get("steps"), "steps")
    outcomes = _scores(values.get("outcomes"), "outcomes")
    for name, values_by_role in (("steps", steps), ("outcomes", outcomes)):
        for role, value in values_by_role.items():
            if not isinstance(value, list):
                raise BadRow(f"its {name} by {role!r} is {quote(value)}, but must be a list of scores")
    stepwise = {role: _numbers(value, role) for role, value in {**scores, **steps}.items() if isinstance(value, list)}
    whole_scores = {role: step_scores[-1] if step_scores else math.nan for role, step_scores in stepwise.items()}
    for role, value in scores.items():
        if not isinstance(value, list):
            whole_scores[role] = _number(value, role)
    tokens = values.get("tokens")
    if tokens in (_UNKNOWN, str(_UNKNOWN)):
        tokens = None
    return SampleRow(
        place=place,
        problem=answer_in(values, "problem"),
        sample=answer_in(values, "sample"),
        prompt=_prompt(values.get("prompt")),
        text=_text(values, "text"),
        answer=_answer(values, "answer"),
        compared=_answer(values, _COMPARED),
        reference=reference_in(values, "reference"),
        correct=_verdict(values.get("correct"), "correct"),
        tokens=whole_number(tokens, "tokens"),
        usd=dollars(values.get("usd"), "usd"),
        scores=whole_scores,
        steps=stepwise,
        outcomes={role: _numbers(value, role) for role, value in outcomes.items()},
        tests=_text(values, "tests") or None,
        written_tests=_tests(values.get("written_tests")),
        group=answer_in(values, "group"),
        truncated=_is_cut(values.get("truncated")),
        verifier_tokens=whole_number(values.get("verifier_tokens"), "verifier_tokens") or 0,
        like=whole_number(values.get("like"), "like"),
        shared=whole_number(values.get("shared"), "shared") or 0,
        same=whole_number(values.get("same"), "same"),
        model=model if isinstance(model := values.get("model"), str) else None,
    )


def _answer(values: Mapping[str, Any], name: str) -> str | None:
    """Return an answer; "": the row has an empty answer; None: the row has no field of answers."""
    if name not in values:
        return None
    answer = reference_in(values, name)
    return "" if answer is None else answer


def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        cure = "; name the text in it by a path, such as --field text=samples.*.text" * isinstance(value, Mapping)
        raise BadRow(f"its {name} is {quote(value)}, but must be a text{cure}")
    return value


def _tests(value: Any) -> tuple[str, ...] | None:
    """Return the tests that a model wrote, from a list of texts."""
    if value is None or value == "":
        return None
    if not isinstance(value, list) or not all(isinstance(test, str) for test in cast("list[Any]", value)):
        raise BadRow(f"its written_tests is {quote(value)}, but must be a list of texts")
    return tuple(cast("list[str]", value)) or None


def _read_cell(value: Any, meaning: str) -> Any:
    """Return the value of the JSON in a cell of CSV, and other values unchanged.

    Raises:
        BadRow: the cell begins as JSON, but is none.
    """
    if meaning not in _JSON_CELLS or not (isinstance(value, str) and value.lstrip().startswith(("{", "["))):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise BadRow(f"its {meaning} is {quote(value)}, but must be JSON") from None


def _prompt(value: Any) -> Prompt | None:
    """Return a prompt as a text; None: there is none. Other values, such as messages, become JSON."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else json.dumps(value)


def _lists_in_cells(values: dict[str, Any], names: Mapping[str, Paths]) -> dict[str, Any]:
    """Return values in which cells of CSV that write a list of texts or verdicts are lists.

    Such a list is as long as another list of the row, or has a name of lists.
    """
    lists = {name: listing(values.get(name)) for name in ("text", "answer")}
    verdicts = values.get("correct")
    if isinstance(verdicts, str) and _VERDICTS.fullmatch(verdicts):
        lists["correct"] = json.loads(verdicts.lower())
    sizes = Counter(_size(value) for name, value in {**values, **lists}.items() if name in _OF_SAMPLE)
    for name, value in lists.items():
        if _size(value) and (sizes[_size(value)] > 1 or names.get(name) in LISTS):
            values[name] = value
    return values


def _verdict(value: Any, name: str) -> bool | None:
    """Return a verdict; None: it is not given.

    Raises:
        BadRow: the value is neither true nor false, nor a number or word for these.
    """
    if isinstance(value, str) and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, bool | int | float) or value not in (0, 1):
        raise BadRow(f"its {name} is {quote(value)}, but must be true or false")
    return bool(value)


def _is_cut(value: Any) -> bool:
    """Return whether a limit ended a sample, from true or false, or from the server's reason."""
    if value in CUT:
        return True
    if value in _WHOLE:
        return False
    return _verdict(value, "truncated") or False


def whole_number(value: Any, name: str) -> int | None:
    """Return a count, such as of tokens; None: it is not given.

    Counts are at most 2 ** 40, so that their sums stay exact.

    Raises:
        BadRow: the value is no whole number from 0 to 2 ** 40.
    """
    if value is None or value == "":
        return None
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < _DIGITS else value
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if type(number) is not int or number < 0:
        raise BadRow(f"its {name} is {quote(value)}, but must be a whole number of at least 0")
    if number > _MOST:
        raise BadRow(f"its {name} is {quote(value)}, but must be at most {_MOST:,}")
    return number


def dollars(value: Any, name: str) -> float | None:
    """Return the cost of a sample in dollars; None: it is not given.

    Args:
        value: The value that the source states.
        name: The field of the value.

    Raises:
        BadRow: The value is no number of at least 0.
    """
    if value is None or value == "":
        return None
    number = math.inf if isinstance(value, bool) else _float(value)
    if not 0 <= number <= _MOST:
        raise BadRow(f"its {name} is {quote(value)}, but must be dollars, a number of at least 0")
    return number


def _scores(value: Any, name: str) -> Mapping[str, Any]:
    """Return scores by role. A value without a role is the score of "main"."""
    if value is None or value == "":
        return {}
    by_role = cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else {"main": value}
    for role in by_role:
        if not isinstance(role, str) or not role.strip() or join_surrogates(role) != role:
            raise BadRow(f"its {name} has the verifier role {quote(role)}, but a role must be a text")
    return {role: score for role, score in by_role.items() if score != ""}


def _numbers(values: Sequence[Any], role: str) -> tuple[float, ...]:
    return tuple(_number(value, role) for value in values)


def _number(value: Any, role: str) -> float:
    """Return a score. None becomes NaN: the score is unknown.

    Raises:
        BadRow: the score is no number, or infinite.
    """
    if value is None:
        return math.nan
    number = _float(value)
    if math.isinf(number):
        raise BadRow(f"its score by {role!r} is {quote(value)}, no finite number; write null where it is unknown")
    return number


def _float(value: Any) -> float:
    """Return a value as a number, which is infinite where the value is no number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.inf
