"""The CPU's draw against the plain law in float64: every filter, every size, edges, ties, and logits that are no
law.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from scipy import stats

from tts.backends.base import Sampling
from tts.backends.kernels.draw import DrawRequest, HostDraws, draw_at, draw_rows
from tts.backends.kernels.host import Team, compile_function, exponential
from tts.backends.sampling import draw, filtered_distribution, inverse_cdf, log_softmax
from tts.randomness import uniform, uniforms

TEAM = Team(1)
LAST = 1 - 2**-53
SIZES = (1, 7, 1_000, 1_024, 1_025, 49_152)
EDGE = 5e-7  # by how much of the whole mass float32 probabilities may move an edge of the CDF

SAMPLINGS = [
    Sampling(temperature=0.0),
    Sampling(temperature=1.0),
    Sampling(temperature=0.3),
    Sampling(temperature=3.0),
    Sampling(temperature=1.0, top_k=1),
    Sampling(temperature=0.8, top_k=5),
    Sampling(temperature=1.0, top_k=50),
    Sampling(temperature=1.0, top_k=10**9),
    Sampling(temperature=1.0, top_p=0.9173),
    Sampling(temperature=2.0, top_p=0.3131),
    Sampling(temperature=1.0, top_p=1e-9),
    Sampling(temperature=1.0, min_p=0.0517),
    Sampling(temperature=1.0, min_p=0.9),
    Sampling(temperature=0.7, top_k=20, top_p=0.8511),
    Sampling(temperature=1.2, top_k=30, min_p=0.1013),
    Sampling(temperature=1.2, top_p=0.9511, min_p=0.0213),
    Sampling(temperature=0.9, top_k=40, top_p=0.9513, min_p=0.0107),
]


def logits_of(kind: str, size: int) -> np.ndarray:
    rng = np.random.Generator(np.random.Philox(key=size))
    raw = rng.standard_normal(size).astype(np.float32)
    if kind == "random":
        return raw * 3
    if kind == "peaked":
        raw[rng.integers(size)] = 25
        return raw
    if kind == "flat":
        return np.full(size, 4.25, np.float32)
    if kind == "tied":
        return np.round(raw * 2)
    if kind == "wide":
        return raw * 60
    raw[rng.random(size) < 0.4] = -np.inf  # holes
    raw[rng.integers(size)] = 1.5
    return raw


KINDS = ("random", "peaked", "flat", "tied", "wide", "holes")


def drawn(
    logits: np.ndarray,
    samplings: list[Sampling],
    numbers: list[float],
    rows: list[int] | None = None,
    team: Team = TEAM,
) -> HostDraws:
    which = np.zeros(len(samplings), np.int64) if rows is None else np.array(rows, np.int64)
    return draw_at(np.atleast_2d(logits), which, samplings, np.array(numbers, np.float64), team)


def check(logits: np.ndarray, sampling: Sampling, numbers: list[float]) -> None:
    """Each token is the plain law's, or its neighbour where the number lies on the edge between them."""
    found = drawn(logits, [sampling] * len(numbers), numbers)
    law = filtered_distribution(logits, sampling)
    edges = np.cumsum(law)
    logprobs = log_softmax(logits)
    for token, logprob, number in zip(found.tokens.tolist(), found.logprobs.tolist(), numbers, strict=True):
        wanted = inverse_cdf(law, number)  # as the plain draw does
        if token != wanted:
            assert law[token] > 0
            assert edges[token] - law[token] - EDGE <= number * edges[-1] <= edges[token] + EDGE
            assert sampling.temperature > 0
        assert logprob == pytest.approx(logprobs[token], rel=2e-7, abs=3e-7)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_plain_draw(kind: str, size: int) -> None:
    logits = logits_of(kind, size)
    for sampling in SAMPLINGS:
        numbers = [0.0, LAST, 0.5, *(uniform(size, i) for i in range(12 if size > 2_000 else 60))]
        check(logits, sampling, numbers)


@pytest.mark.parametrize("size", [7, 1_000, 1_025])
@pytest.mark.parametrize("sampling", [SAMPLINGS[i] for i in (1, 5, 8, 11, 16)], ids=str)
def test_just_beside_an_edge_of_the_law_it_falls_on_the_right_side(size: int, sampling: Sampling) -> None:
    logits = logits_of("random", size)
    law = filtered_distribution(logits, sampling)
    edges = np.cumsum(law)
    kept = np.flatnonzero(law > 1e-4)[:40]
    below, above = [edges[i] - 2 * EDGE for i in kept], [edges[i] + 2 * EDGE for i in kept[:-1]]
    wanted = [draw(logits, sampling, u).token for u in [*below, *above]]
    assert drawn(logits, [sampling] * len(wanted), [*below, *above]).tokens.tolist() == wanted
    assert wanted[: len(kept)] == kept.tolist()


def test_the_smallest_and_largest_numbers_give_the_first_and_last_token_that_is_left() -> None:
    logits = np.log(np.array([0.0, 0.1, 0.2, 0.4, 0.3, 0.0]), where=[0, 1, 1, 1, 1, 0], out=np.full(6, -np.inf)).astype(
        np.float32
    )
    for sampling, first, last in (
        (Sampling(temperature=1.0), 1, 4),
        (Sampling(temperature=1.0, top_k=3), 2, 4),
        (Sampling(temperature=1.0, top_p=0.6), 3, 4),
        (Sampling(temperature=1.0, min_p=0.6), 3, 4),
        (Sampling(temperature=1.0, top_k=1), 3, 3),
    ):
        assert drawn(logits, [sampling] * 2, [0.0, LAST]).tokens.tolist() == [first, last]
    for size in (1_024, 1_025, 5_000):
        far = np.full(size, -np.inf, np.float32)
        far[[3, size - 2]] = 0
        assert drawn(far, [Sampling(temperature=1.0)] * 3, [0.0, 0.75, LAST]).tokens.tolist() == [3, size - 2, size - 2]


def test_a_number_that_is_exactly_an_edge_belongs_to_the_token_behind_it() -> None:
    for size in (4, 2_048, 4_096):  # powers of two: nothing is rounded
        numbers = [i / size for i in range(0, size, max(1, size // 64))]
        tokens = drawn(np.zeros(size, np.float32), [Sampling(temperature=1.0)] * len(numbers), numbers).tokens.tolist()
        assert tokens == [round(number * size) for number in numbers]


@compile_function
def likely(logit: float) -> float:
    return exponential(logit)


def test_what_is_exactly_as_likely_as_min_p_asks_for_is_kept() -> None:
    logits = np.array([0.0, -0.5, -2.5], np.float32)
    for last in (1, 2):
        ratio = np.float32(likely(logits[last]))
        for least, wanted in ((ratio, last), (np.nextafter(ratio, np.float32(1)), last - 1)):
            assert drawn(logits, [Sampling(temperature=1.0, min_p=float(least))], [LAST]).tokens.tolist() == [wanted]


def test_temperature_zero_is_the_lowest_id_among_equals_whatever_the_number() -> None:
    for size in SIZES[1:]:
        logits = logits_of("random", size)
        logits[[2, size // 2, size - 1]] = 99
        greedy = Sampling(temperature=0.0, top_p=0.5, top_k=3)
        assert drawn(logits, [greedy] * 3, [0.0, 0.5, LAST]).tokens.tolist() == [2, 2, 2]


def test_ties_are_ranked_by_id() -> None:
    flat = np.zeros(1_025, np.float32)
    for sampling, kept in (
        (Sampling(temperature=1.0, top_k=10), 10),
        (Sampling(temperature=1.0, top_p=99.5 / 1_025), 100),
    ):
        tokens = drawn(flat, [sampling] * (4 * kept), [(i + 0.5) / (4 * kept) for i in range(4 * kept)]).tokens.tolist()
        assert tokens == [i // 4 for i in range(4 * kept)]


@pytest.mark.parametrize("temperature", [1e-300, 1e-39, 1e-30, 1e-6, 100.0])
def test_extreme_temperatures_are_laws_too(temperature: float) -> None:
    logits = logits_of("random", 1_000)
    for number in (0.0, 0.3, LAST):
        found = drawn(logits, [Sampling(temperature=temperature)], [number])
        if temperature < 1:
            assert found.tokens.tolist() == [int(np.argmax(logits))]
        assert found.logprobs[0] == pytest.approx(log_softmax(logits)[found.tokens[0]], abs=3e-7)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf, "nothing", "alone"])
@pytest.mark.parametrize("size", [7, 1_025])
def test_logits_that_are_no_law_are_flagged_and_harm_no_other_row(
    temperature: float, bad: float | str, size: int
) -> None:
    good = logits_of("random", size)
    for place in (0, size // 2, size - 1):
        broken = good.copy()
        if isinstance(bad, str):
            broken[:] = -np.inf
            if bad == "alone":
                broken[place] = np.nan
        else:
            broken[place] = bad
        samplings = [Sampling(temperature=temperature, top_k=3)] * 3
        found = drawn(np.stack([good, broken]), samplings, [0.4] * 3, [0, 1, 0])
        assert found.tokens[1] == -1
        assert np.isnan(found.logprobs[1])
        alone = drawn(good, samplings[:1], [0.4])
        assert found.tokens[[0, 2]].tolist() == [alone.tokens[0]] * 2
        assert found.logprobs[[0, 2]].tolist() == [alone.logprobs[0]] * 2


@pytest.mark.parametrize("size", [7, 1_025, 49_152])
def test_a_row_has_the_same_bits_in_any_batch(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = np.stack([logits_of(kind, size) for kind in KINDS])
    draw_order = np.random.Generator(np.random.Philox(key=1))
    rows = [i % len(KINDS) for i in range(34)]
    samplings = [SAMPLINGS[i % len(SAMPLINGS)] for i in range(34)]
    numbers = [uniform(3, i) for i in range(34)]
    whole = drawn(logits, samplings, numbers, rows)
    cuts = Team.cuts
    monkeypatch.setattr(Team, "cuts", lambda team, rows, work, worth=0: cuts(team, rows, work, worth=0))
    for batch in ([5], [33, 0], draw_order.permutation(34).tolist(), list(range(0, 34, 3))):
        for threads in (1, 2, 3):
            team = Team(threads)
            some = [[numbers[i] for i in batch], [rows[i] for i in batch]]
            found = drawn(logits, [samplings[i] for i in batch], *some, team)
            assert found.tokens.tolist() == whole.tokens[batch].tolist()
            assert found.logprobs.tobytes() == whole.logprobs[batch].tobytes()
            team.close()


def test_the_numbers_are_those_of_the_rows_own_addresses() -> None:
    logits = logits_of("random", 1_000)[None]
    streams, positions, words = (
        np.array([5, 2**64 - 1, 5], np.uint64),
        np.array([0, 2**33, 7]),
        np.array([0, 1, 1], np.uint64),
    )
    samplings = [Sampling(temperature=1.5)] * 3
    nothing = np.zeros(3, np.bool_)
    asked = DrawRequest(np.zeros(3, np.int64), samplings, streams, positions, words, nothing, nothing)
    numbers = [uniform(int(s), int(p), int(w)) for s, p, w in zip(streams, positions, words, strict=True)]
    assert draw_rows(logits, asked, TEAM).tokens.tolist() == drawn(logits, samplings, numbers).tokens.tolist()
    some = asked.take_rows(np.array([2, 0]))
    assert (
        draw_rows(logits, some, TEAM).tokens.tolist()
        == drawn(logits, samplings[:2], [numbers[2], numbers[0]]).tokens.tolist()
    )


@pytest.mark.parametrize("sampling", SAMPLINGS[1:], ids=str)
def test_frequencies_follow_the_law(sampling: Sampling) -> None:
    """Fixed numbers, so this cannot flicker; each of 16 tests at 1e-3 says that they are no freak."""
    logits = logits_of("random", 300)
    count = 20_000
    numbers = uniforms(np.full(count, 11, np.uint64), np.arange(count))
    tokens = draw_at(logits[None], np.zeros(count, np.int64), [sampling] * count, numbers, TEAM).tokens
    law = filtered_distribution(logits, sampling)
    counts = np.bincount(tokens, minlength=300)
    assert counts[law == 0].sum() == 0
    often = law * count >= 5
    seen, wanted = [*counts[often], counts[~often].sum()], [*law[often] * count, law[~often].sum() * count]
    if wanted[-1] < 5:  # too few for a cell of their own
        seen[-2:], wanted[-2:] = [sum(seen[-2:])], [sum(wanted[-2:])]
    assert len(seen) == 1 or stats.chisquare(seen, np.array(wanted) * count / sum(wanted)).pvalue > 1e-3
