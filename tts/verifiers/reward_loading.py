"""From a record to a reward model that can be asked: loaded in this process, or found at a server."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts.backends import BACKENDS
from tts.errors import ConfigError, missing_extra
from tts.models import registry
from tts.models.registry import ModelRecord
from tts.verifiers import reward_record
from tts.verifiers.pooling import PoolingModel, PoolingServer
from tts.verifiers.reward_head import read_head, weight_files
from tts.verifiers.reward_model import HandleModel, ServedModel
from tts.verifiers.reward_reader import Reader
from tts.verifiers.reward_record import Head

BACKENDS_WITH_HANDLES = ("engine", "transformers")
_RUNS = "a reward model runs on engine, transformers or vllm"

_KEPT: weakref.WeakValueDictionary[Serving, Any] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Which reward model, and who runs it.

    Args:
        record: the name of a record of this package, or the path of a YAML file. model: where its weights and tokenizer are; None: as
            the record says. backend: "engine", "transformers" or "vllm"; None: the engine. device: of it; None: its own choice.
        url: of a server that runs it; None: it runs in this process. served_as: its name there; None: as `model`.
    """

    record: str
    model: str | None = None
    backend: str | None = None
    device: str | None = None
    url: str | None = None
    served_as: str | None = None


def served(serving: Serving) -> ServedModel:
    """Return a reward model; one that somebody still holds is not loaded again.

    Raises:
        ConfigError: the record, the model or the backend is not valid, or they do not fit each other.
    """
    with _LOCK:
        model = _KEPT.get(serving)
        if model is None:
            model = _KEPT[serving] = _made(serving)
        return model


def _made(serving: Serving) -> ServedModel:
    record = reward_record.load(serving.record)
    if serving.model is not None:
        record = record.model_copy(update={"model": serving.model})
    if serving.url is not None:
        reader = Reader(record, tokenizer_of(registry.get(record.model)))
        return PoolingModel(reader, PoolingServer(url=serving.url, model=serving.served_as))
    name = serving.backend or BACKENDS_WITH_HANDLES[0]
    if name == "vllm":
        from tts.verifiers.pooling_vllm import started

        return started(record, registry.get(record.model), serving.device)
    if name not in BACKENDS_WITH_HANDLES:
        raise ConfigError(f"backend is {name!r}, but {_RUNS}", hint="leave it out")
    known = dataclasses.replace(registry.get(record.model), backend=name, licence=record.licence)
    known = known if record.parameters is None else dataclasses.replace(known, parameters=record.parameters)
    options = {"output_layer": False} if isinstance(record.readout, Head) and name == "engine" else {}  # which classifiers lack
    backend = BACKENDS.get(name).from_record(known, device=serving.device, **options)
    config = _config(known)
    if config.model_type != record.architecture:
        raise ConfigError(
            f"the record {record.name!r} is of the architecture {record.architecture!r}, but {record.model} is a {config.model_type!r}",
            hint="give the model that the record is for, or correct the record",
        )
    head = None
    if isinstance(record.readout, Head):
        head = read_head(record, _files(known, record.readout), config.hidden_size)
    return HandleModel(Reader(record, tokenizer_of(known), context=backend.context), backend, head)


def tokenizer_of(model: ModelRecord) -> Any:
    """Return a model's tokenizer; nothing of its weights is read.

    Raises:
        ConfigError: it cannot be had, or is no fast one.
    """
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as failure:
        raise missing_extra("transformers", "engine", "a reward model's tokenizer") from failure
    where = _location(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(where, local_files_only=True)
    except (OSError, ValueError, KeyError) as failure:
        if model.source != "hub":
            raise _unavailable(model, "tokenizer", failure) from failure
        tokenizer = _from_hub(model, AutoTokenizer)
    if not tokenizer.is_fast:
        raise ConfigError(f"the tokenizer of {model.name!r} is {type(tokenizer).__name__}, but must be a fast one (tokenizer.json)")
    return tokenizer


def _from_hub(model: ModelRecord, kind: Any) -> Any:
    """Return what lies on the Hub and not in the local cache."""
    from huggingface_hub import constants

    from tts.backends.loading import hub_answers

    if constants.HF_HUB_OFFLINE or not hub_answers():
        raise ConfigError(
            f"the tokenizer of the model {model.name!r} is not in the local cache, and {constants.ENDPOINT} does not answer",
            hint="give the local folder of a saved model",
        )
    try:
        return kind.from_pretrained(model.location)
    except (OSError, ValueError, KeyError) as failure:
        raise _unavailable(model, "tokenizer", failure) from failure


def _config(model: ModelRecord) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(_location(model), local_files_only=True)
    except (OSError, ValueError, KeyError) as failure:
        raise _unavailable(model, "configuration", failure) from failure


def _files(model: ModelRecord, head: Head) -> Sequence[Path]:
    if head.file:
        return [registry.head_path(model, head.file)]
    folder = registry.locate(model)
    if folder is None:
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(model.location, allow_patterns=["*.safetensors", "*.json"], local_files_only=True))
    return weight_files(folder)


def _location(model: ModelRecord) -> str:
    path = registry.locate(model)
    if path is not None and not path.is_dir():
        raise ConfigError(f"the model {model.name!r} is the file {path.name}, but a reward model is read from a folder or the Hub")
    return model.location if path is None else str(path)


def _unavailable(model: ModelRecord, part: str, failure: Exception) -> ConfigError:
    first = " ".join(str(failure).partition("\n")[0].split())
    return ConfigError(
        f"the {part} of the model {model.name!r} could not be loaded: {first}", hint="give the local folder of a saved model"
    )
