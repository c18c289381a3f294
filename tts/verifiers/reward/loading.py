"""Loads the reward model of a record in this process, or connects to a server that runs it."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tts.backends import BACKENDS
from tts.errors import ConfigError
from tts.models import registry
from tts.models.registry import ModelRecord
from tts.verifiers.reward import record as reward_record
from tts.verifiers.reward.head import read_head
from tts.verifiers.reward.model import HandleModel, ServedModel
from tts.verifiers.reward.pooling import PoolingModel, PoolingServer
from tts.verifiers.reward.pooling_vllm import start_engine
from tts.verifiers.reward.pretrained import config_of, tokenizer_of
from tts.verifiers.reward.record import Head, RewardRecord
from tts.verifiers.reward.renderer import SolutionRenderer

_KEPT: weakref.WeakValueDictionary[tuple[str | int | None, ...], Any] = weakref.WeakValueDictionary()
_LOCK = threading.Lock()


def reward_model(
    record: str,
    weights: str | None = None,
    backend: str | None = None,
    device: str | None = None,
    kv_budget: int | None = None,
    url: str | None = None,
    served_as: str | None = None,
) -> ServedModel:
    """Return a reward model; a loaded model is shared while a reference to it exists.

    Args:
        record: Name of a record of this package, or path of a YAML file or of a classifier's folder.
        weights: Folder or Hub name of weights and tokenizer; None: the record's.
        backend: "engine", "transformers" or "vllm"; None: "engine".
        device: The device of the backend; None: its default.
        kv_budget: The bytes for keys and values of the backend "engine"; None: its default.
        url: The url of a server that runs the model; None: this process runs it.
        served_as: The model's name on the server; None: as `weights`.

    Raises:
        ConfigError: the record, the model or the backend is not valid, or they do not fit together.
    """
    key = (record, weights, backend, device, kv_budget, url, served_as)
    with _LOCK:
        model = _KEPT.get(key)
        if model is None:
            model = _KEPT[key] = _make_model(*key)
        return model


def model_record(
    record: RewardRecord, weights: str | None = None, backend: str | None = None, device: str | None = None
) -> ModelRecord:
    """Return the record of the model that a reward model is loaded as.

    Args:
        record: The record of the reward model.
        weights: Folder or Hub name of weights and tokenizer; None: the record's.
        backend: The backend; None: "engine".
        device: The device of the backend; None: its default.
    """
    model = registry.get(weights or record.model)
    given_options = {} if device is None else {"device": device}
    return dataclasses.replace(
        model,
        backend=backend or "engine",
        licence=record.licence,
        parameters=model.parameters if record.parameters is None else record.parameters,
        options=tuple((dict(model.options) | given_options).items()),
    )


def _make_model(
    name: str,
    weights: str | None,
    backend: str | None,
    device: str | None,
    kv_budget: int | None,
    url: str | None,
    served_as: str | None,
) -> ServedModel:
    """Return a new reward model; the parameters are those of `reward_model`."""
    record = reward_record.load(name)
    if weights is not None:
        record = record.model_copy(update={"model": weights})
    if url is not None:
        renderer = SolutionRenderer(record, tokenizer_of(registry.get(record.model)))
        return PoolingModel(renderer, PoolingServer(url=url, model=served_as))
    backend = backend or "engine"
    if backend == "vllm":
        return start_engine(record, registry.get(record.model), device)
    if backend not in ("engine", "transformers"):
        raise ConfigError(
            f"backend is {backend!r}, but a reward model runs on engine, transformers or vllm", hint="leave it out"
        )
    model = model_record(record, backend=backend)
    options: dict[str, Any] = {} if kv_budget is None else {"kv_budget": kv_budget}
    if isinstance(record.readout, Head) and backend == "engine":  # a classifier has no output layer
        options["output_layer"] = False
    model_backend = BACKENDS.get(backend).from_record(model, device=device, **options)
    config = config_of(model)
    if config.model_type != record.architecture:
        raise ConfigError(
            f"the record {record.name!r} is of the architecture {record.architecture!r}, but {record.model} is a "
            f"{config.model_type!r}",
            hint="give the model that the record is for, or correct the record",
        )
    head = None
    if isinstance(record.readout, Head):
        head = read_head(record, _files(model, record.readout), config.hidden_size)
    renderer = SolutionRenderer(record, tokenizer_of(model), context=model_backend.context)
    return HandleModel(renderer, model_backend, head)


def _files(model: ModelRecord, head: Head) -> Sequence[Path]:
    """Return the files with a head's weights: the head's own file, else all files of the model's weights."""
    if head.file:
        return [registry.head_path(model, head.file)]
    folder = registry.locate(model)
    if folder is None:
        from huggingface_hub import snapshot_download

        folder = Path(
            snapshot_download(model.location, allow_patterns=["*.safetensors", "*.json"], local_files_only=True)
        )
    from tts.backends.loading.models import weight_files

    return weight_files(folder)
