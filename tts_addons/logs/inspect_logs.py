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

import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from tts._common.characters import join_surrogates
from tts.errors import ConfigError, missing_extra, quote, unknown_name
from tts.experiments.datasets.rows import BadRow
from tts.experiments.datasets.unpacking import check_row, check_whole, read_bounded
from tts_addons.logs.fields import SampleRow, identity_in, whole_number, without_costs
from tts_addons.logs.json_stream import JsonStream
from tts_addons.logs.source import Source, SourceFacts

VERSION: Final = 2
OURS: Final = "tts"  # the scorer of logs that tts writes, whose answer may be the whole completion
_ZSTANDARD: Final = 93  # the compression method of a zip member
_LOCAL_HEADER: Final = 30  # bytes before the name of a zip member
_GRADES: Final = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_CUT: Final = ("max_tokens", "model_length")
_FIRST: Final = ("version", "status", "eval")  # possible names of a JSON log's first member
_FIRST_NAME: Final = re.compile(rb'\s*\{\s*"([^"]*)"')
_BEGINNING: Final = 4096  # bytes that contain the first name
_WHOLE: Final = re.compile(r"samples/.+_epoch_\d+\.json", re.DOTALL)
_CHUNKED: Final = re.compile(r"(samples/.+_epoch_\d+)/sample\.json", re.DOTALL)
_CHUNK: Final = re.compile(r"(.+)/attachments/(\d{1,18})\.json", re.DOTALL)
_ATTACHMENT: Final = "attachment://"
_DIGITS: Final = 18  # bound of an index's digits
_MEANINGS: Final = {
    "problem": "id", "sample": "epoch", "prompt": "input", "text": "output", "reference": "target",
    "correct": "scores",
}  # fmt: skip


@dataclass(slots=True)
class _Header:
    """The facts that a log states beside its samples.

    Attributes:
        file: The name of the file.
        version: The version of the log; None: not stated.
        prefix: The prefix of the ids of problems.
        model: The model that wrote the samples.
        completed: The number of samples that the log's results cover.
    """

    file: str
    version: Any = None
    prefix: str = ""
    model: str = ""
    completed: int = 0

    def read(self, name: str, value: Any, facts: SourceFacts) -> None:
        """Read the facts of one member of a log.

        Args:
            name: The name of the member; members with unknown names are passed over.
            value: The value of the member.
            facts: The collector of the name of the model and of notes.

        Raises:
            ConfigError: the log has another version.
        """
        if name == "version":
            if value != VERSION:
                raise _version_error(self.file, f"its version is {quote(value)}")
            self.version = value
        elif name == "status" and value != "success":
            facts.notes[f"logs have the status {quote(value)}, so that samples may be missing"] += 1
        elif name == "eval" and isinstance(value, Mapping):
            evaluation = cast("Mapping[str, Any]", value)
            self.model = str(evaluation.get("model") or "recorded")
            facts.models[self.model] = None
            task = evaluation.get("task")
            self.prefix = f"{task}/" if task else ""
        elif name == "results" and isinstance(value, Mapping):
            completed = cast("Mapping[str, Any]", value).get("completed_samples")
            self.completed = completed if isinstance(completed, int) else 0

    def check(self, found: int) -> None:
        """Refuse a log that cannot be complete.

        Args:
            found: The number of samples that were read.

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
    """Return whether a JSON file may be a log of Inspect, by the name of its first member."""
    with file.open("rb") as stream:
        beginning = stream.read(_BEGINNING).removeprefix(b"\xef\xbb\xbf")
    first_name = _FIRST_NAME.match(beginning)
    return first_name is None or first_name[1].decode("ascii", "replace") in _FIRST


def read_inspect(file: Path, source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
    """Yield the samples of a log.

    Raises:
        ConfigError: the file is no log, has another version, or is damaged; a sample has another form; or no sample
            has the scorer.
        MissingDependency: members of the archive are compressed with Zstandard, and pyarrow is not installed.
    """
    header = _Header(file.name)
    scorers = dict[str, None]()
    num_samples = total_size = 0
    facts.extracting.add(OURS)  # an answer of this scorer counts, even if it is the whole completion
    members = _archive(file) if zipfile.is_zipfile(file) else _document(file)
    for member_place, name, value in members:
        if name != "samples":
            header.read(name, value, facts)
            continue
        place = f"{file.name}, {member_place}"
        num_samples += 1
        try:
            row = _sample(value, header, place, source.scorer, scorers, facts)
        except BadRow as bad_row:
            raise ConfigError(f"{place}: {bad_row}") from None
        except (AttributeError, KeyError, TypeError) as failure:
            raise ConfigError(f"{place}: a part of it is of another type than Inspect writes: {failure}") from failure
        if row is None:
            facts.notes["samples failed, and are left out"] += 1
        else:
            total_size += len(row.text or "") + len(row.prompt or "")  # many samples may name one text
            check_whole(file, total_size)
            yield row
    header.check(num_samples)
    scorer_name = source.scorer or next(iter(scorers), None)  # the first scorer of the log, if none is named
    for meaning, name in _MEANINGS.items():
        if name == "scores" and scorer_name is not None:
            facts.add_meaning(meaning, f"scores.{scorer_name}")
        else:
            facts.add_meaning(meaning, name)
    if source.scorer is not None and source.scorer not in scorers:
        raise unknown_name(f"scorer of {file.name}", source.scorer, scorers)


def _version_error(file: str, fault: str) -> ConfigError:
    return ConfigError(
        f"{file}: {fault}, but logs of version {VERSION} are read",
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
    """Yield place, name and value of each member of an `.eval` archive's header, then of each sample.

    Raises:
        ConfigError: the archive is damaged, too large, or no log of Inspect.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            header_names = [name for name in ("header.json", "_journal/start.json") if name in names]
            if not header_names:
                raise ConfigError(
                    f"{file.name}: it has neither header.json nor _journal/start.json, so that it is no log of Inspect"
                )
            header_name = header_names[0]
            header, total_size = _member(file, archive, header_name)
            if not isinstance(header, Mapping):
                raise ConfigError(f"{file.name}, {header_name}: it is no JSON object, so that it is no log of Inspect")
            for name, value in header.items():
                yield header_name, name, value
            attachments = _chunks(names)
            for sample_name in dict.fromkeys(names):
                chunked = _CHUNKED.fullmatch(sample_name)
                if chunked is None and _WHOLE.fullmatch(sample_name) is None:
                    continue
                sample, size = _member(file, archive, sample_name)
                total_size += size
                check_whole(file, total_size)
                if chunked is not None and isinstance(sample, dict):
                    sample["attachments"] = _Attachments(file, archive, attachments.get(chunked[1], {}))
                yield sample_name, "samples", sample
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as failure:
        if isinstance(failure, ConfigError):
            raise
        raise ConfigError(f"{file.name}: it is damaged: {failure}") from failure


def _chunks(names: list[str]) -> dict[str, dict[int, str]]:
    """Return the members with attachments, by their sample's folder and the index of their first text."""
    chunks: dict[str, dict[int, str]] = {}
    for name in names:
        match = _CHUNK.fullmatch(name)
        if match is not None:
            sample_folder, first_index = match[1], int(match[2])
            chunks.setdefault(sample_folder, {})[first_index] = name
    return chunks


class _Attachments:
    """The long texts of one sample by their index. The last member that was read is kept.

    Args:
        file: The archive's file.
        archive: The open archive.
        members: The members by the index of their first text.
    """

    def __init__(self, file: Path, archive: zipfile.ZipFile, members: Mapping[int, str]) -> None:
        self._file, self._archive, self._members = file, archive, members
        self._last: tuple[int | None, Any] = (None, [])  # the member that was read last, and its texts

    def get(self, key: str, default: str) -> str:
        """Return the text of an index.

        Args:
            key: The index.
            default: The words of the error for the missing text, instead of a default.

        Raises:
            ConfigError: the log is damaged and has no such text.
        """
        index = int(key) if key.isdecimal() and len(key) < _DIGITS else -1
        # a member has the texts from its first index on
        member_index = max((first_index for first_index in self._members if first_index <= index), default=None)
        if member_index is not None and member_index != self._last[0]:
            self._last = member_index, _member(self._file, self._archive, self._members[member_index])[0]
        texts = [] if member_index is None else self._last[1]
        offset = index - (member_index or 0)
        if not isinstance(texts, list) or offset >= len(texts) or not isinstance(texts[offset], str):
            raise ConfigError(f"{self._file.name}: it has no {default}, so that it is damaged")
        return texts[offset]


class _Counted:
    """The long texts of a sample, which count toward the bound of a row each time that they are named.

    Args:
        attachments: The texts by their name.
        place: The file and the sample, for messages.
    """

    def __init__(self, attachments: Any, place: str) -> None:
        self._attachments, self._place, self._size = attachments, place, 0

    def get(self, key: str, default: str) -> str:
        """Return the text of a name, or a default.

        Raises:
            ConfigError: The texts that the sample has named are too large together.
        """
        text = self._attachments.get(key, default)
        self._size += len(text)
        check_row(self._place, self._size)
        return text


def _member(file: Path, archive: zipfile.ZipFile, name: str) -> tuple[Any, int]:
    """Return the JSON value of a member, and the number of its bytes.

    Raises:
        ConfigError: the member is too large, or packed by a method that Inspect does not use.
    """
    info = archive.getinfo(name)
    place = f"{file.name}, {name}"
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
    name_length, extra_length = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    file.seek(name_length + extra_length, io.SEEK_CUR)
    raw = file.read(info.compress_size)
    try:
        with pyarrow.CompressedInputStream(pyarrow.BufferReader(raw), "zstd") as stream:
            return read_bounded(place, stream)
    except (pyarrow.ArrowException, OSError) as failure:
        raise ValueError(f"{info.filename} cannot be decompressed: {failure}") from failure


def _sample(
    sample: Any, header: _Header, place: str, scorer: str | None, scorers: dict[str, None], facts: SourceFacts
) -> SampleRow | None:
    """Return one sample; None: the sample failed before it had an output.

    Args:
        sample: The sample, as the log has it.
        header: The header of the log.
        place: The file and the sample, for messages.
        scorer: The scorer that gives the verdict; None: the sample's first scorer.
        scorers: The names of all scorers of the log, to which the sample's are added.
        facts: The collector of notes on values that are no scores.

    Raises:
        ConfigError: the sample lacks its id, its epoch, or its output.
    """
    if not isinstance(sample, Mapping) or not {"id", "epoch", "output"} <= sample.keys():
        raise ConfigError(f"{place}: it has no id, epoch and output, so that it is no sample of Inspect")
    output: Mapping[str, Any] = sample["output"]
    choices = output.get("choices") or []
    if not choices:
        return None
    attachments = _Counted(sample.get("attachments") or {}, place)
    text = _text(output, choices, attachments)
    scores_by_scorer = without_costs(cast("Mapping[str, Any]", sample.get("scores") or {}), facts)
    scorers.update(dict.fromkeys(scores_by_scorer))
    scorer_name = scorer if scorer is not None else next(iter(scores_by_scorer), None)
    score_entry = scores_by_scorer.get(scorer_name or "", {})
    value = _value(score_entry.get("value"))
    is_verdict = value in (0.0, 1.0)
    answer = score_entry.get("answer")
    if not isinstance(answer, str):
        answer = None
    elif scorer_name != OURS and answer.strip().casefold() == text.strip().casefold():
        answer = None  # an answer that is the whole completion was not extracted
    target = sample.get("target")
    targets = target if isinstance(target, list) else [target]
    scores = {name: _value(score.get("value")) for name, score in scores_by_scorer.items() if name != scorer_name}
    if not math.isnan(value) and not is_verdict:
        scores["main"] = value
    return SampleRow(
        place=place,
        problem=f"{header.prefix}{identity_in(sample, 'id', place)}",
        sample=identity_in(sample, "epoch", place),
        prompt=_input(sample.get("input"), attachments),
        text=text,
        answer=answer,
        extractor=OURS,
        reference=join_surrogates(str(targets[0])) if len(targets) == 1 and targets[0] else None,
        correct=bool(value) if is_verdict else None,
        tokens=_tokens(output, sample),
        scores={name: score for name, score in scores.items() if not math.isnan(score)},
        truncated=choices[0].get("stop_reason") in _CUT,
        model=header.model,
    )


def _text(output: Mapping[str, Any], choices: Any, attachments: Any) -> str:
    """Return the text of the model's output.

    Args:
        output: The output of the sample.
        choices: The choices of the output, of which the first one is read if there is no completion.
        attachments: The long texts of the sample.
    """
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


def _input(prompt: Any, attachments: Any) -> str | None:
    """Return the prompt: a text, the content of a single chat message, or several messages as JSON."""
    if prompt is None:
        return None
    if isinstance(prompt, str):
        return _resolve(prompt, attachments)
    if not isinstance(prompt, list):
        return json.dumps(prompt)
    messages: list[Any] = []
    for message in prompt:
        content = message.get("content")
        if isinstance(content, str):
            messages.append({**message, "content": _resolve(content, attachments)})
        else:
            messages.append(message)
    if len(messages) == 1 and isinstance(messages[0].get("content"), str):
        return messages[0]["content"]
    return json.dumps(messages)


def _value(value: Any) -> float:
    """Return a score as a number; NaN: the score is no finite number."""
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    return float(value) if isinstance(value, bool | int | float) and math.isfinite(value) else math.nan


def _tokens(output: Mapping[str, Any], sample: Mapping[str, Any]) -> int | None:
    """Return the generated tokens of the last call, else of all calls; None: tokens are not stated."""
    usage = output.get("usage")
    if isinstance(usage, Mapping):
        last_tokens = whole_number(usage.get("output_tokens"), "output_tokens")
        if last_tokens is not None:
            return last_tokens
    model_usages = (sample.get("model_usage") or {}).values()
    counts = [whole_number(model_usage.get("output_tokens"), "output_tokens") for model_usage in model_usages]
    known_counts = [count for count in counts if count is not None]
    return sum(known_counts) if counts and len(known_counts) == len(counts) else None
