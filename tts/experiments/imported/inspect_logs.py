"""Logs of Inspect: `.json` and `.eval` files. Samples are read one by one; epochs are samples of one problem.

One scorer gives the verdicts. Its answer is used, unless it is the whole completion and the log is not from tts. Then the task
extracts the answer. Values of the other scorers become scores by their names: C is 1, P is 0.5, I and N are 0. Samples that failed are
left out, and counted.

Source: the log of version 2 as inspect_ai 0.3 writes it. An `.eval` file is a zip archive with one member for each sample, compressed
with Zstandard or deflate.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from tts.characters import in_whole_characters
from tts.errors import ConfigError, missing_extra, shown, unknown_name
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


@dataclass(slots=True)
class _Header:
    """What a log states beside its samples. prefix: of the ids of its problems. completed: samples that its results are of."""

    file: str
    version: Any = None
    prefix: str = ""
    completed: int = 0

    def read(self, name: str, value: Any, facts: SourceFacts) -> None:
        """Take what a member states.

        Raises:
            ConfigError: the log is of another version.
        """
        if name == "version" and value != VERSION:
            raise _of_another_version(self.file, f"its version is {shown(value)}")
        if name == "version":
            self.version = value
        elif name == "status" and value != "success":
            facts.notes[f"logs have the status {shown(value)}, so that samples may be missing"] += 1
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
            ConfigError: it has none, fewer than its results are of, or no version.
        """
        if not found:
            raise ConfigError(f"{self.file}: it has no samples: it is no log of Inspect, or its evaluation kept none")
        if self.version is None:
            raise _of_another_version(self.file, "it states no version")
        if found < self.completed:
            raise ConfigError(f"{self.file}: it has {found:,} samples, but its results are of {self.completed:,}: it is cut or damaged")


def read_inspect(file: Path, source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
    """Yield the samples of a log.

    Raises:
        ConfigError: the file is no log, of another version, or damaged; a sample is of another form; or no sample has the scorer.
        MissingDependency: members of the archive are compressed with Zstandard, and pyarrow is not installed.
    """
    header, scorers, found = _Header(file.name), dict[str, None](), 0
    for place, name, value in _archive(file) if zipfile.is_zipfile(file) else _document(file):
        if name != "samples":
            header.read(name, value, facts)
            continue
        where = f"{file.name}, {place}"
        found += 1
        try:
            row = _sample(value, header.prefix, where, source.scorer, scorers)
        except BadRow as bad:
            raise ConfigError(f"{where}: {bad}") from None
        except (AttributeError, KeyError, TypeError) as failure:
            raise ConfigError(f"{where}: a part of it is of another type than Inspect writes: {failure}") from failure
        if row is None:
            facts.notes["samples failed, and are left out"] += 1
        else:
            yield row
    header.check(found)
    if source.scorer is not None and source.scorer not in scorers:
        raise unknown_name(f"scorer of {file.name}", source.scorer, scorers)


def _of_another_version(file: str, told: str) -> ConfigError:
    return ConfigError(
        f"{file}: {told}, but logs of version {VERSION} are read",
        hint="convert it with `inspect log convert`, or write it anew with inspect_ai 0.3",
    )


def _document(file: Path) -> Iterator[tuple[str, str, Any]]:
    """Yield place, name and value of each member of a JSON log."""
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
    """Yield the same of an `.eval` archive: its header, then a member for each sample."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            header = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
            if header is None:
                raise ConfigError(f"{file.name}: it has neither header.json nor _journal/start.json, so that it is no log of Inspect")
            facts, size = _member(file, archive, header)
            if not isinstance(facts, Mapping):
                raise ConfigError(f"{file.name}, {header}: it is no JSON object, so that it is no log of Inspect")
            yield from ((header, name, value) for name, value in facts.items())
            for name in dict.fromkeys(name for name in names if name.startswith("samples/") and name.endswith(".json")):
                sample, more = _member(file, archive, name)
                check_whole(file, size := size + more)
                yield name, "samples", sample
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as failure:
        if isinstance(failure, ConfigError):
            raise
        raise ConfigError(f"{file.name}: it is damaged: {failure}") from failure


def _member(file: Path, archive: zipfile.ZipFile, name: str) -> tuple[Any, int]:
    """Return the JSON value of a member, and its bytes.

    Raises:
        ConfigError: it is too large, or packed by a method that Inspect does not use.
    """
    info, place = archive.getinfo(name), f"{file.name}, {name}"
    check_row(place, info.file_size)
    if info.compress_type == _ZSTANDARD:
        body = _zstandard(place, archive, info)
    elif info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with archive.open(info) as stream:
            body = read_bounded(place, stream)
    else:
        raise ConfigError(f"{place}: it is compressed by method {info.compress_type}, but Inspect uses Zstandard or deflate")
    return json.loads(body), len(body)


def _zstandard(place: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the content of a member that is compressed with Zstandard, which `zipfile` does not read in pieces."""
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
    """Return one sample; None: it failed before it had an output.

    Raises:
        ConfigError: it lacks its id, its epoch, or what was written.
    """
    if not isinstance(sample, Mapping) or not {"id", "epoch", "output"} <= sample.keys():
        raise ConfigError(f"{where}: it has no id, epoch and output, so that it is no sample of Inspect")
    output: Mapping[str, Any] = sample["output"]
    choices = output.get("choices") or []
    if not choices:
        return None
    text, found = _text(output, choices, sample.get("attachments") or {}), cast("Mapping[str, Any]", sample.get("scores") or {})
    scorers.update(dict.fromkeys(found))
    chosen = scorer if scorer is not None else next(iter(found), None)
    judged = found.get(chosen or "", {})
    value = _value(judged.get("value"))
    answer = judged.get("answer")
    told = isinstance(answer, str) and (chosen == OURS or answer.strip().casefold() != text.strip().casefold())
    target = sample.get("target")
    targets = target if isinstance(target, list) else [target]
    scores = {name: _value(score.get("value")) for name, score in found.items() if name != chosen}
    if not math.isnan(value) and value not in (0.0, 1.0):
        scores["main"] = value
    return SampleRow(
        place=where,
        problem=f"{prefix}{identity_in(sample, 'id', where)}",
        sample=identity_in(sample, "epoch", where),
        prompt=_input(sample.get("input")),
        text=text,
        answer=answer if told else None,
        reference=in_whole_characters(str(targets[0])) if len(targets) == 1 and targets[0] else None,
        correct=bool(value) if value in (0.0, 1.0) else None,
        tokens=_tokens(output, sample),
        scores={name: score for name, score in scores.items() if not math.isnan(score)},
        truncated=choices[0].get("stop_reason") in _CUT,
    )


def _text(output: Mapping[str, Any], choices: Any, attachments: Mapping[str, str]) -> str:
    """Return what the model wrote last."""
    content: Any = output.get("completion") or choices[0].get("message", {}).get("content", "")
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping) and part.get("type") == "text")
    text = content or ""
    if not isinstance(text, str):
        raise TypeError(f"the content is {shown(content)}")
    return attachments.get(text.removeprefix("attachment://"), text) if text.startswith("attachment://") else text


def _input(given: Any) -> str | None:
    """Return the prompt; of chat messages the content, if there is one message, else the messages as JSON."""
    if isinstance(given, list) and len(cast("list[Any]", given)) == 1 and isinstance(given[0].get("content"), str):
        return given[0]["content"]
    return given if given is None or isinstance(given, str) else json.dumps(given)


def _value(value: Any) -> float:
    """Return a score as a number; NaN where it is none, or not finite."""
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    return float(value) if isinstance(value, bool | int | float) and math.isfinite(value) else math.nan


def _tokens(output: Mapping[str, Any], sample: Mapping[str, Any]) -> int | None:
    """Return the tokens that the last call generated, else those of all calls; None: they are not stated."""
    usage = output.get("usage")
    told = whole_number(usage.get("output_tokens"), "output_tokens") if isinstance(usage, Mapping) else None
    if told is not None:
        return told
    known = [whole_number(one.get("output_tokens"), "output_tokens") for one in (sample.get("model_usage") or {}).values()]
    return None if not known or None in known else sum(count or 0 for count in known)
