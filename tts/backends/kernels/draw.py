"""The CPU's draw of tokens, at memory speed.

One uniform number a row is passed through the inverse CDF in token-id order. The plain reference is
`tts.backends.sampling.draw`, which has the same distribution. Probabilities are float32, summed in float64: a uniform
number within about 1e-7 of an edge of the CDF may fall on the edge's other side.

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

_STRIDE = 1024  # probabilities of a stretch, whose sum is kept
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
        rows: [R] indices of the rows of logits.
        samplings: R sampling parameters.
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
        team: The threads that share the rows.
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
    draws = HostDraws(np.empty(count, np.int64), np.empty(count, np.float64))
    parts = team.cuts(count, count * logits.shape[1], worth=1 << 17)
    team.run(_draws, [(logits, rows, settings, numbers, *draws, begin, end) for begin, end in parts])
    return draws


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
    """Write e**((logit - top) * scale) to `weights`, 0 below e**-87, and return their sum.

    The sums of stretches are written to `sums`.
    """
    for j in range(row.shape[0]):
        x = (row[j] - top) * scale
        weights[j] = exponential(x) if x > f32(-87) else f32(0)
    return _sum(weights, sums)


@compile_function
def _sum(weights: Any, sums: Any) -> float:
    lanes = np.empty(_LANES, np.float64)
    grand_total = 0.0
    for stretch in range(sums.shape[0]):
        start, stop = stretch * _STRIDE, min((stretch + 1) * _STRIDE, weights.shape[0])
        lanes[:] = 0.0
        even = start + (stop - start) // _LANES * _LANES
        for j in range(start, even, _LANES):
            for lane in range(_LANES):
                lanes[lane] += weights[j + lane]
        total = 0.0
        for lane in range(_LANES):
            total += lanes[lane]
        for j in range(even, stop):
            total += weights[j]
        sums[stretch] = total
        grand_total += total
    return grand_total


@compile_function
def _keep_above(weights: Any, sums: Any, min_p: float) -> None:
    """Drop tokens that are less likely than `min_p` times the most likely token."""
    top = f32(0)
    for j in range(weights.shape[0]):
        top = max(top, weights[j])
    for j in range(weights.shape[0]):
        if weights[j] < min_p * top:
            weights[j] = f32(0)
    _sum(weights, sums)


@compile_function
def _keep_most_likely(weights: Any, sums: Any, top_k: int, top_p: float) -> None:
    """Keep the `top_k` most likely tokens (0: all), then of these the fewest with `top_p` of their mass.

    Lower ids win ties.
    """
    total = 0.0
    for stretch in range(sums.shape[0]):
        total += sums[stretch]
    floor, count = _threshold(weights, top_k, top_p * total)
    ids, likely = np.empty(count, np.int64), np.empty(count, np.float32)
    count = 0
    for j in range(weights.shape[0]):
        if weights[j] >= floor:
            ids[count], likely[count] = j, -weights[j]
            count += 1
    ranking = np.argsort(likely, kind="mergesort")
    if 0 < top_k < count:
        ranking = ranking[:top_k]
        total = 0.0
        for i in range(top_k):
            total += -likely[ranking[i]]
    num_kept = _count_for_mass(likely, ranking, top_p * total) if top_p < 1 else ranking.shape[0]
    weights[:] = f32(0)
    for i in range(num_kept):
        weights[ids[ranking[i]]] = -likely[ranking[i]]
    _sum(weights, sums)


@compile_function
def _threshold(weights: Any, top_k: int, mass: float) -> Any:
    """Return a weight below which no token is kept, and the number of tokens with at least this weight.

    Only these tokens must be sorted: sorting all tokens would take longer than everything else.
    """
    floor = f32(1e-3)
    while True:
        count, total = 0, 0.0
        for j in range(weights.shape[0]):
            if weights[j] >= floor:
                count += 1
                total += weights[j]
        enough = count >= top_k if top_k > 0 else total >= mass * (1 + 1e-6)
        if enough or floor == f32(0):
            return floor, count
        floor = floor * f32(1e-3) if floor > f32(1e-30) else f32(0)


@compile_function
def _count_for_mass(likely: Any, ranking: Any, mass: float) -> int:
    """Return the least number of first-ranked tokens whose mass is at least `mass`."""
    total = 0.0
    for i in range(ranking.shape[0]):
        total += -likely[ranking[i]]
        if total >= mass:
            return i + 1
    return ranking.shape[0]


@compile_function
def _inverse(weights: Any, sums: Any, u: float) -> int:
    """Return the first token whose cumulated weight is above u times the sum; never a token of weight 0."""
    total = 0.0
    for stretch in range(sums.shape[0]):
        total += sums[stretch]
    target, cumulated, mass_before, chosen = u * total, 0.0, 0.0, 0
    for stretch in range(sums.shape[0]):
        if sums[stretch] > 0:
            chosen, mass_before = stretch, cumulated
            cumulated += sums[stretch]
            if cumulated > target:
                break
    token = -1
    for j in range(chosen * _STRIDE, min((chosen + 1) * _STRIDE, weights.shape[0])):
        if weights[j] > 0:
            token = j
            mass_before += weights[j]
            if mass_before > target:
                break
    return token
