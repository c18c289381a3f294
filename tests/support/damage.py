"""Faults of files: one byte or number that is wrong, a cut, a piece that is missing or twice."""

from __future__ import annotations

import struct

import numpy as np


def mutate(content: bytes, draw: np.random.Generator) -> bytes:
    """Return a content with one fault.

    The fault is a cut, other bytes, other numbers, or a piece that is missing or twice.
    """
    place = int(draw.integers(len(content) if draw.random() < 0.3 else min(len(content), 6000)))
    kind = draw.integers(6)
    if kind == 0:
        return content[:place]
    if kind == 1:
        return content[:place] + draw.bytes(1) + content[place + 1 :]
    if kind == 2:
        number = (0, 1, 255, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)[draw.integers(8)]
        return content[:place] + struct.pack("<Q", number) + content[place + 8 :]
    if kind == 3:
        return content[:place] + draw.bytes(16) + content[place + 16 :]
    if kind == 4:
        return content[:place] + content[place + int(draw.integers(1, 64)) :]
    return content[:place] + content[max(0, place - 32) :]
