"""CUDA devices: which one is meant, and how the models on one of them share its memory.

All weights of a run are counted before the first pool of keys and values is sized, those of reward models included.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

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


class StepBuffer:
    """The integers of a step: written here, and copied to a device at once, from memory that is pinned.

    Args:
        numbers: The most integers of 4 bytes.
        device: The device.

    Attributes:
        host: The integers here [numbers]; `wait` comes before they are written.
        device: The integers on the device, at an address that does not change.
        copies: How often they were copied.
    """

    def __init__(self, numbers: int, device: torch.device) -> None:
        is_cuda = device.type == "cuda"
        self._pinned = torch.zeros(numbers, dtype=torch.int32, pin_memory=is_cuda)
        self._copied = torch.cuda.Event() if is_cuda else None
        self.host: NDArray[np.int32] = self._pinned.numpy()
        self.device = torch.zeros(numbers, dtype=torch.int32, device=device)
        self.copies = 0

    def wait(self) -> None:
        """Wait until the last copy has read the integers."""
        if self._copied is not None:
            self._copied.synchronize()

    def copy(self, count: int) -> None:
        """Copy the first integers to the device."""
        self.device[:count].copy_(self._pinned[:count], non_blocking=True)
        self.copies += 1
        if self._copied is not None:
            self._copied.record()

    def upload(self, arrays: Sequence[NDArray[Any]]) -> list[torch.Tensor]:
        """Copy arrays of 4 or 8 bytes a number to the device, and return them there, each of one dimension."""
        parts = [np.ascontiguousarray(array).ravel().view(np.int32) for array in arrays]
        starts = starts_of([len(part) for part in parts])
        self.wait()
        for start, part in zip(starts, parts, strict=False):
            self.host[start : start + len(part)] = part
        self.copy(starts[-1])
        types = [torch.int32 if array.itemsize == 4 else torch.int64 for array in arrays]
        return [
            self.device[start : start + len(part)].view(dtype)
            for start, part, dtype in zip(starts, parts, types, strict=False)
        ]


def download(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's numbers on the host, which waits for the device."""
    return tensor.cpu().numpy()


def starts_of(lengths: Sequence[int]) -> list[int]:
    """Return where arrays of 4-byte numbers begin, and their end.

    Arrays begin at multiples of 16 bytes, since a kernel is compiled anew for addresses of another alignment.
    """
    return [0, *accumulate(-(-length // 4) * 4 for length in lengths)]


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
