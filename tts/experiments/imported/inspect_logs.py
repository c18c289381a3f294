"""Logs of Inspect: `.json` and `.eval` files.

Samples are read one by one. Epochs are samples of one problem. One scorer gives the verdicts. The scorer's answer is
used, unless it is the whole completion and the log is not from tts: the task then extracts the answer. Values of the
other scorers become scores by their names: C is 1, P is 0.5, I and N are 0. Samples that failed are left out, and
counted.

Source: the log of version 2 as inspect_ai 0.3 writes it. An `.eval` file is a zip archive, compressed with Zstandard or
deflate. A sample is one member, `samples/ID_epoch_N.json`, or a folder of that name with the member `sample.json` and
its long texts in `attachments/` (`log/_recorders/chunked`), which a text names by `attachment://INDEX`. One archive may
have samples of both kinds.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from tts.characters import join_surrogates
from tts.errors import ConfigError, missing_extra, quote, unknown_name
from tts.experiments.datasets.rows import BadRow
from tts.experiments.datasets.unpacking import check_row, check_whole, read_bounded
from tts.experiments.imported.fields import SampleRow, identity_in, whole_number
from tts.experiments.imported.json_stream import JsonStream
from tts.experiments.imported.source import Source, SourceFacts

VERSION: Final = 2
OURS: Final = "tts"  # the scorer of logs that tts writes, whose answer may be the whole completion
_ZSTANDARD: Final = 93  # the compression method of a zip member
_LOCAL_HEADER: Final = 30  # bytes before the name of a zip member
_GRADES: Final = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_CUT: Final = ("max_tokens", "model_length")
_FIRST: Final = ("version", "status", "eval")  # possible names of a JSON log's first member
_FIRST_NAME: Final = re.compile(rb'\s*\{\s*"(\w+)"')
_BEGINNING: Final = 4096  # bytes that contain the first name
_WHOLE: Final = re.compile(r"samples/.+_epoch_\d+\.json", re.DOTALL)
_CHUNKED: Final = re.compile(r"(samples/.+_epoch_\d+)/sample\.json", re.DOTALL)
_CHUNK: Final = re.compile(r"(.+)/attachments/(\d{1,18})\.json", re.DOTALL)
_ATTACHMENT: Final = "attachment://"
_DIGITS: Final = 18  # bound of an index's digits
_MEANINGS: Final = {
    "problem": "id",
    "sample": "epoch",
    "prompt": "input",
    "text": "output",
    "reference": "target",
    "correct": "scores",
}


@dataclass(slots=True)
class _Header:
    """The facts that a log states beside its samples.

    Attributes:
        file: The name of the file.
        version: The version of the log; None: not stated.
        prefix: The prefix of the ids of problems.
        completed: The number of samples that the log's results cover.
    """

    file: str
    version: Any = None
    prefix: str = ""
    completed: int = 0

    def read(self, name: str, value: Any, facts: SourceFacts) -> None:
        """Read the facts of a member.

        Raises:
            ConfigError: the log has another version.
        """
        if name == "version" and value != VERSION:
            raise _version_error(self.file, f"its version is {quote(value)}")
        if name == "version":
            self.version = value
        elif name == "status" and value != "success":
            facts.notes[f"logs have the status {quote(value)}, so that samples may be missing"] += 1
        elif name == "eval" and isinstance(value, Mapping):
            told = cast("Mapping[str, Any]", value)
            facts.models[str(told.get("model") or "recorded")] = None
            self.prefix = f"{told['task']}/" if told.get("task") else ""
        elif name == "results" and isinstance(value, Mapping):
            told = cast("Mapping[str, Any]", value).get("completed_samples")
            self.completed = told if isinstance(told, int) else 0

    def check(self, found: int) -> None:
        """Refuse a log that cannot be complete with so many samples.

        Raises:
            ConfigError: the log has no samples, fewer samples than its results cover, or no version.
        """
        if not found:
            raise ConfigError(f"{self.file}: it has no samples: it is no log of Inspect, or its evaluation kept none")
        if self.version is None:
            raise _version_error(self.file, "it states no version")
        if found < self.completed:
            raise ConfigError(
                f"{self.file}: it has {found:,} samples, but its results are of {self.completed:,}: it is cut or "
                "damaged"
            )


def is_inspect(file: Path) -> bool:
    """Return whether a JSON file begins as a log of Inspect does."""
    with file.open("rb") as stream:
        found = _FIRST_NAME.match(stream.read(_BEGINNING).removeprefix(b"\xef\xbb\xbf"))
    return found is None or found[1].decode("ascii", "replace") in _FIRST


def read_inspect(file: Path, source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
    """Yield the samples of a log.

    Raises:
        ConfigError: the file is no log, has another version, or is damaged; a sample has another form; or no sample
            has the scorer.
        MissingDependency: members of the archive are compressed with Zstandard, and pyarrow is not installed.
    """
    header, scorers, count = _Header(file.name), dict[str, None](), 0
    facts.extracting.add(OURS)  # in other logs, an answer that is the whole completion does not count
    for place, name, value in _archive(file) if zipfile.is_zipfile(file) else _document(file):
        if name != "samples":
            header.read(name, value, facts)
            continue
        where = f"{file.name}, {place}"
        count += 1
        try:
            row = _sample(value, header.prefix, where, source.scorer, scorers)
        except BadRow as bad_row:
            raise ConfigError(f"{where}: {bad_row}") from None
        except (AttributeError, KeyError, TypeError) as failure:
            raise ConfigError(f"{where}: a part of it is of another type than Inspect writes: {failure}") from failure
        if row is None:
            facts.notes["samples failed, and are left out"] += 1
        else:
            yield row
    header.check(count)
    for meaning, name in _MEANINGS.items():
        scorer_name = source.scorer or next(iter(scorers), None)
        facts.add_meaning(meaning, f"scores.{scorer_name}" if name == "scores" and scorer_name is not None else name)
    if source.scorer is not None and source.scorer not in scorers:
        raise unknown_name(f"scorer of {file.name}", source.scorer, scorers)


def _version_error(file: str, told: str) -> ConfigError:
    return ConfigError(
        f"{file}: {told}, but logs of version {VERSION} are read",
        hint="convert it with `inspect log convert`, or write it anew with inspect_ai 0.3",
    )


def _document(file: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield place, name and value of each member of a JSON log, and of each of its samples."""
    number = 0
    try:
        with file.open(encoding="utf-8") as text:
            for name, value in JsonStream(text, file.name).members("samples"):
                number += name == "samples"
                yield f"sample {number}", name, value
    except (ValueError, RecursionError) as failure:
        if isinstance(failure, ConfigError):
            raise
        raise ConfigError(f"{file.name}: it is no whole JSON object: {failure} (after sample {number})") from failure


def _archive(file: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield place, name and value of each member of an `.eval` archive's header, then of each sample."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            header = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
            if header is None:
                raise ConfigError(
                    f"{file.name}: it has neither header.json nor _journal/start.json, so that it is no log of Inspect"
                )
            facts, size = _member(file, archive, header)
            if not isinstance(facts, Mapping):
                raise ConfigError(f"{file.name}, {header}: it is no JSON object, so that it is no log of Inspect")
            yield from ((header, name, value) for name, value in facts.items())
            attachments = _chunks(names)
            for name in dict.fromkeys(name for name in names if _WHOLE.fullmatch(name) or _CHUNKED.fullmatch(name)):
                sample, more = _member(file, archive, name)
                check_whole(file, size := size + more)
                if (folder := _CHUNKED.fullmatch(name)) and isinstance(sample, dict):
                    sample["attachments"] = _Attachments(file, archive, attachments.get(folder[1], {}))
                yield name, "samples", sample
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as failure:
        if isinstance(failure, ConfigError):
            raise
        raise ConfigError(f"{file.name}: it is damaged: {failure}") from failure


def _chunks(names: list[str]) -> dict[str, dict[int, str]]:
    """Return the members with attachments, by their sample's folder and the index of their first text."""
    chunks: dict[str, dict[int, str]] = {}
    for name in names:
        if match := _CHUNK.fullmatch(name):
            chunks.setdefault(match[1], {})[int(match[2])] = name
    return chunks


class _Attachments:
    """The long texts of one sample by their index. A member is read each time a text of it is requested.

    Args:
        file: The archive's file.
        archive: The open archive.
        members: The members by the index of their first text.
    """

    def __init__(self, file: Path, archive: zipfile.ZipFile, members: Mapping[int, str]) -> None:
        self._file, self._archive, self._members = file, archive, members

    def get(self, key: str, default: str) -> str:
        """Return the text of an index.

        Raises:
            ConfigError: the log is damaged and has no such text.
        """
        number = int(key) if key.isdecimal() and len(key) < _DIGITS else -1
        start = max((first_index for first_index in self._members if first_index <= number), default=None)
        texts = [] if start is None else _member(self._file, self._archive, self._members[start])[0]
        offset = number - (start or 0)
        if not isinstance(texts, list) or offset >= len(texts) or not isinstance(texts[offset], str):
            raise ConfigError(f"{self._file.name}: it has no {default}, so that it is damaged")
        return texts[offset]


def _member(file: Path, archive: zipfile.ZipFile, name: str) -> tuple[Any, int]:
    """Return the JSON value of a member, and its bytes.

    Raises:
        ConfigError: the member is too large, or packed by a method that Inspect does not use.
    """
    info, place = archive.getinfo(name), f"{file.name}, {name}"
    check_row(place, info.file_size)
    if info.compress_type == _ZSTANDARD:
        body = _zstandard(place, archive, info)
    elif info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with archive.open(info) as stream:
            body = read_bounded(place, stream)
    else:
        raise ConfigError(
            f"{place}: it is compressed by method {info.compress_type}, but Inspect uses Zstandard or deflate"
        )
    return json.loads(body), len(body)


def _zstandard(place: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the content of a member that is compressed with Zstandard, which `zipfile` cannot read."""
    try:
        import pyarrow
    except ImportError as absent:
        raise missing_extra("pyarrow", "experiments", "reading an .eval log") from absent
    file = archive.fp
    assert file is not None, "the archive is open"
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
    raw = file.read(info.compress_size)
    try:
        with pyarrow.CompressedInputStream(pyarrow.BufferReader(raw), "zstd") as stream:
            return read_bounded(place, stream)
    except (pyarrow.ArrowException, OSError) as failure:
        raise ValueError(f"{info.filename} cannot be decompressed: {failure}") from failure


def _sample(sample: Any, prefix: str, where: str, scorer: str | None, scorers: dict[str, None]) -> SampleRow | None:
    """Return one sample; None: the sample failed before it had an output.

    Raises:
        ConfigError: the sample lacks its id, its epoch, or its output.
    """
    if not isinstance(sample, Mapping) or not {"id", "epoch", "output"} <= sample.keys():
        raise ConfigError(f"{where}: it has no id, epoch and output, so that it is no sample of Inspect")
    output: Mapping[str, Any] = sample["output"]
    choices = output.get("choices") or []
    if not choices:
        return None
    attachments: Any = sample.get("attachments") or {}
    text, scores_by_scorer = _text(output, choices, attachments), cast("Mapping[str, Any]", sample.get("scores") or {})
    scorers.update(dict.fromkeys(scores_by_scorer))
    scorer_name = scorer if scorer is not None else next(iter(scores_by_scorer), None)
    score_entry = scores_by_scorer.get(scorer_name or "", {})
    value = _value(score_entry.get("value"))
    answer = score_entry.get("answer")
    has_answer = isinstance(answer, str) and (
        scorer_name == OURS or answer.strip().casefold() != text.strip().casefold()
    )
    target = sample.get("target")
    targets = target if isinstance(target, list) else [target]
    scores = {name: _value(score.get("value")) for name, score in scores_by_scorer.items() if name != scorer_name}
    if not math.isnan(value) and value not in (0.0, 1.0):
        scores["main"] = value
    return SampleRow(
        place=where,
        problem=f"{prefix}{identity_in(sample, 'id', where)}",
        sample=identity_in(sample, "epoch", where),
        prompt=_input(sample.get("input"), attachments),
        text=text,
        answer=answer if has_answer else None,
        extractor=OURS,
        reference=join_surrogates(str(targets[0])) if len(targets) == 1 and targets[0] else None,
        correct=bool(value) if value in (0.0, 1.0) else None,
        tokens=_tokens(output, sample),
        scores={name: score for name, score in scores.items() if not math.isnan(score)},
        truncated=choices[0].get("stop_reason") in _CUT,
    )


def _text(output: Mapping[str, Any], choices: Any, attachments: Any) -> str:
    """Return the last text of the model."""
    content: Any = output.get("completion") or choices[0].get("message", {}).get("content", "")
    if isinstance(content, list):
        texts = [part.get("text", "") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        content = "\n".join(_resolve(str(text), attachments) for text in texts)
    text = content or ""
    if not isinstance(text, str):
        raise TypeError(f"the content is {quote(content)}")
    return _resolve(text, attachments)


def _resolve(text: str, attachments: Any) -> str:
    """Return the attachment that a text names, and any other text unchanged."""
    return attachments.get(text.removeprefix(_ATTACHMENT), text) if text.startswith(_ATTACHMENT) else text


def _input(given: Any, attachments: Any) -> str | None:
    """Return the prompt: a text, the content of a single chat message, or several messages as JSON."""
    if isinstance(given, list):
        messages = [
            {**message, "content": _resolve(message["content"], attachments)}
            if isinstance(message.get("content"), str)
            else message
            for message in given
        ]
        return (
            messages[0]["content"]
            if len(messages) == 1 and isinstance(messages[0].get("content"), str)
            else json.dumps(messages)
        )
    return _resolve(given, attachments) if isinstance(given, str) else (None if given is None else json.dumps(given))


def _value(value: Any) -> float:
    """Return a score as a number; NaN: the score is no finite number."""
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    return float(value) if isinstance(value, bool | int | float) and math.isfinite(value) else math.nan


def _tokens(output: Mapping[str, Any], sample: Mapping[str, Any]) -> int | None:
    """Return the generated tokens of the last call, else of all calls; None: tokens are not stated."""
    usage = output.get("usage")
    last_tokens = whole_number(usage.get("output_tokens"), "output_tokens") if isinstance(usage, Mapping) else None
    if last_tokens is not None:
        return last_tokens
    counts = [
        whole_number(model_usage.get("output_tokens"), "output_tokens")
        for model_usage in (sample.get("model_usage") or {}).values()
    ]
    return None if not counts or None in counts else sum(count or 0 for count in counts)
