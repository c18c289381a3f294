"""Samples of lm-evaluation-harness: `samples_TASK_DATE.jsonl`, as `--log_samples` writes it.

A line is one document with one filter. `resps` has a list for each request, with a text for each repeat; `filtered_resps` has what the
filter made of them: one answer, or one for each repeat. The reader takes the lines of one filter, and of its answers those of single
repeats. Where a filter joins repeats, such as by a vote, the task extracts the answers from the texts.

Source: `evaluator.py` and `loggers/evaluation_tracker.py` of lm-evaluation-harness 0.4, as it writes the files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from tts.characters import in_whole_characters
from tts.errors import ConfigError, shown, unknown_name
from tts.experiments.datasets.files import read_json_lines
from tts.experiments.datasets.rows import BadRow
from tts.experiments.imported.fields import SampleRow, identity_in
from tts.experiments.imported.source import Source, SourceFacts
from tts.tasks.extraction import last_marker

_REQUIRED: Final = ("doc_id", "doc", "target", "resps", "filtered_resps")
_NAME: Final = re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT[^_]*\.jsonl")
_INVALID: Final = "[invalid]"  # what a filter writes where it finds no answer
_NO_FILTER: Final = "none"


def is_lm_eval(row: Mapping[str, Any]) -> bool:
    """Whether a row is of this form."""
    return {"doc_id", "resps", "filtered_resps"} <= row.keys()


def read_lm_eval(file: Path, source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
    """Yield the samples of a file.

    Raises:
        ConfigError: a line is of another form, has no sampled texts, or no line is of the filter.
    """
    named = _NAME.fullmatch(file.name)
    prefix = f"{named[1]}/" if named else ""
    chosen, seen = source.filter, dict[str, int]()
    for place, row in read_json_lines(file):
        where = f"{file.name}, {place}"
        if isinstance(row, BadRow):
            raise ConfigError(f"{where}: {row}")
        if lacking := [name for name in _REQUIRED if name not in row]:
            raise ConfigError(f"{where}: it has no {', '.join(lacking)}, so that it is no sample of lm-evaluation-harness")
        own = str(row.get("filter", _NO_FILTER))
        seen[own] = seen.get(own, 0) + 1
        chosen = own if chosen is None else chosen
        if own == chosen:
            yield from _samples(row, prefix, where, facts)
    if chosen is not None and chosen not in seen:
        raise unknown_name(f"filter of {file.name}", chosen, seen)
    if len(seen) > 1:
        facts.notes[f"documents of the filter {chosen!r}, of {', '.join(seen)}"] += seen[chosen or ""]


def _samples(row: Mapping[str, Any], prefix: str, where: str, facts: SourceFacts) -> Iterator[SampleRow]:
    texts, answers, name = _texts(row["resps"], where), row["filtered_resps"], identity_in(row, "doc_id", where)
    answers = _answers(answers, len(texts))
    verdicts = _verdicts(row, len(texts))
    reference = _reference(row["target"])
    if reference is None:
        facts.notes["documents have no single target, so that the verdicts of the source count"] += 1
    for i, text in enumerate(texts):
        yield SampleRow(
            place=where if i == 0 else f"{where}, repeat {i}",
            problem=f"{prefix}{name}",
            prompt=_prompt(row.get("arguments")),
            text=text,
            answer=answers[i],
            reference=reference,
            correct=verdicts[i],
        )


def _texts(resps: Any, where: str) -> list[str]:
    """Return the text of each repeat.

    Raises:
        ConfigError: there are several requests, or no texts: the task compares log-likelihoods of given choices.
    """
    repeats = resps[0] if isinstance(resps, list) and len(cast("list[Any]", resps)) == 1 else None
    if not isinstance(repeats, list) or not repeats or not all(isinstance(text, str) for text in cast("list[Any]", repeats)):
        raise ConfigError(
            f"{where}: its resps are {shown(resps)}, but must be the texts of one request",
            hint="log-likelihoods of given choices are no samples; only tasks that generate text are imported",
        )
    return cast("list[str]", repeats)


def _answers(filtered: Any, repeats: int) -> list[str | None]:
    """Return the filter's answer of each repeat; None: the filter joins repeats, or leaves them as they are."""
    values: Any = filtered
    while isinstance(values, list) and len(cast("list[Any]", values)) == 1 and isinstance(values[0], list):
        values = values[0]
    if not isinstance(values, list) or len(cast("list[Any]", values)) != repeats:
        return [None] * repeats
    if not all(value is None or isinstance(value, str | int | float) for value in values):
        return [None] * repeats
    return ["" if _is_none(value) else str(value) for value in values]


def _is_none(value: str | float | None) -> bool:
    return value is None or value == _INVALID or (isinstance(value, float) and math.isnan(value))


def _verdicts(row: Mapping[str, Any], repeats: int) -> list[bool | None]:
    """Return the verdict on each repeat by the first metric that is one: of a single repeat, or a list of them."""
    told = row.get("correct")  # of each repeat, in files that tts wrote
    if isinstance(told, list) and len(cast("list[Any]", told)) == repeats and all(isinstance(one, bool) for one in told):
        return list(told)
    named = row.get("metrics")
    for metric in named if isinstance(named, list) and named else [name for name in ("exact_match", "acc", "math_verify") if name in row]:
        value = row.get(metric)
        values: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value] if repeats == 1 else []
        if len(values) == repeats and all(isinstance(one, bool | int | float) and one in (0, 1) for one in values):
            return [bool(one) for one in values]
    return [None] * repeats


def _reference(target: Any) -> str | None:
    """Return the reference answer: the text after the last answer marker of the target, else the target; None: there is no single one."""
    target = target[0] if isinstance(target, list) and len(cast("list[Any]", target)) == 1 else target
    if not isinstance(target, str | int | float):
        return None
    target = in_whole_characters(str(target))
    end = last_marker(target)
    return (target if end is None else target[end:]).strip() or None


def _prompt(arguments: Any) -> str | None:
    """Return the prompt of the first request; chat messages as JSON."""
    if isinstance(arguments, Mapping) and arguments:
        first = next(iter(cast("Mapping[str, Any]", arguments).values()))
        prompt = first.get("arg_0") if isinstance(first, Mapping) else None
        return prompt if prompt is None or isinstance(prompt, str) else json.dumps(prompt)
    return None
