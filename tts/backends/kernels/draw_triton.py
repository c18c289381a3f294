"""The draw of tokens on a GPU, and the log-probabilities of tokens that are read there.

A draw passes one uniform number a row through the inverse CDF in token-id order.

Idea: a first kernel sums weights over blocks of 1,024 tokens; a second one finds, for each row, the block in which the
    uniform number falls by a scan of the blocks' sums, then the token by a scan inside that block. The number itself is
    made in the kernel, bit for bit that of `tts.randomness.uniform`.
Shapes: L rows of logits, V vocabulary, R draws.
Numbers: exponentials in float32, sums in float64 in one fixed order that does not depend on the other rows; a uniform
    number within about 1e-6 of an edge of the CDF may fall on its other side. The reference is
    `tts.backends.sampling.draw`.
"""
# pyright: reportMissingParameterType=false
# (a kernel's arguments have no Python type: tensors arrive as pointers)

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from tts.backends.kernels.attention_triton import launch_at
from tts.randomness import MAIN_WORD
from tts.types import TOP_TOKENS

_BLOCK = 1024  # tokens of a block
_ROWS = 1024  # most rows of one launch of `uniforms`
_LAUNCH = {"num_warps": 4, "enable_fp_fusion": True}
# arrays of one number a row, which begin anywhere: no kernel is compiled anew for their addresses
ANYWHERE = [
    "rows", "temperatures", "floors", "lasts", "streams", "positions", "indices", "tokens", "logprobs",
    "sampling_logprobs",
]  # fmt: skip


class DeviceDraws(NamedTuple):
    """The drawn tokens.

    Args:
        tokens: [R] int64; -1 where the logits are not valid: NaN, +inf, or nothing but -inf.
        logprobs: [R] float64 natural-log probability under the untempered, unfiltered distribution; NaN where there is
            no token.
        sampling_logprobs: [R] float64 natural-log probability under the distribution drawn from.
    """

    tokens: torch.Tensor
    logprobs: torch.Tensor
    sampling_logprobs: torch.Tensor


class Cut(NamedTuple):
    """The tokens that a row's filters keep.

    A token is kept if its logit is above the row's floor, or equals the floor and its id is at most the row's last id.

    Args:
        floors: [R] float32 logits; -inf keeps all.
        lasts: [R] int64 ids, the last that are kept at the floors.
    """

    floors: torch.Tensor
    lasts: torch.Tensor


def cut(
    logits: torch.Tensor, temperatures: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor
) -> Cut:
    """Return the tokens that top-k, then top-p, then min-p keep, by one sort of each row.

    Equal logits are ranked by id.

    Args:
        logits: [R, V] the rows to draw from.
        temperatures: [R]; filters do nothing to a row of temperature 0.
        top_k: [R] whole numbers, 0 is off.
        top_p: [R] in (0, 1], 1 is off.
        min_p: [R] in [0, 1), 0 is off.
    """
    sorted_logits, ids = torch.sort(logits.float(), dim=-1, descending=True, stable=True)
    rank = torch.arange(sorted_logits.shape[1], device=sorted_logits.device)
    divisor = torch.where(temperatures == 0, 1.0, temperatures).double().unsqueeze(1)  # [R, 1]
    depths = sorted_logits.double() - sorted_logits[:, :1].double()
    weights = (depths / divisor).exp()  # [R, V]; the largest of a row is 1, since only ratios count
    is_top_k = rank < torch.where(top_k == 0, len(rank), top_k).unsqueeze(1)
    # integers in units of 2**-44, whose sums are the same in any order: torch's order of a row's sum depends on the
    # number of rows
    mass = (torch.where(is_top_k, weights, 0.0) * 2.0**44).round().long().cumsum(1)
    # top-p keeps a token if the tokens before have less than the wanted mass
    mass_before = torch.cat([torch.zeros_like(mass[:, :1]), mass[:, :-1]], 1)
    wanted_mass = top_p.double().unsqueeze(1) * mass[:, -1:].double()
    is_top_p = (top_p.unsqueeze(1) >= 1) | (mass_before.double() < wanted_mass)
    is_kept = is_top_k & is_top_p & (weights >= min_p.double().unsqueeze(1))
    last_kept = is_kept.sum(1, keepdim=True).sub_(1).clamp_(min=0)  # every filter keeps a prefix of the ranked tokens
    return Cut(floors=sorted_logits.gather(1, last_kept)[:, 0], lasts=ids.gather(1, last_kept)[:, 0])


def draw(
    logits: torch.Tensor,
    temperatures: torch.Tensor,
    streams: torch.Tensor,
    positions: torch.Tensor,
    *,
    rows: torch.Tensor | None = None,
    word: int = MAIN_WORD,
    kept: Cut | None = None,
    out: DeviceDraws | None = None,
) -> DeviceDraws:
    """Draw a token for each of R rows, on a GPU, or anywhere in Triton's interpreter.

    Args:
        logits: [L, V] of any float type and strides; the computation is in float32.
        temperatures: [R] of any float type; 0 takes the most likely token, the lowest id among equals.
        streams: [R] int64: the 64 bits of each row's unsigned stream.
        positions: [R] int64: the position of each number in its stream.
        rows: [R] int64 the row of logits of each draw; None: L is R, and draw i uses row i.
        word: The word of the uniform numbers, which tells draws of different purposes apart.
        kept: The tokens that the filters keep in each draw's row, the most likely one included; None: all.
        out: Where the results are written; None: they are new.
    """
    num_draws, device = len(streams), logits.device
    if out is None:
        numbers = torch.empty(2, num_draws, dtype=torch.float64, device=device)
        out = DeviceDraws(torch.empty(num_draws, dtype=torch.int64, device=device), *numbers)
    if not num_draws:
        return out
    rows = torch.arange(num_draws, device=device) if rows is None else rows
    floors, lasts = kept or (temperatures, rows)  # any arrays will do where nothing is cut, as they are not read
    inputs = (logits, rows, temperatures, floors, lasts)
    sums = _sum(*inputs, is_cut=kept is not None)
    launch_at(draw_rows, num_draws)(
        *inputs,
        *sums,
        streams,
        positions,
        word,
        *out,
        *_shape(logits),
        **_tokens(logits),
        **_padding(logits),
        is_cut=kept is not None,
    )
    return out


def read(
    logits: torch.Tensor, rows: torch.Tensor, indices: torch.Tensor, tokens: torch.Tensor, *, top: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log-probabilities of tokens, and the most likely tokens of each row.

    Args:
        logits: [L, V] of any float type and strides.
        rows: [n] int64 rows of logits.
        indices: [P] int64, the index into `rows` of each wanted token.
        tokens: [P] int64 ids.
        top: The number k of most likely tokens.

    Returns:
        [P + n k] float64 natural-log probabilities of the wanted tokens, then of the most likely ones, and these ones'
        ids [n, k], the lowest id first among equals. NaN in a row that is not valid.
    """
    likely = torch.stack([_most_likely(logits[row], top) for row in rows]) if top else rows.new_empty(len(rows), 0)
    indices = torch.cat([indices, torch.arange(len(rows), device=rows.device).repeat_interleave(top)])
    tokens = torch.cat([tokens, likely.ravel()])
    found = torch.empty(len(tokens), dtype=torch.float64, device=logits.device)
    tops, _, sums = _sum(logits, rows, *_plain(rows))
    if len(tokens):
        launch_at(read_tokens, len(tokens))(
            logits, rows, tops, sums, indices, tokens, found, *_shape(logits), **_padding(logits)
        )
    return found, likely


def spreads(logits: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the spreads of rows [n] of logits [L, V] are made of, each -745 at least.

    Returns:
        [n, 2] float64, the sums over all tokens of ln p and of p ln p, and [n, k] the ln p of the most likely tokens.
    """
    tops, _, sums = _sum(logits, rows, *_plain(rows))
    totals = torch.empty(len(rows), 2, dtype=torch.float64, device=logits.device)
    launch_at(spread_rows, len(rows))(
        logits, rows, tops, sums, totals, *_shape(logits), **_tokens(logits), **_padding(logits)
    )
    count = min(TOP_TOKENS, logits.shape[1])
    likely = torch.topk(logits[rows].float(), count).indices  # among equals any: their probabilities are the same
    indices = torch.arange(len(rows), device=rows.device).repeat_interleave(count)
    found, _ = read(logits, rows, indices, likely.ravel())
    return totals, found.view(-1, count).clamp(min=-745.0)


def _most_likely(row: torch.Tensor, count: int) -> torch.Tensor:
    """Return the ids of a row's largest logits, the largest first, the lowest id among equals."""
    bits = (row.float() + 0.0).view(torch.int32)  # no -0.0
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()  # integers in the order of the numbers
    ids = torch.arange(len(row), device=row.device)
    return torch.topk((ordered << 32) - ids, count).indices


def _plain(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return temperatures, floors and last ids of rows from which nothing is drawn."""
    zeros = torch.zeros(len(rows), dtype=torch.float32, device=rows.device)
    return zeros, zeros, rows


def _sum(
    logits: torch.Tensor,
    rows: torch.Tensor,
    temperatures: torch.Tensor,
    floors: torch.Tensor,
    lasts: torch.Tensor,
    *,
    is_cut: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the largest logit, its lowest id, and the sums of both distributions, for each row's blocks of tokens.

    The sums [2, R, blocks] are those of the plain distribution, then of the one drawn from.
    """
    num_rows, num_blocks, device = len(rows), triton.cdiv(logits.shape[1], _BLOCK), logits.device
    tops = torch.empty(num_rows, num_blocks, dtype=torch.float32, device=device)
    bests = torch.empty(num_rows, num_blocks, dtype=torch.int32, device=device)
    sums = torch.empty(2, num_rows, num_blocks, dtype=torch.float64, device=device)
    inputs, launch = (logits, rows, temperatures, floors, lasts), {"is_cut": is_cut, **_LAUNCH}
    launch_at(sum_blocks, num_rows, num_blocks)(
        *inputs, tops, bests, sums, *logits.stride(), **_tokens(logits), **launch
    )
    return tops, bests, sums


def _shape(logits: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of logits and the number of blocks of tokens."""
    return (*logits.stride(), triton.cdiv(logits.shape[1], _BLOCK))


def _tokens(logits: torch.Tensor) -> dict[str, int]:
    return {"vocabulary": logits.shape[1], "block": _BLOCK}


def _padding(logits: torch.Tensor) -> dict[str, Any]:
    """Return what a program needs that reads the sums of all blocks of a row."""
    return {"padded": triton.next_power_of_2(triton.cdiv(logits.shape[1], _BLOCK)), **_LAUNCH}


def uniforms(streams: torch.Tensor, positions: torch.Tensor, word: int = MAIN_WORD) -> torch.Tensor:
    """Return the uniform numbers of `tts.randomness.uniforms`, bit for bit, on the streams' device.

    The numbers are [R] float64 in [0, 1).
    """
    out = torch.empty(len(streams), dtype=torch.float64, device=streams.device)
    if len(streams):
        launch_at(write_uniforms, triton.cdiv(len(streams), _ROWS))(
            streams, positions, word, out, len(streams), rows=_ROWS, enable_fp_fusion=True
        )
    return out


@triton.jit
def _uniform(stream, position, word):
    """Return 53 bits of Philox4x32-10 at (stream; position, word) over 2**53."""
    low, high = (position & 0xFFFFFFFF).to(tl.uint32), (position >> 32).to(tl.uint32)
    w0, w1, _, _ = tl.philox(stream, low, high, low * 0, low * 0 + word.to(tl.uint32))
    return ((w0.to(tl.uint64) << 21) | (w1.to(tl.uint64) >> 11)).to(tl.float64) * 1.1102230246251565e-16


@triton.jit(do_not_specialize=["word", "num_rows"])
def write_uniforms(streams, positions, word, out, num_rows, rows: tl.constexpr):
    """Write the uniform numbers of `rows` rows."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    stream = tl.load(streams + row, mask=row < num_rows, other=0)
    position = tl.load(positions + row, mask=row < num_rows, other=0)
    tl.store(out + row, _uniform(stream, position, word), mask=row < num_rows)


@triton.jit
def _weights(x, token, top, temperature, floors, lasts, draw, is_cut: tl.constexpr):
    """Return the unscaled weights of tokens under the distribution that is drawn from.

    The weight is 1 for a logit of `top`, and 0 for a token that is filtered out.
    """
    divisor = tl.where(temperature == 0.0, 1.0, temperature)
    weight = tl.where(x == float("-inf"), 0.0, tl.exp((x - top) / divisor))
    if is_cut:
        floor, last = tl.load(floors + draw), tl.load(lasts + draw)
        weight = tl.where((x > floor) | ((x == floor) & (token <= last)), weight, 0.0)
    return weight


@triton.jit
def _normalizer(tops, sums, entry, is_block):
    """Return a row's largest logit, the blocks' largest ones and their depths, and ln of the sum of plain weights."""
    block_tops = tl.load(tops + entry, mask=is_block, other=float("-inf"))
    top = tl.max(block_tops, 0)
    is_finite = tl.abs(top) != float("inf")
    top = tl.where(is_finite, top, 0.0)
    depths = tl.where(tl.abs(block_tops) == float("inf"), 0.0, block_tops - top)  # a block of -inf alone has the sum 0
    # the sums of blocks are relative to the blocks' largest logits, so they are scaled to the row's
    plain = tl.exp(depths.to(tl.float64)) * tl.load(sums + entry, mask=is_block, other=0.0)
    return block_tops, depths, top, is_finite, tl.log(tl.where(is_finite, tl.sum(plain, 0), 1.0))


@triton.jit(do_not_specialize_on_alignment=ANYWHERE)
def sum_blocks(
    logits,
    rows,
    temperatures,
    floors,
    lasts,
    tops,
    bests,
    sums,
    row_stride,
    column_stride,
    vocabulary: tl.constexpr,
    block: tl.constexpr,
    is_cut: tl.constexpr,
):
    """Find the largest logit and the sums of both distributions, for one (draw, block of tokens).

    The distributions are the plain one and the one drawn from. The lowest id of the largest logit is found too. The
    largest logit is +inf where a logit is NaN or +inf.
    """
    draw, block_index = tl.program_id(0), tl.program_id(1)
    num_draws, num_blocks = tl.num_programs(0), tl.num_programs(1)
    token = block_index * block + tl.arange(0, block)
    place = logits + tl.load(rows + draw).to(tl.int64) * row_stride + token.to(tl.int64) * column_stride
    x = tl.load(place, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
    x = tl.where(x != x, float("inf"), x)  # noqa: PLR0124 - only NaN is not itself
    top = tl.max(x, 0)
    finite_top = tl.where(tl.abs(top) == float("inf"), 0.0, top)
    x = tl.where(x == float("inf"), 0.0, x)  # `top` marks the row as invalid; its sums must not overflow
    temperature = tl.load(temperatures + draw).to(tl.float32)
    plain = tl.where(x == float("-inf"), 0.0, tl.exp(x - finite_top))
    weight = _weights(x, token, finite_top, temperature, floors, lasts, draw, is_cut)
    entry = draw * num_blocks + block_index
    tl.store(tops + entry, top)
    tl.store(bests + entry, tl.min(tl.where(x == top, token, vocabulary), 0))
    tl.store(sums + entry, tl.sum(plain.to(tl.float64), 0))
    tl.store(sums + num_draws * num_blocks + entry, tl.sum(weight.to(tl.float64), 0))


@triton.jit(do_not_specialize=["word", "num_blocks"], do_not_specialize_on_alignment=ANYWHERE)
def draw_rows(
    logits,
    rows,
    temperatures,
    floors,
    lasts,
    tops,
    bests,
    sums,
    streams,
    positions,
    word,
    tokens,
    logprobs,
    sampling_logprobs,
    row_stride,
    column_stride,
    num_blocks,
    vocabulary: tl.constexpr,
    block: tl.constexpr,
    is_cut: tl.constexpr,
    padded: tl.constexpr,
):
    """Make one draw: find the block of the token, the token in the block, and the token's log-probability."""
    draw, num_draws = tl.program_id(0), tl.num_programs(0)
    block_index = tl.arange(0, padded)
    entry, is_block = draw * num_blocks + block_index, block_index < num_blocks
    block_tops, depths, top, is_finite, log_total = _normalizer(tops, sums, entry, is_block)
    temperature = tl.load(temperatures + draw).to(tl.float32)
    divisor = tl.where(temperature == 0.0, 1.0, temperature)
    scale = tl.exp((depths / divisor).to(tl.float64))
    weight = scale * tl.load(sums + num_draws * num_blocks + entry, mask=is_block, other=0.0)

    u = _uniform(tl.load(streams + draw), tl.load(positions + draw), word)
    mass = tl.cumsum(weight, 0)
    target = u * tl.max(mass, 0)
    # the last block with a weight is taken where rounding puts the target beyond all masses
    last_block = tl.max(tl.where(weight > 0.0, block_index, 0), 0)
    chosen_block = tl.min(tl.where((mass > target) & (weight > 0.0), block_index, last_block), 0)
    mass_before = tl.max(tl.where(block_index < chosen_block, mass, 0.0), 0)
    target_in_block = target - mass_before
    token = chosen_block * block + tl.arange(0, block)
    row = logits + tl.load(rows + draw).to(tl.int64) * row_stride
    x = tl.load(row + token.to(tl.int64) * column_stride, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
    x = tl.where((x != x) | (x == float("inf")), 0.0, x)  # noqa: PLR0124 - only NaN is not itself
    block_top = tl.where(is_finite, tl.max(tl.where(block_index == chosen_block, block_tops, float("-inf")), 0), 0.0)
    token_weights = _weights(x, token, block_top, temperature, floors, lasts, draw, is_cut).to(tl.float64)
    token_weights *= tl.sum(tl.where(block_index == chosen_block, scale, 0.0), 0)
    token_mass = tl.cumsum(token_weights, 0)
    last_token = tl.max(tl.where(token_weights > 0.0, token, 0), 0)
    choice = tl.min(tl.where((token_mass > target_in_block) & (token_weights > 0.0), token, last_token), 0)

    block_bests = tl.load(bests + entry, mask=is_block, other=vocabulary)
    best = tl.min(tl.where(is_block & (block_tops == top), block_bests, vocabulary), 0)
    choice = tl.where(is_finite, tl.where(temperature == 0.0, best, choice), 0)
    logit = tl.load(row + choice.to(tl.int64) * column_stride).to(tl.float32)
    logprob = (logit - top).to(tl.float64) - log_total
    law_logprob = ((logit - top) / divisor).to(tl.float64) - tl.log(tl.where(is_finite, tl.max(mass, 0), 1.0))
    tl.store(tokens + draw, tl.where(is_finite, choice, -1).to(tl.int64))
    tl.store(logprobs + draw, tl.where(is_finite, logprob, float("nan")))
    tl.store(sampling_logprobs + draw, tl.where(temperature == 0.0, 0.0, law_logprob))


@triton.jit(do_not_specialize=["num_blocks"], do_not_specialize_on_alignment=ANYWHERE)
def read_tokens(
    logits,
    rows,
    tops,
    sums,
    indices,
    tokens,
    logprobs,
    row_stride,
    column_stride,
    num_blocks,
    padded: tl.constexpr,
):
    """Read the log-probability of one token behind one row."""
    read = tl.program_id(0)
    index, block_index = tl.load(indices + read), tl.arange(0, padded)
    entry, is_block = index * num_blocks + block_index, block_index < num_blocks
    _, _, top, is_finite, log_total = _normalizer(tops, sums, entry, is_block)
    place = logits + tl.load(rows + index) * row_stride + tl.load(tokens + read) * column_stride
    logprob = (tl.load(place).to(tl.float32) - top).to(tl.float64) - log_total
    tl.store(logprobs + read, tl.where(is_finite, logprob, float("nan")))


@triton.jit(do_not_specialize=["num_blocks"], do_not_specialize_on_alignment=ANYWHERE)
def spread_rows(
    logits,
    rows,
    tops,
    sums,
    totals,
    row_stride,
    column_stride,
    num_blocks,
    vocabulary: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
):
    """Sum ln p and p ln p over a row's tokens, a block after the other; ln p is at least -745."""
    index, block_index = tl.program_id(0), tl.arange(0, padded)
    entry, is_block = index * num_blocks + block_index, block_index < num_blocks
    _, _, top, _, log_total = _normalizer(tops, sums, entry, is_block)
    row = logits + tl.load(rows + index) * row_stride
    sum_logs, sum_weighted = log_total * 0.0, log_total * 0.0
    for first in range(0, vocabulary, block):
        token = first + tl.arange(0, block)
        x = tl.load(row + token.to(tl.int64) * column_stride, mask=token < vocabulary, other=0.0).to(tl.float32)
        logs = tl.maximum((x - top).to(tl.float64) - log_total, -745.0)
        logs = tl.where(token < vocabulary, logs, 0.0)
        sum_logs += tl.sum(logs, 0)
        sum_weighted += tl.sum(tl.exp(logs) * logs, 0)
    tl.store(totals + 2 * index, sum_logs)
    tl.store(totals + 2 * index + 1, sum_weighted)
