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
from pathlib import Path
from typing import Any, Final, cast

from tts._common.characters import join_surrogates
from tts.errors import ConfigError, quote, require_extra, unknown_name
from tts.experiments.datasets.rows import BadRow
from tts.experiments.datasets.unpacking import check_row, check_whole, read_bounded
from tts_addons.logs.fields import CUT, SampleRow, identity_in, whole_number, without_costs
from tts_addons.logs.json_stream import json_elements
from tts_addons.logs.source import Source, SourceFacts, place_errors

VERSION: Final = 2
OURS: Final = "tts"  # the scorer of logs that tts writes, whose answer may be the whole completion
_ZSTANDARD: Final = 93  # the compression method of a zip member
_LOCAL_HEADER: Final = 30  # bytes before the name of a zip member
_GRADES: Final = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_FIRST: Final = ("version", "status", "eval")  # possible names of a JSON log's first member
_FIRST_NAME: Final = re.compile(rb'\s*\{\s*"([^"]*)"')
_BEGINNING: Final = 4096  # bytes that contain the first name
_SAMPLE: Final = re.compile(r"samples/.+_epoch_\d+\.json|(?P<folder>samples/.+_epoch_\d+)/sample\.json", re.DOTALL)
_CHUNK: Final = re.compile(r"(.+)/attachments/(\d{1,18})\.json", re.DOTALL)
_ATTACHMENT: Final = "attachment://"
_DIGITS: Final = 18  # bound of an index's digits
_MEANINGS: Final = {
    "problem": "id", "sample": "epoch", "prompt": "input", "text": "output", "reference": "target",
}  # fmt: skip


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
    reader = _LogReader(file, source, facts)
    for member_place, name, value in _archive(file) if zipfile.is_zipfile(file) else _document(file):
        if name == "samples":
            place = f"{file.name}, {member_place}"
            with place_errors(place):
                yield from reader.samples(value, place)
        else:
            reader.read_header(name, value)
    reader.check()


class _LogReader:
    """Reads the samples of a log, with the verdicts of one scorer.

    Args:
        file: The file.
        source: The options with the scorer; without a scorer, each sample's first one gives the verdict.
        facts: The collector of facts that the log states beside its samples.
    """

    def __init__(self, file: Path, source: Source, facts: SourceFacts) -> None:
        self._file = file
        self._scorer = source.scorer
        self._facts = facts
        facts.extracting.add(OURS)  # an answer of this scorer counts, even if it is the whole completion
        self._scorers = dict[str, None]()  # of all samples
        self._version: Any = None  # None: not stated
        self._problem_prefix = ""
        self._model = ""
        self._completed = 0  # number of samples that the log's results cover
        self._num_samples = self._total_size = 0

    def read_header(self, name: str | None, value: Any) -> None:
        """Read the facts of one member of a log. Members with unknown names are passed over.

        Raises:
            ConfigError: the log has another version.
        """
        if name == "version":
            if value != VERSION:
                raise self._version_error(f"its version is {quote(value)}")
            self._version = value
        elif name == "status" and value != "success":
            self._facts.notes[f"logs have the status {quote(value)}, so that samples may be missing"] += 1
        elif name == "eval" and isinstance(value, Mapping):
            evaluation = cast("Mapping[str, Any]", value)
            self._model = str(evaluation.get("model") or "recorded")
            self._facts.models[self._model] = None
            task = evaluation.get("task")
            self._problem_prefix = f"{task}/" if task else ""
        elif name == "results" and isinstance(value, Mapping):
            completed = cast("Mapping[str, Any]", value).get("completed_samples")
            self._completed = completed if isinstance(completed, int) else 0

    def samples(self, sample: Any, place: str) -> Iterator[SampleRow]:
        """Yield a sample, unless it failed before it had an output.

        Raises:
            BadRow: the sample has another form.
            ConfigError: the texts of the log are too large.
        """
        self._num_samples += 1
        try:
            row = self._sample(sample, place)
        except (AttributeError, KeyError, TypeError) as failure:
            raise BadRow(f"a part of it is of another type than Inspect writes: {failure}") from failure
        if row is None:
            self._facts.notes["samples failed, and are left out"] += 1
        else:
            self._total_size += len(row.text or "") + len(row.prompt or "")  # many samples may name one text
            check_whole(self._file, self._total_size)
            yield row

    def check(self) -> None:
        """Note the fields that were read, and refuse a log that cannot be complete.

        Raises:
            ConfigError: the log has no samples, fewer samples than its results cover, no version, or no such scorer.
        """
        name = self._file.name
        if not self._num_samples:
            raise ConfigError(f"{name}: it has no samples: it is no log of Inspect, or its evaluation kept none")
        if self._version is None:
            raise self._version_error("it states no version")
        if self._num_samples < self._completed:
            raise ConfigError(
                f"{name}: it has {self._num_samples:,} samples, but its results are of {self._completed:,}: it is cut "
                "or damaged"
            )
        scorer = self._scorer or next(iter(self._scorers), None)  # the first scorer of the log, if none is named
        self._facts.add_meanings(**_MEANINGS, correct="scores" if scorer is None else f"scores.{scorer}")
        if self._scorer is not None and self._scorer not in self._scorers:
            raise unknown_name(f"scorer of {name}", self._scorer, self._scorers)

    def _version_error(self, fault: str) -> ConfigError:
        return ConfigError(
            f"{self._file.name}: {fault}, but logs of version {VERSION} are read",
            hint="convert it with `inspect log convert`, or write it anew with inspect_ai 0.3",
        )

    def _sample(self, sample: Any, place: str) -> SampleRow | None:
        """Return one sample; None: the sample failed before it had an output.

        Raises:
            BadRow: the sample lacks its id, its epoch, or its output.
            AttributeError, KeyError, TypeError: a part of the sample is of another type.
        """
        if not isinstance(sample, Mapping) or not {"id", "epoch", "output"} <= sample.keys():
            raise BadRow("it has no id, epoch and output, so that it is no sample of Inspect")
        output: Mapping[str, Any] = sample["output"]
        choices = output.get("choices") or []
        if not choices:
            return None
        long_texts = _LongTexts(sample.get("attachments") or {}, place)
        text = _text(output, choices, long_texts)
        scores_by_scorer = without_costs(cast("Mapping[str, Any]", sample.get("scores") or {}), self._facts)
        self._scorers.update(dict.fromkeys(scores_by_scorer))
        scorer = self._scorer if self._scorer is not None else next(iter(scores_by_scorer), None)
        score_entry = scores_by_scorer.get(scorer or "", {})
        value = _value(score_entry.get("value"))
        is_verdict = value in (0.0, 1.0)
        answer = score_entry.get("answer")
        is_whole = isinstance(answer, str) and answer.strip().casefold() == text.strip().casefold()
        if not isinstance(answer, str) or (is_whole and scorer != OURS):
            answer = None  # an answer that is the whole completion was not extracted
        target = sample.get("target")
        targets = target if isinstance(target, list) else [target]
        scores = {name: _value(score.get("value")) for name, score in scores_by_scorer.items() if name != scorer}
        if not is_verdict:
            scores["main"] = value
        return SampleRow(
            place=place,
            problem=f"{self._problem_prefix}{identity_in(sample, 'id')}",
            sample=identity_in(sample, "epoch"),
            prompt=_input(sample.get("input"), long_texts),
            text=text,
            answer=answer,
            extractor=OURS,
            reference=join_surrogates(str(targets[0])) if len(targets) == 1 and targets[0] else None,
            correct=bool(value) if is_verdict else None,
            tokens=_tokens(output, sample),
            scores={name: score for name, score in scores.items() if not math.isnan(score)},
            truncated=choices[0].get("stop_reason") in CUT,
            model=self._model,
        )


def _document(file: Path) -> Iterator[tuple[str, str | None, Any]]:
    """Yield place, name and value of each member of a JSON log, and of each of its samples."""
    for element in json_elements(file):
        yield element.place, element.name, element.value


def _archive(file: Path) -> Iterator[tuple[str, str | None, Any]]:
    """Yield place, name and value of each member of an `.eval` archive's header, then of each sample.

    Raises:
        ConfigError: the archive is damaged, too large, or no log of Inspect.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            header_name = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
            if header_name is None:
                raise ConfigError(
                    f"{file.name}: it has neither header.json nor _journal/start.json, so that it is no log of Inspect"
                )
            header, total_size = _member(file, archive, header_name)
            if not isinstance(header, Mapping):
                raise ConfigError(f"{file.name}, {header_name}: it is no JSON object, so that it is no log of Inspect")
            for name, value in header.items():
                yield header_name, name, value
            attachments = _chunks(names)
            for sample_name in dict.fromkeys(names):
                name_match = _SAMPLE.fullmatch(sample_name)
                if name_match is None:
                    continue
                sample, size = _member(file, archive, sample_name)
                total_size += size
                check_whole(file, total_size)
                folder = name_match["folder"]
                if folder is not None and isinstance(sample, dict):
                    sample["attachments"] = _Attachments(file, archive, attachments.get(folder, {}))
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


class _LongTexts:
    """The long texts of a sample, which count toward the bound of a row each time that they are named.

    Args:
        attachments: The texts by their name.
        place: The file and the sample, for messages.
    """

    def __init__(self, attachments: Any, place: str) -> None:
        self._attachments, self._place, self._size = attachments, place, 0

    def resolve(self, text: str) -> str:
        """Return the attachment that a text names, and any other text unchanged.

        Raises:
            ConfigError: The texts that the sample has named are too large together.
        """
        if not text.startswith(_ATTACHMENT):
            return text
        attachment = self._attachments.get(text.removeprefix(_ATTACHMENT), text)
        self._size += len(attachment)
        check_row(self._place, self._size)
        return attachment


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
    with require_extra("pyarrow", "experiments", "reading an .eval log"):
        import pyarrow
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


def _text(output: Mapping[str, Any], choices: Any, long_texts: _LongTexts) -> str:
    """Return the text of the model's output.

    Args:
        output: The output of the sample.
        choices: The choices of the output, of which the first one is read if there is no completion.
        long_texts: The long texts of the sample.
    """
    content: Any = output.get("completion") or choices[0].get("message", {}).get("content", "")
    if isinstance(content, list):
        texts = [part.get("text", "") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        content = "\n".join(long_texts.resolve(str(text)) for text in texts)
    text = content or ""
    if not isinstance(text, str):
        raise TypeError(f"the content is {quote(content)}")
    return long_texts.resolve(text)


def _input(prompt: Any, long_texts: _LongTexts) -> str | None:
    """Return the prompt: a text, the content of a single chat message, or several messages as JSON."""
    if prompt is None:
        return None
    if isinstance(prompt, str):
        return long_texts.resolve(prompt)
    if not isinstance(prompt, list):
        return json.dumps(prompt)
    messages: list[Any] = []
    for message in prompt:
        content = message.get("content")
        is_text = isinstance(content, str)
        messages.append({**message, "content": long_texts.resolve(content)} if is_text else message)
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
