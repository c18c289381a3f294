"""Llama models in GGUF files, read in a second: metadata by `struct`, weights dequantised by numpy.

Written out because general readers take ten times as long (they view every one of 100,000 vocabulary entries as an array).
Only what the shipped records need: little-endian version 2 or 3, the architecture "llama", and F32, Q4_1 and Q8_0 weights.

Source: the GGUF specification (ggml, docs/gguf.md) and the block layouts of ggml's `quants.c`.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCK = 32  # weights a block
_Q4_1_BLOCK = np.dtype([("scale", "<f2"), ("least", "<f2"), ("nibbles", "u1", _BLOCK // 2)])
_Q8_0_BLOCK = np.dtype([("scale", "<f2"), ("values", "i1", _BLOCK)])


@dataclass(frozen=True, slots=True)
class GGUF:
    """What a file says: `metadata` by key, and the dequantised `tensors` by name, rows first, float32."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, NDArray[np.float32]]


def read_gguf(path: Path) -> GGUF:
    """Return the contents of a GGUF file.

    Raises:
        ConfigError: it is no GGUF file of a known version, or holds weights of an unknown format.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = _Reader(data)
        magic, version, num_tensors, num_entries = reader.take("4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ConfigError(f"{path} is no GGUF file of version 2 or 3")
        metadata: dict[str, Any] = {}
        for _ in range(num_entries):
            key = reader.text()
            metadata[key] = reader.value(reader.take("I")[0])
        infos: list[tuple[str, tuple[int, ...], int, int]] = []
        for _ in range(num_tensors):
            name = reader.text()
            shape = reader.take(f"{reader.take('I')[0]}Q")
            kind, offset = reader.take("IQ")
            infos.append((name, shape[::-1], kind, offset))
        alignment = metadata.get("general.alignment", 32)
        start = -(-reader.at // alignment) * alignment
        tensors = {name: _dequantised(data, start + offset, shape, kind, name) for name, shape, kind, offset in infos}
    return GGUF(metadata, tensors)


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.at = 0

    def take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self._data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values

    def text(self) -> str:
        (length,) = struct.unpack_from("<Q", self._data, self.at)
        self.at += 8 + length
        return self._data[self.at - length : self.at].decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            inner, length = self.take("IQ")
            if inner in _SCALARS:
                return list(self.take(f"{length}{_SCALARS[inner]}"))
            return [self.value(inner) for _ in range(length)]
        return self.take(_SCALARS[kind])[0]


def _dequantised(data: mmap.mmap, offset: int, shape: tuple[int, ...], kind: int, name: str) -> NDArray[np.float32]:
    count = int(np.prod(shape))
    if kind == _F32:
        return np.frombuffer(data, "<f4", count, offset).reshape(shape).copy()
    if kind == _Q8_0:
        blocks = np.frombuffer(data, _Q8_0_BLOCK, count // _BLOCK, offset)
        return (blocks["values"] * blocks["scale"].astype(np.float32)[:, None]).reshape(shape)
    if kind == _Q4_1:
        blocks = np.frombuffer(data, _Q4_1_BLOCK, count // _BLOCK, offset)
        nibbles = blocks["nibbles"]
        levels = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.float32)  # low halves come first
        levels *= blocks["scale"].astype(np.float32)[:, None]
        levels += blocks["least"].astype(np.float32)[:, None]
        return levels.reshape(shape)
    raise ConfigError(f"weights {name!r} have GGUF type {kind}, but only F32 (0), Q4_1 (3) and Q8_0 (8) are read")
