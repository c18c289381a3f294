"""The CPU's draw of tokens, at memory speed.

One uniform number a row is passed through the inverse CDF in token-id order. The plain reference is
`tts.backends.sampling.draw`, whose distribution this obeys. Probabilities are float32, summed in float64: a uniform
number within about 1e-7 of an edge of the CDF may fall on its other side.

Shapes: L rows of logits, V vocabulary, R draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts.backends.base import Sampling
from tts.backends.kernels.host import Team, compile_function, exponential, f32
from tts.randomness import uniforms

_STRIDE = 1024  # probabilities that are summed before a sum is looked at
_LANES = 16


class HostDraws(NamedTuple):
    """Drawn tokens [R], and natural, untempered logprobs [R].

    A token is -1 where the logits are not valid (NaN, +inf, or nothing but -inf).
    """

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float64]


class DrawRequest(NamedTuple):
    """Rows that need a token.

    Args:
        rows: [R] which row of logits each draws from.
        samplings: R of them.
        streams: [R] streams of their uniform numbers (see `tts.randomness.uniform`).
        positions: [R] positions of their uniform numbers in the streams.
        words: [R] words of their uniform numbers.
    """

    rows: NDArray[np.int64]
    samplings: Sequence[Sampling]
    streams: NDArray[np.uint64]
    positions: NDArray[np.int64]
    words: NDArray[np.uint64]

    def take_rows(self, some: NDArray[np.intp]) -> DrawRequest:
        """Return some of the rows."""
        samplings = [self.samplings[index] for index in some.tolist()]
        return DrawRequest(self.rows[some], samplings, self.streams[some], self.positions[some], self.words[some])


def draw_rows(logits: NDArray[np.float32], request: DrawRequest, team: Team) -> HostDraws:
    """Draw a token for each row of a request.

    Args:
        logits: [L, V].
        request: The rows.
        team: The threads that share them.
    """
    return draw_at(
        logits, request.rows, request.samplings, uniforms(request.streams, request.positions, request.words), team
    )


def draw_at(
    logits: NDArray[np.float32],
    rows: NDArray[np.int64],
    samplings: Sequence[Sampling],
    numbers: NDArray[np.float64],
    team: Team,
) -> HostDraws:
    """Draw a token for each of R rows by given uniform numbers [R] in [0, 1)."""
    count = len(rows)
    settings = np.array([(s.temperature, s.top_p, s.top_k, s.min_p) for s in samplings], np.float64).reshape(count, 4)
    found = HostDraws(np.empty(count, np.int64), np.empty(count, np.float64))
    parts = team.cuts(count, count * logits.shape[1], worth=1 << 17)
    team.run(_draws, [(logits, rows, settings, numbers, *found, begin, end) for begin, end in parts])
    return found


@compile_function
def _draws(
    logits: Any, rows: Any, settings: Any, uniforms: Any, tokens: Any, logprobs: Any, begin: int, end: int
) -> None:
    size = logits.shape[1]
    weights = np.empty(size, np.float32)
    sums = np.empty(-(-size // _STRIDE), np.float64)
    for r in range(begin, end):
        row = logits[rows[r]]
        best = _best(row)
        if best < 0:
            tokens[r], logprobs[r] = -1, np.nan
            continue
        temperature, top_p, top_k, min_p = settings[r]
        top = row[best]
        total = _weights(row, top, f32(1), weights, sums)
        token = best
        if temperature > 0:
            if temperature != 1:
                _weights(row, top, f32(min(1 / temperature, 3e38)), weights, sums)
            if 0 < top_k < size or top_p < 1:
                _keep_most_likely(weights, sums, int(min(top_k, size)), top_p)
            if min_p > 0:
                _keep_above(weights, sums, f32(min_p))
            token = _inverse(weights, sums, uniforms[r])
        tokens[r] = token
        logprobs[r] = (np.float64(row[token]) - np.float64(top)) - math.log(total)


@compile_function
def _best(row: Any) -> int:
    """Return the index of the largest logit, the first among equals; -1 where the logits are not valid."""
    best, top = -1, f32(-np.inf)
    bad = 0
    for j in range(row.shape[0]):
        x = row[j]
        if not x < f32(np.inf):  # NaN as well
            bad += 1
        if x > top:
            best, top = j, x
    return best if bad == 0 else -1


@compile_function
def _weights(row: Any, top: float, scale: float, weights: Any, sums: Any) -> float:
    """Write e**((logit - top) * scale) to `weights`, 0 below e**-87, its sums by stretches to `sums`, and return the
    whole sum.
    """
    for j in range(row.shape[0]):
        x = (row[j] - top) * scale
        weights[j] = exponential(x) if x > f32(-87) else f32(0)
    return _sum(weights, sums)


@compile_function
def _sum(weights: Any, sums: Any) -> float:
    lanes = np.empty(_LANES, np.float64)
    whole = 0.0
    for stretch in range(sums.shape[0]):
        first, last = stretch * _STRIDE, min((stretch + 1) * _STRIDE, weights.shape[0])
        lanes[:] = 0.0
        even = first + (last - first) // _LANES * _LANES
        for j in range(first, even, _LANES):
            for lane in range(_LANES):
                lanes[lane] += weights[j + lane]
        total = 0.0
        for lane in range(_LANES):
            total += lanes[lane]
        for j in range(even, last):
            total += weights[j]
        sums[stretch] = total
        whole += total
    return whole


@compile_function
def _keep_above(weights: Any, sums: Any, least: float) -> None:
    """Drop what is less likely than `least` times the most likely token (min-p)."""
    top = f32(0)
    for j in range(weights.shape[0]):
        top = max(top, weights[j])
    for j in range(weights.shape[0]):
        if weights[j] < least * top:
            weights[j] = f32(0)
    _sum(weights, sums)


@compile_function
def _keep_most_likely(weights: Any, sums: Any, top_k: int, top_p: float) -> None:
    """Keep the `top_k` most likely tokens (0: all), then the fewest whose mass is at least `top_p` of theirs; lower ids
    win ties.
    """
    total = 0.0
    for stretch in range(sums.shape[0]):
        total += sums[stretch]
    least, count = _threshold(weights, top_k, top_p * total)
    ids, likely = np.empty(count, np.int64), np.empty(count, np.float32)
    count = 0
    for j in range(weights.shape[0]):
        if weights[j] >= least:
            ids[count], likely[count] = j, -weights[j]
            count += 1
    ranked = np.argsort(likely, kind="mergesort")
    if 0 < top_k < count:
        ranked = ranked[:top_k]
        total = 0.0
        for i in range(top_k):
            total += -likely[ranked[i]]
    kept = _count_for_mass(likely, ranked, top_p * total) if top_p < 1 else ranked.shape[0]
    weights[:] = f32(0)
    for i in range(kept):
        weights[ids[ranked[i]]] = -likely[ranked[i]]
    _sum(weights, sums)


@compile_function
def _threshold(weights: Any, top_k: int, mass: float) -> Any:
    """Return a weight, and how many tokens have at least that, such that they hold all that may be kept.

    Sorting all tokens would take longer than everything else.
    """
    least = f32(1e-3)
    while True:
        count, held = 0, 0.0
        for j in range(weights.shape[0]):
            if weights[j] >= least:
                count += 1
                held += weights[j]
        enough = count >= top_k if top_k > 0 else held >= mass * (1 + 1e-6)
        if enough or least == f32(0):
            return least, count
        least = least * f32(1e-3) if least > f32(1e-30) else f32(0)


@compile_function
def _count_for_mass(likely: Any, ranked: Any, mass: float) -> int:
    """Return how many of the ranked tokens hold a mass."""
    held = 0.0
    for i in range(ranked.shape[0]):
        held += -likely[ranked[i]]
        if held >= mass:
            return i + 1
    return ranked.shape[0]


@compile_function
def _inverse(weights: Any, sums: Any, u: float) -> int:
    """Return the first token whose cumulated weight is above u times the whole; never one of weight 0."""
    whole = 0.0
    for stretch in range(sums.shape[0]):
        whole += sums[stretch]
    wanted, passed, before, found = u * whole, 0.0, 0.0, 0
    for stretch in range(sums.shape[0]):
        if sums[stretch] > 0:
            found, before = stretch, passed
            passed += sums[stretch]
            if passed > wanted:
                break
    token = -1
    for j in range(found * _STRIDE, min((found + 1) * _STRIDE, weights.shape[0])):
        if weights[j] > 0:
            token = j
            before += weights[j]
            if before > wanted:
                break
    return token
