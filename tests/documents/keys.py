"""Check the keys of YAML in documents against the models that read such YAML.

A block of YAML is a study, the configuration of a gateway, the record of a harness, or the record of a reward model. A
block may be a fragment, so it may lack keys. Each key that it has must be a key of the model, at every depth. If two
models could read a block, the one with fewer faults counts. Code spans such as `record: {texts: true}` and
`limits.tokens` are read in the same way. Blocks of other software stand in `foreign.FOREIGN_YAML`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Union, get_args, get_origin

import yaml
from pydantic import BaseModel

from tests.documents.names import pieces, rows_of_tables
from tts.backends import BACKENDS
from tts.backends.base import Sampling
from tts.backends.engine.loading import EngineOptions
from tts.backends.openai.capabilities import Capabilities
from tts.backends.vllm.loading import load_parts
from tts.budget.budget import Budget
from tts.errors import TTSError
from tts.experiments import datasets
from tts.experiments.study.config import ModelConfig, ProblemsConfig, StudyConfig
from tts.models import registry
from tts.models.record import ModelRecord
from tts.verifiers.reward.record import RewardRecord
from tts_addons.agents.record import HarnessRecord
from tts_addons.gateway.config import GatewayConfig

READERS: Final[tuple[type[BaseModel], ...]] = (StudyConfig, GatewayConfig, HarnessRecord, RewardRecord)


def _parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


# a mapping whose keys are the fields of something that is no pydantic model, by the name of its key
_FIELDS: Final[Mapping[str, set[str]]] = {
    "sampling": {field.name for field in dataclasses.fields(Sampling)},
    "budget": _parameters(Budget),
    "budgets": _parameters(Budget),
    "request": _parameters(Budget),
    "capabilities": {field.name for field in dataclasses.fields(Capabilities)},
    "fields": {"problem", "answer", "id"},
    "settings": {field.name for field in dataclasses.fields(ModelRecord)},
}


def block_faults(text: str) -> list[str]:
    """Return the faults of a block: by the reader that finds the fewest, of those that know one of its keys."""
    data = yaml.safe_load(text)
    if not isinstance(data, Mapping):
        return ["a block of YAML is no mapping"]
    found = [list(mapping_faults(reader, data)) for reader in READERS if reader.model_fields.keys() & data.keys()]
    return _fewest(found) if found else [f"{next(iter(data))}: no reader has this key"]


def _fewest(found: Sequence[list[str]]) -> list[str]:
    """Return the shortest of some lists of faults; of equally short ones, the one whose fault lies deepest."""
    return min(found, key=lambda faults: (len(faults), -max((fault.count(".") for fault in faults), default=0)))


def mapping_faults(reader: type[BaseModel], data: Mapping[Any, Any], above: str = "") -> Iterator[str]:
    """Yield the keys of a mapping that its reader does not know, with those of the mappings in it."""
    for key, value in data.items():
        place = f"{above}.{key}" if above else str(key)
        if key in reader.model_fields:
            known = _backend_options(data) if key == "options" else _FIELDS.get(key)
            if known is not None:
                yield from _field_faults(known, value, place)
            else:
                yield from _value_faults(reader.model_fields[key].annotation, value, place)
        elif key in getattr(reader, "more_keys", ()):
            yield from _field_faults(_FIELDS[key], value, place) if key in _FIELDS else ()
        elif reader is ProblemsConfig:
            known = _data_set_parameters(data.get("dataset"))
            if known is not None and key not in known and str(key) != "…":
                yield f"{place}: the data set {data['dataset']} has no parameter {key}"
            elif key in _FIELDS:
                yield from _field_faults(_FIELDS[key], value, place)
        else:
            yield f"{place}: {reader.__name__} has no key {key}"


def _value_faults(hint: Any, value: Any, place: str) -> Iterator[str]:
    """Yield the faults of the mappings in a value, by the type of its field."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        if isinstance(value, Mapping):
            yield from mapping_faults(hint, value, place)
    elif origin is Annotated:
        yield from _value_faults(inner[0], value, place)
    elif origin in (Union, types.UnionType):
        found = [list(_value_faults(one, value, place)) for one in inner if one is not type(None)]
        yield from _fewest(found)
    elif origin is dict and isinstance(value, Mapping):
        for name, one in value.items():
            yield from _value_faults(inner[1], one, f"{place}.{name}")
    elif origin is list:
        for one in value if isinstance(value, list) else [value]:
            yield from _value_faults(inner[0], one, place)


def _field_faults(known: set[str], value: Any, place: str) -> Iterator[str]:
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, Mapping):
            yield from (f"{place}.{key}: {place} has no key {key}" for key in one if key not in known)


def _data_set_parameters(name: Any) -> set[str] | None:
    """Return the parameters of a data set; None: the name is that of a place, or is missing."""
    if not isinstance(name, str) or ":" in name:
        return None
    try:
        return _parameters(datasets.get(name))
    except TTSError:
        return set()


def _backend_options(model: Mapping[str, Any]) -> set[str] | None:
    """Return the options of the backend of a model; None: the model or its backend is not of the library."""
    try:
        return options_of(model.get("backend") or registry.get(model["model"]).backend)
    except (KeyError, TTSError, AttributeError):
        return None


@functools.cache
def options_of(backend: str) -> set[str]:
    """Return the options of a backend: the parameters of its `from_record`, and of what that hands them to."""
    names = _parameters(BACKENDS.get(backend).from_record)
    if backend == "engine":
        names |= {field.name for field in dataclasses.fields(EngineOptions)}
    if backend == "vllm":
        names |= _parameters(load_parts)
    return names - {"cls", "record", "options", "others"}


@functools.cache
def _settings_of_models() -> set[str]:
    """Return what `--model-option` takes: the fields of a record, and the options of all backends."""
    backends = [name for name in BACKENDS.entries if name not in ("workspace", "function")]
    return _FIELDS["settings"].union(*map(options_of, backends))


def span_faults(text: str) -> list[str]:
    """Return the faults of a code span: `key: {…}` in YAML, or the path of a key, `limits.tokens`."""
    if re.fullmatch(r"(?:limits|record|models|problems|budgets|accounts)(?:\.\w+)+", text):
        return path_faults(text)
    if not re.match(r"[a-z_]+: *[\[{]", text):
        return []
    try:
        data = yaml.safe_load(re.sub(r"…(?=[,}])", "…: …", text) if re.search(r"[{,] ?…[,}]", text) else text)
    except yaml.YAMLError:
        return []
    key, value = next(iter(data.items()))
    known = [one for one in READERS if key in one.model_fields]
    if holders := known or [one for one in _reachable(READERS) if key in one.model_fields]:
        return _fewest([list(mapping_faults(one, data)) for one in holders])
    if key in ModelConfig.more_keys or key in _FIELDS:
        return list(_field_faults(_FIELDS.get(key, set()), value, key))
    return [f"{key}: no reader has this key"]


def path_faults(text: str) -> list[str]:
    """Return the fault of the path of a key, as `--set` takes it: no reader has it."""
    parts = text.split(".")
    data: Any = "…"
    for part in reversed(parts):
        data = {part: data}
    # the data set is one of the library, whose keys are then known
    if parts[0] == "problems":
        data["problems"]["dataset"] = "arithmetic"
    found = [list(mapping_faults(one, data)) for one in (StudyConfig, GatewayConfig) if parts[0] in one.model_fields]
    return _fewest(found)


def _reachable(readers: Sequence[type[BaseModel]]) -> list[type[BaseModel]]:
    """Return some readers, and those of the sections below them."""
    found: dict[type[BaseModel], None] = {}

    def visit(hint: Any) -> None:
        if isinstance(hint, type) and issubclass(hint, BaseModel) and hint not in found:
            found[hint] = None
            for field in hint.model_fields.values():
                visit(field.annotation)
        for inner in get_args(hint):
            visit(inner)

    for reader in readers:
        visit(reader)
    return list(found)


def key_faults(text: str, foreign: frozenset[str] = frozenset()) -> tuple[list[str], set[str]]:
    """Return the faults of a page, and the foreign keys that it has.

    Args:
        text: The page's Markdown.
        foreign: Keys of other software. A block that has one of them, or a span that begins with one, is not checked.
    """
    found, used = list[str](), set[str]()
    for piece in pieces(text):
        keys = set[str]()
        if piece.block == "yaml":
            keys = set(re.findall(r"^(\w+):", piece.text, re.MULTILINE)) & foreign
            found += [] if keys else block_faults(piece.text)
        elif piece.block is None:
            keys = {piece.text.partition(":")[0]} & foreign
            found += [] if keys else span_faults(piece.text)
        found += setting_faults(piece.text)
        used |= keys
    found += table_faults(text)
    return list(dict.fromkeys(found)), used


def setting_faults(command: str) -> Iterator[str]:
    """Yield the faults of the keys behind `--set` and `--model-option`."""
    for path in re.findall(r"--set '?([a-z]\w*(?:\.\w+)*)=", command):
        yield from path_faults(path)
    for name in re.findall(r"--model-option '?([a-z]\w*)=", command):
        if name not in _settings_of_models():
            yield f"{name}: no record of a model and no backend has this setting"


def table_faults(text: str) -> Iterator[str]:
    """Yield the names below a heading "key" that no reader has."""
    known = {key for reader in _reachable(READERS) for key in reader.model_fields} | set(ModelConfig.more_keys)
    for row in rows_of_tables(text):
        for name in re.findall(r"`(\w+)`", row.get("key", "")):
            if name not in known:
                yield f"{name}: no reader has this key"
