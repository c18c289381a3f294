"""From a record to the parts of a backend in vLLM: options, files, and vLLM's own arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tts.backends.local import with_flops
from tts.backends.vllm.engine import VLLMEngine, import_module
from tts.checks import check_int
from tts.errors import ConfigError, require_extra
from tts.models.registry import ModelRecord, locate, rates, refuse_url

with require_extra("", "vllm", "the vllm backend"):
    from tts.backends.text.rendering import Renderer, eos_ids
    from tts.backends.vllm.files import ModelFiles, digest

_CPU_KV_GIB = 2.0
# tokens of a block: vLLM's attention on CPUs takes multiples of 32; its default of 128 would share less of a path
_CPU_BLOCK = 32
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # the ranks that vLLM can reserve for an adapter
_DTYPES = ("auto", "float32", "bfloat16", "float16")


def load_parts(
    record: ModelRecord,
    *,
    dtype: str | None = None,
    kv_gib: float | None = None,
    max_rows: int | None = None,
    devices: int = 1,
    eager: bool | None = None,
    lora: str | None = None,
) -> dict[str, Any]:
    """Start vLLM with a model, and return the arguments of `VLLMBackend`.

    It takes from seconds to minutes.

    Args:
        record: The record of the model.
        dtype: "auto" (the model's own), "float32", "bfloat16" (a CPU needs instructions for it) or "float16"; None:
            float32 on a CPU, "auto" elsewhere.
        kv_gib: Memory for keys and values, in GiB; None: 2 on a CPU, the memory that vLLM finds free elsewhere.
        max_rows: Most rows under way at once; None: vLLM's choice.
        devices: The number of devices that share the model (tensor parallelism).
        eager: Whether nothing is compiled; None: True on a CPU, where compiling takes minutes.
        lora: The folder of a LoRA adapter; None: none.

    Raises:
        ConfigError: the model cannot be found or is not run by vLLM, or an option is not valid.
        MissingDependency: vLLM is not installed.
    """
    refuse_url(record)
    _check(dtype, kv_gib, max_rows, devices)
    adapter_rank = None if lora is None else lora_rank(lora)
    platform = import_module("vllm.platforms").current_platform
    if platform.is_cpu() and dtype == "bfloat16":
        from tts.backends.loading.cpu import check_bfloat16

        check_bfloat16("dtype", "'float32'")
    arguments = _arguments(record)
    arguments["enable_prefix_caching"] = True
    arguments["tensor_parallel_size"] = devices
    arguments["logits_processors"] = ["tts.backends.vllm.processor:Streams"]
    if dtype is not None:
        arguments["dtype"] = dtype
    if eager is not None:
        arguments["enforce_eager"] = eager
    if kv_gib is not None:
        arguments["kv_cache_memory_bytes"] = int(kv_gib * 2**30)
    if max_rows is not None:
        arguments["max_num_seqs"] = max_rows
    if adapter_rank is not None:
        arguments["enable_lora"] = True
        arguments["max_lora_rank"] = adapter_rank
    with readable(record) as location:
        files = ModelFiles.of(record, location)
        engine = VLLMEngine({"model": location, **arguments}, lora)
    device = "cpu" if platform.is_cpu() else str(platform.get_device_name())
    lora_text = "" if lora is None else f" lora={digest(Path(lora))}"
    text_config = files.config.get_text_config(decoder=True)
    return {
        "engine": engine,
        "renderer": Renderer(files.tokenizer, eos_ids(files.generation, files.config, files.tokenizer)),
        "context": engine.context,
        "vocab": text_config.vocab_size,
        "identity": f"vllm {engine.version} weights={files.weights} dtype={engine.dtype} device={device}{lora_text}",
        "streams": engine.dtype == "float32" or os.environ.get("VLLM_BATCH_INVARIANT") == "1",
        "rates": with_flops(rates(record), files.parameters),
        "kv_bytes_per_token": _kv_bytes(text_config, engine.itemsize),
    }


def pooling_engine(record: ModelRecord, overrides: dict[str, Any], pooler: dict[str, Any]) -> VLLMEngine:
    """Return a reward model in vLLM, for `VLLMEngine.pool`.

    Args:
        record: The record of the reward model.
        overrides: The overrides of the model's configuration.
        pooler: Settings of vLLM's pooler; {}: its own.

    Raises:
        ConfigError, MissingDependency: as `load_parts`.
    """
    refuse_url(record)
    import_module("vllm")
    arguments = _arguments(record)
    arguments["runner"] = "pooling"
    arguments["hf_overrides"] = overrides
    if pooler:
        arguments["pooler_config"] = import_module("vllm.config").PoolerConfig(**pooler)
    with readable(record) as location:
        return VLLMEngine({"model": location, **arguments})


@contextmanager
def readable(record: ModelRecord) -> Generator[str]:
    """Yield the location of a model's files: a folder for transformers, or a Hub name.

    A model in a GGUF file is dequantised into a temporary folder, which is deleted at the end of the block.

    Args:
        record: The record of the model.

    Raises:
        ConfigError: the model has no weights.
        MissingDependency: a package that dequantises is not installed.
    """
    path = locate(record)
    if path is not None and path.is_dir():
        yield str(path)
    elif path is not None:
        with TemporaryDirectory(prefix="tts-") as folder:
            _dequantise(record, folder)
            yield folder
    elif record.source == "hub":
        yield record.location
    else:
        raise ConfigError(f"model {record.name!r} has no weights to load", hint="see `tts models` for those that have")


def _dequantise(record: ModelRecord, folder: str) -> None:
    """Write a model in a GGUF file into a folder for transformers, in float32.

    Raises:
        MissingDependency: a package for this is not installed.
    """
    with require_extra("", "engine", f"the model {record.name!r} in vLLM, which reads no GGUF file"):
        import torch

        from tts.backends.loading.hub import quiet
        from tts.backends.loading.models import load
    loaded = load(record, device="cpu", dtype=torch.float32)
    with quiet():
        loaded.model.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)


def _arguments(record: ModelRecord) -> dict[str, Any]:
    """Return the arguments that a model gets without any options."""
    arguments: dict[str, Any] = {
        "skip_tokenizer_init": True,
        "max_model_len": record.context,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if import_module("vllm.platforms").current_platform.is_cpu():
        arguments["dtype"] = "float32"
        arguments["enforce_eager"] = True
        arguments["block_size"] = _CPU_BLOCK
        arguments["kv_cache_memory_bytes"] = int(_CPU_KV_GIB * 2**30)
    return arguments


def _check(dtype: str | None, kv_gib: float | None, max_rows: int | None, devices: int) -> None:
    if dtype is not None and dtype not in _DTYPES:
        raise ConfigError(f"dtype is {dtype!r}, but must be {', '.join(_DTYPES[:-1])} or {_DTYPES[-1]}")
    if kv_gib is not None and not 0 < kv_gib < 2**20:
        raise ConfigError(f"kv_gib is {kv_gib!r}, but must be a number of GiB above 0")
    check_int("max_rows", max_rows, 1)
    check_int("devices", devices, 1)


def lora_rank(folder: str) -> int:
    """Return the rank that vLLM must reserve for a LoRA adapter.

    Raises:
        ConfigError: the folder holds no adapter, or its rank is too large.
    """
    try:
        settings: Any = json.loads((Path(folder) / "adapter_config.json").read_text(encoding="utf-8"))
        layer_ranks = settings.get("rank_pattern") or {}  # of layers with a rank of their own
        ranks = [int(settings["r"]), *map(int, layer_ranks.values())]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as failure:
        raise ConfigError(
            f"lora is {folder!r}, but must be the folder of an adapter, with adapter_config.json and its rank r",
            hint="save it with peft",
        ) from failure
    for rank in _RANKS:
        if min(ranks) > 0 and max(ranks) <= rank:
            return rank
    raise ConfigError(
        f"lora is {folder!r}, whose rank is {max(ranks)}, but vLLM takes ranks from 1 to {_RANKS[-1]}",
        hint="merge it into the model's weights",
    )


def _kv_bytes(config: Any, itemsize: int) -> int | None:
    """Return the size of one token's keys and values; None for models with another state."""
    layer_types = set(getattr(config, "layer_types", None) or ["full_attention"])
    has_compressed_state = getattr(config, "kv_lora_rank", None) is not None
    if layer_types != {"full_attention"} or has_compressed_state:
        return None
    num_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * num_heads * head_size * itemsize
