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
from tts.backends.prompt_logprobs import most_likely
from tts.backends.sampling import log_softmax, sampling_logprob, spread
from tts.errors import EngineError
from tts.randomness import uniforms

_STRIDE = 1024  # tokens of a stretch; the sum of each stretch's weights is kept
_LANES = 16


class HostDraws(NamedTuple):
    """Drawn tokens.

    Args:
        tokens: [R]; -1 where the logits are not valid (NaN, +inf, or nothing but -inf).
        logprobs: [R] natural, untempered log-probabilities of the tokens.
        sampling_logprobs: [R] log-probabilities under the laws that drew the tokens; NaN where they are not asked for.
        spreads: [R, 3] the numbers of `Spread`; NaN where they are not asked for.
    """

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    sampling_logprobs: NDArray[np.float64]
    spreads: NDArray[np.float64]

    @classmethod
    def empty(cls, count: int) -> HostDraws:
        """Return room for some draws, of which nothing is asked for but tokens."""
        unknown = np.full((4, count), np.nan)
        return cls(np.empty(count, np.int64), np.empty(count, np.float64), unknown[0], unknown[1:].T)


class DrawRequest(NamedTuple):
    """Rows that need a token.

    Args:
        rows: [R] indices of the rows of logits.
        samplings: R sampling parameters.
        streams: [R] streams of their uniform numbers (see `tts.randomness.uniform`).
        positions: [R] positions of their uniform numbers in the streams.
        words: [R] words of their uniform numbers.
        spreads: [R] whether the spread of a row is wanted.
        sampling_logprobs: [R] whether a token's log-probability under its law is wanted.
    """

    rows: NDArray[np.int64]
    samplings: Sequence[Sampling]
    streams: NDArray[np.uint64]
    positions: NDArray[np.int64]
    words: NDArray[np.uint64]
    spreads: NDArray[np.bool_]
    sampling_logprobs: NDArray[np.bool_]

    def pack(self) -> NDArray[np.int64]:
        """Return [7, R] numbers of 8 bytes for a device, in the order of the rows' words.

        They are the bits of row, stream, position, top_k, temperature, top_p and min_p.
        """
        laws = [(s.temperature, s.top_p, s.min_p) for s in self.samplings]
        settings = np.array(laws, np.float64).reshape(-1, 3).T
        top_k = np.array([s.top_k for s in self.samplings], np.int64)
        integers = [self.rows, self.streams.view(np.int64), self.positions, top_k]
        return np.concatenate([np.stack(integers), settings.view(np.int64)])[:, self.by_word]

    @property
    def by_word(self) -> NDArray[np.intp]:
        """The rows, ordered by their words [R]."""
        return np.argsort(self.words, kind="stable")

    def take_rows(self, indices: NDArray[np.intp]) -> DrawRequest:
        """Return the request for the rows at some indices."""
        arrays: dict[str, Any] = {name: array[indices] for name, array in self._asdict().items() if name != "samplings"}
        return DrawRequest(samplings=[self.samplings[index] for index in indices.tolist()], **arrays)


class ReadRequest(NamedTuple):
    """Log-probabilities of tokens that are read, not drawn.

    Args:
        rows: [n] indices of the rows of logits.
        tokens: The ids whose log-probabilities are wanted, for each row.
        top: The number of most likely tokens that are wanted behind each row.
    """

    rows: NDArray[np.int64]
    tokens: Sequence[Sequence[int]]
    top: int = 0

    def pack(self) -> NDArray[np.int64]:
        """Return numbers for a device: the rows, the index into `rows` of each token, and the tokens.

        Each row has token 0 as one more, whose log-probability tells whether the row is valid.
        """
        counts = [len(ids) + 1 for ids in self.tokens]
        tokens = [token for ids in self.tokens for token in (*ids, 0)]
        return np.concatenate([self.rows, np.repeat(np.arange(len(counts)), counts), np.array(tokens, np.int64)])


class LogitReading(NamedTuple):
    """The numbers read from one row of logits.

    Args:
        logprobs: Natural log-probabilities of the wanted tokens.
        likely: The most likely tokens with their log-probabilities, best first, the lowest id among equals.
    """

    logprobs: NDArray[np.float64]
    likely: tuple[tuple[int, float], ...]


def draw_rows(logits: NDArray[np.float32], request: DrawRequest, team: Team) -> HostDraws:
    """Draw a token for each row of a request.

    Args:
        logits: [L, V].
        request: The rows.
        team: The threads that share the rows.
    """
    numbers = uniforms(request.streams, request.positions, request.words)
    draws = draw_at(logits, request.rows, request.samplings, numbers, team)
    for index in np.flatnonzero((request.spreads | request.sampling_logprobs) & (draws.tokens >= 0)).tolist():
        logprobs = log_softmax(logits[request.rows[index]])
        if request.spreads[index]:
            draws.spreads[index] = spread(logprobs)
        if request.sampling_logprobs[index]:
            token = int(draws.tokens[index])
            draws.sampling_logprobs[index] = sampling_logprob(logprobs, request.samplings[index], token)
    return draws


def read_rows(logits: NDArray[np.float32], request: ReadRequest) -> list[LogitReading | None]:
    """Return what is read of each row of a request, from logits [L, V]; None for a row that is not valid."""
    readings: list[LogitReading | None] = []
    for row, tokens in zip(request.rows.tolist(), request.tokens, strict=True):
        try:
            logprobs = log_softmax(logits[row])
        except EngineError:
            readings.append(None)
            continue
        likely = tuple((token, float(logprobs[token])) for token in most_likely(logprobs, request.top))
        readings.append(LogitReading(logprobs[list(tokens)], likely))
    return readings


def draw_at(
    logits: NDArray[np.float32],
    rows: NDArray[np.int64],
    samplings: Sequence[Sampling],
    numbers: NDArray[np.float64],
    team: Team,
) -> HostDraws:
    """Draw a token for each of R rows by given uniform numbers [R] in [0, 1)."""
    count = len(rows)
    # [R, 4] temperature, top_p, top_k, min_p
    settings = np.array([(s.temperature, s.top_p, s.top_k, s.min_p) for s in samplings], np.float64).reshape(count, 4)
    draws = HostDraws.empty(count)
    parts = team.cuts(count, count * logits.shape[1], worth=1 << 17)
    args = (logits, rows, settings, numbers, draws.tokens, draws.logprobs)
    team.run(_write_draws, [(*args, begin, end) for begin, end in parts])
    return draws


@compile_function
def _write_draws(
    logits: Any, rows: Any, settings: Any, uniforms: Any, tokens: Any, logprobs: Any, begin: int, end: int
) -> None:
    """Write the tokens and log-probabilities of the draws from `begin` to before `end`."""
    size = logits.shape[1]
    num_stretches = (size + _STRIDE - 1) // _STRIDE
    weights = np.empty(size, np.float32)
    sums = np.empty(num_stretches, np.float64)  # of the weights of each stretch
    for draw in range(begin, end):
        row = logits[rows[draw]]
        best = _best(row)
        if best < 0:
            tokens[draw] = -1
            logprobs[draw] = np.nan
            continue
        temperature, top_p, top_k, min_p = settings[draw]
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
            token = _inverse(weights, sums, uniforms[draw])
        tokens[draw] = token
        logprobs[draw] = (np.float64(row[token]) - np.float64(top)) - math.log(total)


@compile_function
def _best(row: Any) -> int:
    """Return the index of the largest logit, the first among equals; -1 where the logits are not valid."""
    best, top = -1, f32(-np.inf)
    num_invalid = 0
    for token in range(row.shape[0]):
        logit = row[token]
        if not logit < f32(np.inf):  # NaN as well
            num_invalid += 1
        if logit > top:
            best = token
            top = logit
    return best if num_invalid == 0 else -1


@compile_function
def _weights(row: Any, top: float, scale: float, weights: Any, sums: Any) -> float:
    """Write the weight e**((logit - top) * scale) of each token to `weights`, 0 where it is below e**-87.

    The sums of stretches are written to `sums`, and the sum of all weights is returned.
    """
    for token in range(row.shape[0]):
        x = (row[token] - top) * scale
        weights[token] = exponential(x) if x > f32(-87) else f32(0)
    return _sum(weights, sums)


@compile_function
def _sum(weights: Any, sums: Any) -> float:
    """Write the sums of parts of the weights to `sums`, and return the sum of all weights.

    Each part, called a stretch, has `_STRIDE` successive tokens; the last stretch may have fewer. A stretch is added up
    in 16 lanes, so that the compiler can use vectors.
    """
    lanes = np.empty(_LANES, np.float64)
    grand_total = 0.0
    for stretch in range(sums.shape[0]):
        begin, end = stretch * _STRIDE, min((stretch + 1) * _STRIDE, weights.shape[0])
        lanes[:] = 0.0
        num_rounds = (end - begin) // _LANES
        lanes_end = begin + num_rounds * _LANES  # the tokens from here to `end` do not fill all lanes
        for token in range(begin, lanes_end, _LANES):
            for lane in range(_LANES):
                lanes[lane] += weights[token + lane]
        total = 0.0
        for lane in range(_LANES):
            total += lanes[lane]
        for token in range(lanes_end, end):
            total += weights[token]
        sums[stretch] = total
        grand_total += total
    return grand_total


@compile_function
def _keep_above(weights: Any, sums: Any, min_p: float) -> None:
    """Drop tokens that are less likely than `min_p` times the most likely token."""
    largest = f32(0)
    for token in range(weights.shape[0]):
        largest = max(largest, weights[token])
    for token in range(weights.shape[0]):
        if weights[token] < min_p * largest:
            weights[token] = f32(0)
    _sum(weights, sums)


@compile_function
def _keep_most_likely(weights: Any, sums: Any, top_k: int, top_p: float) -> None:
    """Set the weights of all tokens to 0 except those that top-k and then top-p keep.

    Top-k keeps the `top_k` most likely tokens (0: all). Among these, top-p keeps the fewest tokens that have the share
    `top_p` of their mass. Lower ids win ties.
    """
    total = 0.0
    for stretch in range(sums.shape[0]):
        total += sums[stretch]
    floor, num_candidates = _threshold(weights, top_k, top_p * total)
    ids, negative_weights = np.empty(num_candidates, np.int64), np.empty(num_candidates, np.float32)
    candidate = 0
    for token in range(weights.shape[0]):
        if weights[token] >= floor:
            ids[candidate] = token
            negative_weights[candidate] = -weights[token]
            candidate += 1
    ranking = np.argsort(negative_weights, kind="mergesort")  # stable, the most likely candidate first
    if 0 < top_k < num_candidates:
        ranking = ranking[:top_k]
        total = 0.0
        for i in range(top_k):
            total += -negative_weights[ranking[i]]
    num_kept = _count_for_mass(negative_weights, ranking, top_p * total) if top_p < 1 else ranking.shape[0]
    weights[:] = f32(0)
    for i in range(num_kept):
        weights[ids[ranking[i]]] = -negative_weights[ranking[i]]
    _sum(weights, sums)


@compile_function
def _threshold(weights: Any, top_k: int, mass: float) -> Any:
    """Return a weight below which no token is kept, and the number of tokens with at least this weight.

    The weight is found by trial: it is lowered until enough tokens, or enough `mass`, are above it. So only a few
    tokens must be sorted, since sorting all tokens would take longer than everything else.
    """
    floor = f32(1e-3)
    while True:
        count, total = 0, 0.0
        for token in range(weights.shape[0]):
            if weights[token] >= floor:
                count += 1
                total += weights[token]
        is_enough = count >= top_k if top_k > 0 else total >= mass * (1 + 1e-6)
        if is_enough or floor == f32(0):
            return floor, count
        floor = floor * f32(1e-3) if floor > f32(1e-30) else f32(0)


@compile_function
def _count_for_mass(negative_weights: Any, ranking: Any, mass: float) -> int:
    """Return the least number of first-ranked tokens whose mass is at least `mass`."""
    total = 0.0
    for i in range(ranking.shape[0]):
        total += -negative_weights[ranking[i]]
        if total >= mass:
            return i + 1
    return ranking.shape[0]


@compile_function
def _inverse(weights: Any, sums: Any, u: float) -> int:
    """Return the first token whose cumulated weight is above u times the sum; never a token of weight 0.

    The stretch with the token is found by the sums of stretches, then the token by the stretch's weights. Where
    rounding leaves the target above all cumulated weights, the last token with a weight is taken.
    """
    total = 0.0
    for stretch in range(sums.shape[0]):
        total += sums[stretch]
    target = u * total
    mass_before, cumulated, chosen_stretch = 0.0, 0.0, 0
    for stretch in range(sums.shape[0]):
        if sums[stretch] > 0:
            chosen_stretch = stretch
            mass_before = cumulated  # of the stretches before
            cumulated += sums[stretch]
            if cumulated > target:
                break
    begin, end = chosen_stretch * _STRIDE, min((chosen_stretch + 1) * _STRIDE, weights.shape[0])
    cumulated = mass_before
    chosen_token = -1
    for token in range(begin, end):
        if weights[token] > 0:
            chosen_token = token
            cumulated += weights[token]
            if cumulated > target:
                break
    return chosen_token
