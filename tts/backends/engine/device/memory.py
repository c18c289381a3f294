"""CUDA devices: which one is meant, and how the models on one of them share its memory.

All weights of a run are counted before the first pool of keys and values is sized, those of reward models included.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import torch

from tts.backends.loading.hub import first_line
from tts.errors import ConfigError, KVBudgetError

_POOLS = 0.8  # of the memory beside all weights; the rest is for the numbers of a step
_CPU_POOL = 2 << 30  # of a CPU, where memory is taken on use
_HOLDERS: weakref.WeakKeyDictionary[Any, tuple[torch.device, str, int]] = weakref.WeakKeyDictionary()


def resolve_device(device: torch.device) -> torch.device:
    """Return a device with its index: a CUDA device without one is the current device of this thread.

    Raises:
        ConfigError: torch sees no such device.
    """
    if device.type != "cuda":
        return device
    count, index = torch.cuda.device_count(), cast("int | None", device.index)
    if index is None and count:
        return torch.device("cuda", torch.cuda.current_device())
    if index is None or index >= count:
        raise ConfigError(
            f"device is '{device}', but torch sees {count} CUDA devices",
            hint="name one from cuda:0 on" if count else "use device='cpu', or install a torch with CUDA",
        )
    return device


def using_device(device: torch.device) -> AbstractContextManager[Any]:
    """Return a block in which kernels of this thread run on a device; a CPU needs none."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@contextmanager
def loading_on(device: torch.device, name: str) -> Generator[None]:
    """Load a model within the block, on a device that kernels of this thread run on.

    Args:
        device: The device.
        name: The name of the model, for messages.

    Raises:
        KVBudgetError: The device's memory is used up.
    """
    try:
        with using_device(device):
            yield
    except torch.OutOfMemoryError as failure:
        raise KVBudgetError(
            f"the memory of {device} was used up while {name} was loaded: {first_line(failure)}",
            hint="give a smaller kv_budget or max_rows, another device, or close the other models",
        ) from failure


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a CUDA device, after torch has given back what it keeps."""
    gc.collect()  # of models that were closed
    torch.cuda.empty_cache()
    free, _total = torch.cuda.mem_get_info(device)
    return free


def hold(holder: object, device: torch.device, name: str, num_bytes: int) -> None:
    """Note the bytes of weights, keys and values that a model holds on a device while `holder` exists."""
    _HOLDERS[holder] = device, name, num_bytes


def give_back(holder: object) -> None:
    """Forget what a holder held, and return to the device what torch keeps of it."""
    device, _name, _bytes = _HOLDERS.pop(holder, (torch.device("cpu"), "", 0))
    if device.type == "cuda":
        torch.cuda.empty_cache()


def held_models(device: torch.device) -> dict[str, int]:
    """Return the bytes that models of this process hold on a device, by name."""
    return {name: num_bytes for place, name, num_bytes in _HOLDERS.values() if place == device}


def pool_bytes(device: torch.device, own: Mapping[str, int], later: Mapping[str, int], budget: int | None) -> int:
    """Return the bytes of keys and values for each model that is loaded now.

    Without a budget, all models share 80 % of what is free beside their weights.

    Args:
        device: The device of the models.
        own: The bytes of weights of the models that are loaded now, by name.
        later: The bytes of weights of the models that are loaded after them, by name.
        budget: The bytes for each model's keys and values; None: a share.

    Raises:
        KVBudgetError: The models do not fit the device.
    """
    if device.type == "cpu":
        return budget or _CPU_POOL
    free = free_bytes(device)
    rest = free - sum(own.values()) - sum(later.values())
    share = int(_POOLS * rest / (len(own) + len(later)))
    if rest <= 0 or (budget or 0) * len(own) > rest:
        pools = "" if budget is None else f", with {budget} bytes of keys and values each,"
        raise KVBudgetError(
            f"the weights ({_sizes({**own, **later})}){pools} do not fit {device}, where {free} bytes are free; other "
            f"models hold: {_sizes(held_models(device)) or 'nothing'}",
            hint="give a smaller kv_budget, another device, or close the other models",
        )
    return share if budget is None else budget


def _sizes(bytes_by_name: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {num_bytes} bytes" for name, num_bytes in bytes_by_name.items())
