"""Random draws by address: the stream, the position and the use of a draw, never its time.

Every token is drawn from one uniform number that is a function of (stream, absolute position, word); streams are
64-bit hashes that a search assigns (architecture, "Streams"). Nothing here has a state, so nothing depends on batch,
order or restarts.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): Philox4x32-10.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from tts.types import Problem

# Fourth counter word: which use of a (stream, position) is meant. Scratch work must not repeat the path's own draws.
MAIN_WORD = 0
SCRATCH_WORD = 1

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF


def hash64(*parts: int | str) -> int:
    """Return a 64-bit hash of a sequence of whole numbers (below 2**64 in size) and texts.

    It is equal on every machine.
    """
    digest = blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, str):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(b"s" + len(data).to_bytes(8, "little") + data)
        else:
            digest.update(b"i" + (part & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little"))
    return int.from_bytes(digest.digest(), "little")


def problem_key(problem: Problem, task: str) -> int:
    """Return the address of a problem: the hash of its id and its task's name.

    The prompt stands in for the id where the problem has none.
    """
    return hash64("problem", problem.id if problem.id is not None else problem.text, task)


def root_stream(seed: int, key: int, kind: str, *texts: str) -> int:
    """Return the stream of a root.

    The texts `texts` are those that a prompt of another kind was made from, so that two such roots differ.
    """
    return hash64("root", seed, key, kind, *texts)


def child_stream(stream: int, num_tokens: int, index: int) -> int:
    """Return the random stream of a trajectory's child.

    The first child (index 0) keeps the stream of its parent, so a path of first children is one sample. Any other
    stream is a hash of the parent's stream, its number of tokens and the index.
    """
    if index == 0:
        return stream
    packed = stream.to_bytes(8, "little") + num_tokens.to_bytes(8, "little") + index.to_bytes(8, "little")
    return int.from_bytes(blake2b(packed, digest_size=8, person=b"child").digest(), "little")


def philox(key: int, counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Return the four 32-bit words of Philox4x32-10 for a 64-bit key and four 32-bit counter words."""
    k0, k1 = key & _MASK, key >> 32
    c0, c1, c2, c3 = counter
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _MASK, (p0 >> 32) ^ c3 ^ k1, p0 & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return c0, c1, c2, c3


def uniform(stream: int, position: int, word: int = MAIN_WORD) -> float:
    """Return the uniform number in [0, 1) of one token: 53 bits of Philox at (stream; position, word)."""
    w0, w1, _, _ = philox(stream, (position & _MASK, position >> 32, 0, word))
    return ((w0 << 21) | (w1 >> 11)) * 2.0**-53


def uniforms(
    streams: NDArray[np.uint64], positions: NDArray[np.int64], word: int | NDArray[np.uint64] = MAIN_WORD
) -> NDArray[np.float64]:
    """Return `uniform` for many rows at once, bit for bit the same.

    Shapes: streams, positions and the result [rows]; `word` is one for all, or [rows].
    """
    mask, shift = np.uint64(_MASK), np.uint64(32)
    position = positions.astype(np.uint64)
    k0, k1 = streams & mask, streams >> shift
    c0, c1 = position & mask, position >> shift
    c2, c3 = np.zeros_like(c0), np.full_like(c0, word)
    for _ in range(10):
        p0, p1 = np.uint64(_M0) * c0, np.uint64(_M1) * c2
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ k0, p1 & mask, (p0 >> shift) ^ c3 ^ k1, p0 & mask
        k0, k1 = (k0 + np.uint64(_W0)) & mask, (k1 + np.uint64(_W1)) & mask
    return ((c0 << np.uint64(21)) | (c1 >> np.uint64(11))).astype(np.float64) * 2.0**-53


def generator(seed: int, key: int, purpose: str, *address: int | str) -> np.random.Generator:
    """Return a fresh generator for draws that are no tokens (resampling, ties).

    One address always restarts the same draws.
    """
    return np.random.Generator(np.random.Philox(key=hash64("generator", seed, key, purpose, *address)))
