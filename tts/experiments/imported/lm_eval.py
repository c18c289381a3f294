"""Samples of lm-evaluation-harness and lmms-eval, as their `--log_samples` writes them.

A line is one document with one filter. `resps` has a list for each request, with a text for each repeat;
`filtered_resps` has the output of the filter: one answer, or one for each repeat. The reader takes the lines of one
filter, and uses answers of single repeats. Where a filter joins repeats, such as by a vote, the task extracts the
answers from the texts. The task also extracts where no filter does, as in AIME and Minerva, where each answer equals
its response.

| version | file | differs |
|---|---|---|
| 0.4.0 to 0.4.2 | `MODEL_TASK.jsonl`, one array | no `filter`, no `metrics`; `arguments` is a list |
| 0.4.3 to 0.4.4 | `samples_TASK_DATE.jsonl` | no `filter`, no `metrics` |
| from 0.4.5 | `samples_TASK_DATE.jsonl` | both |
| lmms-eval | `DATE_samples_TASK.jsonl` | no `doc` and `filter`; `resps` is flat, and left out where nothing was filtered |

Files without `filter` have a copy of each document for each filter, in the order of the task's filters.

Sources: `evaluator.py`, `__main__.py` and `loggers/evaluation_tracker.py` of lm-evaluation-harness 0.4.2, 0.4.4, 0.4.8,
0.4.11 and 0.4.13, and of lmms-eval 0.7.
"""  # noqa: E501

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from tts.characters import join_surrogates
from tts.errors import ConfigError, quote, unknown_name
from tts.experiments.datasets.rows import BadRow
from tts.experiments.imported.fields import SampleRow, final_of, identity_in, is_response, whole_number
from tts.experiments.imported.json_rows import read_json_rows
from tts.experiments.imported.source import Source, SourceFacts
from tts.randomness import hash64
from tts.tasks.extraction import last_marker

_REQUIRED: Final = ("doc_id", "target", "filtered_resps")
_NAMES: Final = (
    re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT[^_]*\.jsonl"),
    re.compile(r"\d{8}_\d{6}_samples_(.+)\.jsonl"),
)
_LONGEST: Final = 100_000  # characters of a target that is read as a list
_INVALID: Final = "[invalid]"  # what a filter writes where it finds no answer
OURS: Final = "tts"  # the filter of files that tts writes, whose answers count as they are
_ABOUT: Final = ("doc", "resps", "arguments", "input", "filter", "metrics", "doc_hash", "prompt_hash", "target_hash")
_BOOKKEEPING: Final = frozenset((*_REQUIRED, *_ABOUT, "token_counts", "input_media"))
# Metrics that are verdicts, the best-known first: `exact_match` of Minerva reads one form of answers alone.
_VERDICTS: Final = (
    "math_verify",
    "exact_match",
    "acc",
    "em",
    "pass@1",
    "prompt_level_strict_acc",
    "prompt_level_loose_acc",
)
_LIKE_VERDICTS: Final = re.compile(r"(?:^|_)(?:acc|accuracy|em|match|correct|verify)(?:$|_)", re.IGNORECASE)


def is_lm_eval(row: Mapping[str, Any]) -> bool:
    """Return whether a row has the form of these samples."""
    return {"doc_id", "filtered_resps"} <= row.keys()


def read_lm_eval(file: Path, source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
    """Yield the samples of a file.

    Raises:
        ConfigError: a line has another form or no sampled texts, or no line has the filter or the metric.
    """
    reader = _LogReader(file, source, facts)
    for place, row in read_json_rows(file):
        where = f"{file.name}, {place}"
        if isinstance(row, BadRow):
            raise ConfigError(f"{where}: {row}")
        try:
            yield from reader.read(row, where)
        except BadRow as failure:
            raise ConfigError(f"{where}: {failure}") from None
    reader.check()


class _LogReader:
    """Reads the lines of one filter in a file, with the verdicts of one metric."""

    def __init__(self, file: Path, source: Source, facts: SourceFacts) -> None:
        name_match = next((match for pattern in _NAMES if (match := pattern.fullmatch(file.name))), None)
        self._file, self._facts = file.name, facts
        self._prefix = f"{name_match[1]}/" if name_match else ""
        self._filter, self._metric = source.filter, source.metric
        # the values of the source's metric by filter, one for each document; NaN: no value
        self._filters = dict[str, list[float]]()
        self._metrics = dict[str, None]()
        self._copies = dict[
            tuple[str, int], int
        ]()  # copies of a document with equal responses, in files that name no filter
        self._firsts = dict[str, int]()  # a hash of the first responses of each document

    def read(self, row: Mapping[str, Any], where: str) -> Iterator[SampleRow]:
        """Yield the samples of a line.

        In files that name no filter, samples of further copies are also yielded, marked as copies.

        Raises:
            ConfigError, BadRow: the line has another form, or no sampled texts.
        """
        if missing := [name for name in _REQUIRED if name not in row]:
            raise BadRow(f"it has no {', '.join(missing)}, so that it is no sample of lm-evaluation-harness")
        filter_name = str(row["filter"]) if "filter" in row else self._number_of_copy(row)
        self._filters.setdefault(filter_name, []).append(self._value(row))
        self._filter = filter_name if self._filter is None else self._filter
        if filter_name == self._filter:
            self._facts.seen.update(dict.fromkeys(row))
            yield from self._samples(row, where, f"{self._file}, {filter_name}" if filter_name != OURS else OURS)
        elif "filter" not in row:
            for sample in self._samples(row, where, f"{self._file}, {filter_name}"):
                yield dataclasses.replace(sample, copy_in=self._file)

    def check(self) -> None:
        """Refuse a filter or metric that the file lacks, and note which of several filters was read.

        Raises:
            ConfigError: no line of the file has the filter, or the metric.
        """
        if self._filter is not None and self._filter not in self._filters:
            raise unknown_name(f"filter of {self._file}", self._filter, self._filters)
        if self._metric is not None and self._filters and self._metric not in self._metrics:
            raise unknown_name(f"metric of {self._file}", self._metric, self._metrics)
        if len(self._filters) > 1 and self._filter is not None and self._file not in self._facts.with_repeats:
            shares = ", ".join(
                f"{name} with {_percent(values)} right by the source" for name, values in self._filters.items()
            )
            count = len(self._filters[self._filter])
            self._facts.notes[f"documents of the filter {self._filter!r}, of {shares} (--filter)"] += count

    def _value(self, row: Mapping[str, Any]) -> float:
        """Return the value of the named metric, else of the best-known metric; NaN: there is none."""
        names = [*_VERDICTS, *(name for name in row if name not in _BOOKKEEPING and _LIKE_VERDICTS.search(name))]
        value = row.get(next((name for name in names if name in row), "") if self._metric is None else self._metric)
        return float(value) if isinstance(value, bool | int | float) else math.nan

    def _number_of_copy(self, row: Mapping[str, Any]) -> str:
        """Return how often the document of a line has come so far, from "1": the number of the line's filter.

        Where a document has different responses, its lines are runs, and no line is a copy.
        """
        name, responses = str(row["doc_id"]), hash64(*_texts(row))
        if self._firsts.setdefault(name, responses) != responses:
            self._facts.with_repeats.add(self._file)
        number = self._copies[name, responses] = self._copies.get((name, responses), 0) + 1
        return str(number)

    def _samples(self, row: Mapping[str, Any], where: str, extractor: str) -> Iterator[SampleRow]:
        facts = self._facts
        name = identity_in(row, "doc_id", where)
        texts = _texts(row)
        answers = _answers(row["filtered_resps"], len(texts))
        verdicts = self._verdicts(row, len(texts))
        reference, tokens = _reference(row["target"]), _tokens(row.get("token_counts"), len(texts))
        if reference is None:
            facts.notes["documents have no single target, so that the verdicts of the source count"] += 1
        prompt = _prompt(row.get("arguments")) or row.get("input")
        field_of = {
            "problem": "doc_id",
            "prompt": "arguments" if "arguments" in row else "input",
            "text": "resps",
            "answer": "filtered_resps",
        }
        for meaning, field in {**field_of, "reference": "target"}.items():
            if field in row:
                facts.add_meaning(meaning, field)
        if "resps" not in row:
            facts.add_meaning("text", "filtered_resps")
        if extractor == OURS or any(
            answer is not None and not is_response(answer, text) for answer, text in zip(answers, texts, strict=True)
        ):
            facts.extracting.add(extractor)
        for i, text in enumerate(texts):
            yield SampleRow(
                place=where if i == 0 else f"{where}, repeat {i}",
                problem=f"{self._prefix}{name}",
                prompt=prompt if isinstance(prompt, str) else None,
                text=text,
                answer=answers[i],
                extractor=extractor,
                reference=reference,
                correct=verdicts[i],
                tokens=tokens[i],
            )

    def _verdicts(self, row: Mapping[str, Any], repeats: int) -> Sequence[bool | None]:
        """Return the verdict on each repeat by the named metric, else by the best-known metric.

        Differing verdicts of other metrics are noted.

        Raises:
            BadRow: the named metric is no verdict.
        """
        own_verdicts = row.get("correct")  # the verdict on each repeat, in files that tts wrote
        if (
            isinstance(own_verdicts, list)
            and len(cast("list[Any]", own_verdicts)) == repeats
            and all(isinstance(one, bool) for one in own_verdicts)
        ):
            return list(own_verdicts)
        metric_names = row.get("metrics")
        names = [
            name
            for name in (metric_names if isinstance(metric_names, list) and metric_names else row)
            if isinstance(name, str) and name in row
        ]
        metrics = {name: row[name] for name in names if name not in _BOOKKEEPING}
        self._metrics.update(dict.fromkeys(metrics))
        verdicts = {
            name: verdicts_of_metric
            for name, value in metrics.items()
            if (verdicts_of_metric := _read_verdicts(value, repeats)) is not None
        }
        verdict_names = [
            *(name for name in _VERDICTS if name in verdicts),
            *(name for name in verdicts if _LIKE_VERDICTS.search(name)),
        ]
        if self._metric is not None and self._metric in metrics and self._metric not in verdicts and repeats == 1:
            raise BadRow(
                f"its {self._metric} is {quote(metrics[self._metric])}, but a metric that gives verdicts must be 0 or 1"
            )
        counting = self._metric or next(iter(verdict_names), None)
        if counting is None or counting not in verdicts:
            return [None] * repeats
        self._facts.add_meaning("correct", counting)
        for other in dict.fromkeys(verdict_names):
            if differing := sum(one != two for one, two in zip(verdicts[counting], verdicts[other], strict=True)):
                self._facts.notes[
                    f"verdicts by {other!r} differ from those by {counting!r}, which count (--metric)"
                ] += differing
        return verdicts[counting]


def _percent(values: Sequence[float]) -> str:
    """Return the mean of the known values, as a share."""
    known_values = [value for value in values if not math.isnan(value)]
    return f"{100 * sum(known_values) / len(known_values):.1f} %" if known_values else "unknown shares"


def _texts(row: Mapping[str, Any]) -> list[str]:
    """Return the text of each repeat, from one request, or from requests of one repeat each.

    Raises:
        BadRow: there are several requests, or no texts: the task compares log-likelihoods of given choices.
    """
    responses = row.get("resps", row["filtered_resps"])
    repeats: Any = [responses] if isinstance(responses, str) else responses
    if isinstance(repeats, list) and len(cast("list[Any]", repeats)) == 1 and isinstance(repeats[0], list):
        repeats = repeats[0]
    elif (
        isinstance(repeats, list)
        and "doc" not in row
        and all(isinstance(one, list) and len(cast("list[Any]", one)) == 1 for one in repeats)
    ):
        repeats = [one[0] for one in repeats]  # lmms-eval has a request for each repeat
    elif isinstance(repeats, list) and "doc" in row:
        repeats = None
    if (
        not isinstance(repeats, list)
        or not repeats
        or not all(isinstance(text, str) for text in cast("list[Any]", repeats))
    ):
        raise BadRow(
            f"its resps are {quote(responses)}, but must be the texts of one request; "
            "log-likelihoods of given choices are no samples, only tasks that generate text are imported"
        )
    return cast("list[str]", repeats)


def _answers(filtered: Any, repeats: int) -> list[str | None]:
    """Return the filter's answer of each repeat; None: the filter joins repeats, or does not extract."""
    values: Any = [filtered] if isinstance(filtered, str) else filtered
    while isinstance(values, list) and len(cast("list[Any]", values)) == 1 and isinstance(values[0], list):
        values = values[0]
    if not isinstance(values, list) or len(cast("list[Any]", values)) != repeats:
        return [None] * repeats
    if not all(value is None or isinstance(value, str | int | float) for value in values):
        return [None] * repeats
    return ["" if _is_none(value) else str(value) for value in values]


def _is_none(value: str | float | None) -> bool:
    return value is None or value == _INVALID or (isinstance(value, float) and math.isnan(value))


def _read_verdicts(value: Any, repeats: int) -> list[bool] | None:
    """Return the verdicts of a metric, one for each repeat; None: the metric gives no verdicts."""
    values: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value] if repeats == 1 else []
    if len(values) != repeats or not all(isinstance(one, bool | int | float) and one in (0, 1) for one in values):
        return None
    return [bool(one) for one in values]


def _reference(target: Any) -> str | None:
    """Return the final answer of a worked solution, or the target itself; None: there are several answers.

    The harness writes every target as text, and a list of texts in Python's form.
    """
    target = _list(target) if isinstance(target, str) and target[:1] in ("[", "(") else target
    target = target[0] if isinstance(target, list) and len(cast("list[Any]", target)) == 1 else target
    if not isinstance(target, str | int | float) or target == "None":
        return None
    target = final_of(join_surrogates(str(target)))
    end = last_marker(target)
    return (target if end is None else target[end:]).strip() or None


def _list(target: str) -> Any:
    """Return the texts of a list in Python's form, and any other target unchanged."""
    try:
        value = ast.literal_eval(target) if len(target) < _LONGEST else target
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return target
    texts = list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else []
    return texts if texts and all(isinstance(one, str | tuple) for one in texts) else target


def _tokens(counts: Any, repeats: int) -> list[int | None]:
    """Return the generated tokens of each repeat, as lmms-eval writes them; None: not given."""
    entries = (
        cast("list[Any]", counts)
        if isinstance(counts, list) and len(cast("list[Any]", counts)) == repeats
        else [None] * repeats
    )
    found = [entry.get("output_tokens") if isinstance(entry, Mapping) else None for entry in entries]
    return [None if value == -1 else whole_number(value, "output_tokens") for value in found]


def _prompt(arguments: Any) -> str | None:
    """Return the prompt of the first request, with chat messages as JSON."""
    request: Any = None
    if isinstance(arguments, Mapping) and arguments:
        request = next(iter(cast("Mapping[str, Any]", arguments).values()))
        request = request.get("arg_0") if isinstance(request, Mapping) else None
    elif isinstance(arguments, list) and arguments and isinstance(arguments[0], list) and arguments[0]:
        request = arguments[0][0]
    return request if request is None or isinstance(request, str) else json.dumps(request)
