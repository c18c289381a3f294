"""Memory for keys and values: blocks of 16 tokens, allocated from a free list and never moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from tts.backends.kernels.plan import BLOCK

KVPrecision = Literal["float32", "float16"]
_AS_ARRAY = {torch.float32: np.float32, torch.float16: np.float16}


@dataclass(frozen=True, slots=True)
class KVShape:
    """The shape of one token's keys and values: layers, key-value heads, head size, and bytes of a number."""

    layers: int
    heads: int
    size: int
    itemsize: int

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token in all layers."""
        return 2 * self.layers * self.heads * self.size * self.itemsize


class BlockPool:
    """Blocks for keys and values, with a free list.

    A node's blocks are a chain: `following[block]` is the next block, -1 after the last. On a CPU, memory is taken from
    the system when a block is first written, so a large pool costs nothing until it is used.

    Shapes: L layers, H key-value heads, N blocks, d head size.

    Args:
        shape: The layers, heads and head size of a token's keys and values.
        num_blocks: N, at least 1.
        device: The device of the tensors.
        dtype: The type of the tensors' numbers.

    Attributes:
        keys: [L, H, N, d, BLOCK] on a CPU, [L, H, N, BLOCK, d] elsewhere.
        values: [L, H, N, BLOCK, d].
        following: [N] the next block of each block's chain, -1 after the last.
        num_free: The number of free blocks.
        peak_used: The most blocks ever used at once.
    """

    def __init__(self, shape: KVShape, num_blocks: int, *, device: torch.device, dtype: torch.dtype) -> None:
        self.shape = shape
        self.num_blocks = num_blocks
        self.following: NDArray[np.int64] = np.full(num_blocks, -1, np.int64)
        self.peak_used = 0
        self._free: list[int] = list(range(num_blocks - 1, -1, -1))
        blocks = (shape.layers, shape.heads, num_blocks)
        key_shape = (shape.size, BLOCK) if device.type == "cpu" else (BLOCK, shape.size)
        self.keys = _zeros((*blocks, *key_shape), device, dtype)
        self.values = _zeros((*blocks, BLOCK, shape.size), device, dtype)

    def drop(self) -> None:
        """Free the memory of keys and values; blocks can still be given back."""
        self.keys = self.values = torch.empty(0)

    @property
    def num_free(self) -> int:
        """Free blocks."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Used blocks."""
        return self.num_blocks - len(self._free)

    def take(self) -> int:
        """Return the block that was freed last; at least one block must be free."""
        block = self._free.pop()
        self.following[block] = -1
        self.peak_used = max(self.peak_used, self.num_used)
        return block

    def give(self, head: int) -> None:
        """Free the chain of blocks that begins with `head`."""
        block = head
        while block >= 0:
            self._free.append(block)
            block = int(self.following[block])


def kernel_array(numbers: torch.Tensor) -> NDArray[Any]:
    """Return keys or values as the CPU's kernels take them: floats, or the bits of halves as int16."""
    if numbers.dtype == torch.float16:
        numbers = numbers.view(torch.int16)
    return numbers.numpy()


def _zeros(shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> Any:
    if device.type == "cpu" and dtype in _AS_ARRAY:
        return torch.from_numpy(np.zeros(shape, _AS_ARRAY[dtype]))  # the system gives pages when they are written
    return torch.zeros(shape, dtype=dtype, device=device)
