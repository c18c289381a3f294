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

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from tts._common.characters import join_surrogates
from tts.errors import quote, unknown_name
from tts.experiments.datasets.rows import BadRow
from tts.randomness import hash64
from tts.tasks.by_references import final_of
from tts.tasks.extraction import last_marker
from tts_addons.logs.fields import SampleRow, identity_in, is_response, listing, read_rows, whole_number
from tts_addons.logs.json_rows import read_json_rows
from tts_addons.logs.source import Source, SourceFacts

_REQUIRED: Final = ("doc_id", "target", "filtered_resps")
_NAME: Final = re.compile(r"samples_(.+)_\d{4}-\d\d-\d\dT[^_]*\.jsonl|\d{8}_\d{6}_samples_(.+)\.jsonl")
_INVALID: Final = "[invalid]"  # what a filter writes where it finds no answer
OURS: Final = "tts"  # the filter of files that tts writes, whose answers count as they are
_ABOUT: Final = ("doc", "resps", "arguments", "input", "filter", "metrics", "doc_hash", "prompt_hash", "target_hash")
_BOOKKEEPING: Final = frozenset((*_REQUIRED, *_ABOUT, "token_counts", "input_media"))
# Metrics that are verdicts, the best-known first: `exact_match` of Minerva reads one form of answers alone.
_VERDICTS: Final = (
    "math_verify", "exact_match", "acc", "em", "pass@1", "pass_at_1", "prompt_level_strict_acc",
    "prompt_level_loose_acc",
)  # fmt: skip
_LIKE_VERDICTS: Final = re.compile(
    r"(?:^|_)(?:acc|accuracy|em|match|correct|verify|passed|pass(?:@|_at_|_)1)(?:$|[_,])", re.IGNORECASE
)


def is_lm_eval(row: Mapping[str, Any]) -> bool:
    """Return whether a row has the form of these samples."""
    return {"doc_id", "filtered_resps"} <= row.keys()


def read_lm_eval(file: Path, source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
    """Yield the samples of a file.

    Raises:
        ConfigError: a line has another form or no sampled texts, or no line has the filter or the metric.
    """
    reader = _LogReader(file, source, facts)
    yield from read_rows(file, read_json_rows(file), reader.read)
    reader.check()


class _LogReader:
    """Reads the lines of one filter in a file, with the verdicts of one metric.

    Args:
        file: The file.
        source: The options with the filter and the metric; without a filter, the filter of the first line is read.
        facts: The collector of facts that the file states beside its samples.
    """

    def __init__(self, file: Path, source: Source, facts: SourceFacts) -> None:
        self._file_name = file.name
        self._facts = facts
        name_match = _NAME.fullmatch(file.name)
        self._problem_prefix = f"{name_match[1] or name_match[2]}/" if name_match else ""
        self._filter = source.filter
        self._metric = source.metric
        self._values_by_filter = dict[str, list[float]]()  # the metric's value of each document; NaN: no value
        self._seen_metrics = dict[str, None]()
        # for files that name no filter
        self._copy_counts = dict[tuple[str, int], int]()  # lines by document and hash of its responses
        self._first_responses = dict[str, int]()  # hash of the responses on a document's first line

    def read(self, row: Mapping[str, Any], place: str) -> Iterator[SampleRow]:
        """Yield the samples of a line, if the line is of the filter that is read.

        A file that names no filter has a copy of each document for each filter. The number of the copy, from "1", is
        then the name of the filter. Samples of the other copies are also yielded, and are marked as copies.

        Raises:
            BadRow: the line has another form, or no sampled texts.
        """
        missing_names = [name for name in _REQUIRED if name not in row]
        if missing_names:
            raise BadRow(f"it has no {', '.join(missing_names)}, so that it is no sample of lm-evaluation-harness")
        names_filter = "filter" in row
        filter_name = str(row["filter"]) if names_filter else self._copy_number(row)
        self._values_by_filter.setdefault(filter_name, []).append(self._metric_value(row))
        if self._filter is None:
            self._filter = filter_name
        extractor = OURS if filter_name == OURS else f"{self._file_name}, {filter_name}"
        if filter_name == self._filter:
            self._facts.seen.update(dict.fromkeys(row))
            yield from self._samples(row, place, extractor)
        elif not names_filter:
            for sample in self._samples(row, place, extractor):
                yield dataclasses.replace(sample, copy_in=self._file_name)

    def check(self) -> None:
        """Refuse a filter or metric that the file lacks, and note which of several filters was read.

        Raises:
            ConfigError: no line of the file has the filter, or the metric.
        """
        if self._filter is not None and self._filter not in self._values_by_filter:
            raise unknown_name(f"filter of {self._file_name}", self._filter, self._values_by_filter)
        if self._metric is not None and self._values_by_filter and self._metric not in self._seen_metrics:
            raise unknown_name(f"metric of {self._file_name}", self._metric, self._seen_metrics)
        has_copies = self._file_name not in self._facts.with_repeats
        if len(self._values_by_filter) > 1 and self._filter is not None and has_copies:
            shares = ", ".join(
                f"{name} with {_percent(values)} right by the source" for name, values in self._values_by_filter.items()
            )
            num_documents = len(self._values_by_filter[self._filter])
            self._facts.notes[f"documents of the filter {self._filter!r}, of {shares} (--filter)"] += num_documents

    def _metric_value(self, row: Mapping[str, Any]) -> float:
        """Return the value of the named metric, else of the best-known metric; NaN: the row has no such number."""
        names = _verdict_names([name for name in row if name not in _BOOKKEEPING])
        names = names if self._metric is None else [self._metric]
        value = next((row[name] for name in names if name in row), None)
        return float(value) if isinstance(value, bool | int | float) else math.nan

    def _copy_number(self, row: Mapping[str, Any]) -> str:
        """Return how many lines so far have the document and the responses of a line, this line included.

        If the lines of a document have different responses, the lines are repeated runs. The facts then note that the
        file has no copies.
        """
        document, responses = str(row["doc_id"]), hash64(*_texts(row))
        if self._first_responses.setdefault(document, responses) != responses:
            self._facts.with_repeats.add(self._file_name)
        copy_number = self._copy_counts.get((document, responses), 0) + 1
        self._copy_counts[document, responses] = copy_number
        return str(copy_number)

    def _samples(self, row: Mapping[str, Any], place: str, extractor: str) -> Iterator[SampleRow]:
        """Yield a sample for each repeat of a line.

        Args:
            row: The line.
            place: The file and the line, for messages.
            extractor: The source of the answers, as in `SourceFacts.extracting`.
        """
        facts = self._facts
        document = identity_in(row, "doc_id")
        texts = _texts(row)
        answers = _answers(row["filtered_resps"], len(texts))
        verdicts = self._verdicts(row, len(texts))
        reference = _reference(row["target"])
        tokens = _tokens(row.get("token_counts"), len(texts))
        if reference is None:
            facts.notes["documents have no single target, so that the verdicts of the source count"] += 1
        prompt = _prompt(row.get("arguments")) or row.get("input")
        text_field = "resps" if "resps" in row else "filtered_resps"
        facts.add_meanings(problem="doc_id", text=text_field, answer="filtered_resps", reference="target")
        for prompt_field in [name for name in ("arguments", "input") if name in row][:1]:
            facts.add_meaning("prompt", prompt_field)
        is_extracted = [
            answer is not None and not is_response(answer, text) for answer, text in zip(answers, texts, strict=True)
        ]
        if extractor == OURS or any(is_extracted):
            facts.extracting.add(extractor)
        for i, text in enumerate(texts):
            yield SampleRow(
                place=place if i == 0 else f"{place}, repeat {i}",
                problem=f"{self._problem_prefix}{document}",
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
        own_verdicts = _read_verdicts(row.get("correct"), repeats) if row.get("filter") == OURS else None
        if own_verdicts is not None:
            return own_verdicts
        names = _as_list(row.get("metrics")) or list(row)
        metrics = {
            name: row[name] for name in names if isinstance(name, str) and name in row and name not in _BOOKKEEPING
        }
        self._seen_metrics.update(dict.fromkeys(metrics))
        read_verdicts = {name: _read_verdicts(value, repeats) for name, value in metrics.items()}
        verdicts_by_metric = {name: verdicts for name, verdicts in read_verdicts.items() if verdicts is not None}
        metric = self._metric
        if metric is not None and metric in metrics and metric not in verdicts_by_metric and repeats == 1:
            raise BadRow(f"its {metric} is {quote(metrics[metric])}, but a metric that gives verdicts must be 0 or 1")
        verdict_names = _verdict_names(list(verdicts_by_metric))
        counting_metric = metric or (verdict_names[0] if verdict_names else None)
        if counting_metric is None or counting_metric not in verdicts_by_metric:
            return [None] * repeats
        self._facts.add_meaning("correct", counting_metric)
        counting_verdicts = verdicts_by_metric[counting_metric]
        for name in verdict_names:
            verdicts = verdicts_by_metric[name]
            num_differing = sum(
                verdict != counted for verdict, counted in zip(verdicts, counting_verdicts, strict=True)
            )
            if num_differing:
                note = f"verdicts by {name!r} differ from those by {counting_metric!r}, which count (--metric)"
                self._facts.notes[note] += num_differing
        return counting_verdicts


def _verdict_names(names: Sequence[str]) -> list[str]:
    """Return those names of metrics that are verdicts, the best-known first."""
    known_names = [name for name in _VERDICTS if name in names]
    return known_names + [name for name in names if name not in known_names and _LIKE_VERDICTS.search(name)]


def _as_list(value: Any) -> list[Any] | None:
    """Return a value that is a list; None: the value is no list."""
    return cast("list[Any]", value) if isinstance(value, list) else None


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
    requests = [responses] if isinstance(responses, str) else _as_list(responses) or []
    is_lmms_eval = "doc" not in row
    texts: list[Any] = []
    if len(requests) == 1 and isinstance(requests[0], list):
        texts = requests[0]
    elif is_lmms_eval and all(len(_as_list(request) or []) == 1 for request in requests):
        texts = [request[0] for request in requests]  # lmms-eval has a request for each repeat
    elif is_lmms_eval:
        texts = requests
    if not texts or not all(isinstance(text, str) for text in texts):
        raise BadRow(
            f"its resps are {quote(responses)}, but must be the texts of one request; "
            "log-likelihoods of given choices are no samples, only tasks that generate text are imported"
        )
    return cast("list[str]", texts)


def _answers(filtered: Any, repeats: int) -> list[str | None]:
    """Return the filter's answer of each repeat; None: the filter joins repeats, or does not extract."""
    values = [filtered] if isinstance(filtered, str) else _as_list(filtered)
    while values is not None and len(values) == 1 and isinstance(values[0], list):
        values = cast("list[Any]", values[0])
    if values is None or len(values) != repeats:
        return [None] * repeats
    if not all(value is None or isinstance(value, str | int | float) for value in values):
        return [None] * repeats
    return ["" if _is_none(value) else str(value) for value in values]


def _is_none(value: str | float | None) -> bool:
    return value is None or value == _INVALID or (isinstance(value, float) and math.isnan(value))


def _read_verdicts(value: Any, repeats: int) -> list[bool] | None:
    """Return the verdicts of a metric, one for each repeat; None: the metric gives no verdicts."""
    values = _as_list(value)
    if values is None and repeats == 1:
        values = [value]
    if values is None or len(values) != repeats:
        return None
    if not all(isinstance(verdict, bool | int | float) and verdict in (0, 1) for verdict in values):
        return None
    return [bool(verdict) for verdict in values]


def _reference(target: Any) -> str | None:
    """Return the final answer of a worked solution, or the target itself; None: there are several answers.

    The harness writes every target as text, and a list of texts in Python's form.
    """
    target = listing(target)
    targets = _as_list(target)
    if targets is not None and len(targets) == 1:
        target = targets[0]
    if not isinstance(target, str | int | float) or target == "None":
        return None
    answer = final_of(join_surrogates(str(target)))
    marker_end = last_marker(answer)  # the end of words such as "the answer is"
    if marker_end is not None:
        answer = answer[marker_end:]
    return answer.strip() or None


def _tokens(counts: Any, repeats: int) -> list[int | None]:
    """Return the generated tokens of each repeat, as lmms-eval writes them; None: not given."""
    entries = _as_list(counts)
    if entries is None or len(entries) != repeats:
        return [None] * repeats
    output_tokens = [entry.get("output_tokens") if isinstance(entry, Mapping) else None for entry in entries]
    return [None if value == -1 else whole_number(value, "output_tokens") for value in output_tokens]


def _prompt(arguments: Any) -> str | None:
    """Return the prompt of the first request, with chat messages as JSON."""
    prompt: Any = None
    if isinstance(arguments, Mapping) and arguments:
        first_request, *_ = cast("Mapping[str, Any]", arguments).values()
        if isinstance(first_request, Mapping):
            prompt = first_request.get("arg_0")
    elif isinstance(arguments, list) and arguments and isinstance(arguments[0], list) and arguments[0]:
        prompt = arguments[0][0]
    return prompt if prompt is None or isinstance(prompt, str) else json.dumps(prompt)
