"""The comparison on the test split: the allocator against each baseline, problem by problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from research.allocation.pair import divisions, studies, together
from tts.allocator import shipped
from tts.experiments.analysis.comparing import Gain, gain
from tts.experiments.analysis.curves import Curve, Floats, Role, accuracies, curves_of
from tts.experiments.analysis.pools import ProblemPool, pools_of
from tts.experiments.analysis.replay import replay
from tts.experiments.study.record import RecordedSample, Result
from tts.search.plan import parse
from tts.statistics import Difference, holm, paired_difference, problems_needed

AUTO = "auto"
PLAN = "auto(price=0.0)"  # so that the whole total is spent, and compared
UNIFORM = "best_of_n | majority"
REPLAYED = (UNIFORM, "best_of_n | weighted", "best_of_n | best")
SIZES = (1, 2, 4, 8, 16)
DRAWS = 32  # subsets of a pool, where there is no closed form
SHARES = (1.0, 1.2, 2.0, 4.0, 8.0)  # totals of the allocator, in plain samples' worth a problem
WORTH = studies.SAMPLE
# made-up prices of a token read, by a verifier too, and written; one that is read again costs a tenth
USD_IN, USD_OUT = 1e-6, 4e-6


def totals() -> list[int]:
    """Return the totals of the allocator, in tokens a problem."""
    return [round(share * WORTH) for share in SHARES]


@dataclass(frozen=True, kw_only=True)
class Against:
    """The allocator at one of its totals, against a curve at the same tokens.

    Args:
        share: The total, in plain samples' worth of a problem.
        tokens: The tokens that the allocator spent on a problem, on average.
        mine: The accuracy of the allocator.
        theirs: The accuracy of the curve.
        name: The label of the curve.
        difference: The difference of the two, paired by problem.
        p: The p-value, corrected over the totals.
        detectable: The least difference that as many problems would show four times of five.
    """

    share: float
    tokens: float
    mine: float
    theirs: float
    name: str
    difference: Difference
    p: float
    detectable: float


@dataclass(frozen=True, kw_only=True)
class Compared:
    """All that was measured.

    Args:
        curves: The curves on tokens, by name.
        live: The curves of live runs on every axis, by plan.
        uniform: The allocator against uniform best-of-N.
        single: The allocator against the best single strategy at each total.
        others: The allocator against divisions that know less, or more, by name.
        gains: The gains in tokens, by the name of the base and the total.
        deciding: The seconds of decisions and other figures of each run, by its name.
        unanswered: The share of the allocator's runs without an answer, by total.
        problems: The number of problems.
        seeds: The number of seeds.
    """

    curves: Mapping[str, Curve]
    live: Sequence[Curve]
    uniform: Sequence[Against]
    single: Sequence[Against]
    others: Mapping[str, Sequence[Against]]
    gains: Mapping[str, Mapping[float, Gain]]
    deciding: Mapping[str, Mapping[str, float]]
    unanswered: Sequence[float]  # share of the allocator's runs without an answer, by total
    problems: int
    seeds: int


def measure(store: Path, jobs: int, limit: int, seeds: int) -> Compared:
    """Run what the store lacks, and return the comparison."""
    drawn = studies.results(store, [studies.pools(studies.TEST, limit, seeds)], jobs)
    pools = pools_of(drawn).pools
    other = studies.results(store, studies.alternatives(studies.TEST, limit), jobs)
    shared = together.results(store, PLAN, totals(), limit, seeds, jobs)
    rng = np.random.default_rng(0)
    live = curves_of(map(_price, (*drawn, *other, *shared)), rng=rng)
    curves = {_name(curve.label): curve for curve in live}
    # in place of the one live size
    curves |= {one.curve.label: one.curve for one in replay(pools, REPLAYED, SIZES, draws=DRAWS)}
    curves |= _divide(pools, other, curves[AUTO])
    singles = [name for name, curve in curves.items() if name != AUTO and curve.role == "strategy"]
    return Compared(
        curves=curves,
        live=live,
        uniform=_compare_totals(curves[AUTO], lambda _: curves[UNIFORM]),
        single=_compare_totals(
            curves[AUTO],
            lambda tokens: max(
                (curves[name] for name in singles), key=lambda one: interpolate_shares(one, tokens).mean()
            ),
        ),
        others={
            name: _compare_totals(curves[AUTO], lambda _, of=curve: of)
            for name, curve in curves.items()
            if curve.role in ("allocator", "oracle") and name != AUTO
        },
        gains={base: _gains(curves[AUTO], curves[base]) for base in REPLAYED[:2]},
        deciding=together.read_timings(store),
        unanswered=[
            float(np.mean([one.answer is None for one in shared if one.cell.budget["tokens"] == total]))
            for total in totals()
        ],
        problems=len(curves[AUTO].problems),
        seeds=seeds,
    )


def _price(result: Result) -> Result:
    """Return a result with the dollars that it would have cost."""
    usage = result.usage
    usd = (
        USD_IN * (usage.prompt_tokens + usage.verifier_tokens + 0.1 * (usage.reused_tokens or 0))
        + USD_OUT * usage.generated_tokens
    )
    return dataclasses.replace(result, usage=dataclasses.replace(usage, usd=usd), drawn=None)


def _name(label: str) -> str:
    return AUTO if label.startswith("auto") else label


def greedy_samples(pools: Sequence[ProblemPool], other: Sequence[Result]) -> Mapping[str, RecordedSample] | None:
    """Return the greedy sample of each problem; None: the allocator does not begin with one."""
    name = shipped.fitting("pocket", "pocket", pools[0].cell.verifiers)
    if name is None or shipped.load(name).first is None:
        return None
    greedy = (one for one in other if one.drawn and parse(one.cell.strategy).strategy.registered_as == "single")
    return {one.cell.problem: one.drawn[0] for one in greedy if one.drawn}


def _divide(pools: Sequence[ProblemPool], other: Sequence[Result], like: Curve) -> dict[str, Curve]:
    """Return the curves of divisions that know less, or more."""
    problems, *halves = divisions.halves(pools, greedy_samples(pools, other))
    ways: dict[str, tuple[Role, Callable[[float], divisions.Division]]] = {
        "random": ("allocator", divisions.random_division),
        "A14, five predicted bins": ("allocator", lambda mean: divisions.binned_division(mean, predicted=True)),
        "A14, five oracle bins": ("oracle", lambda mean: divisions.binned_division(mean, predicted=False)),
        "static oracle": ("oracle", divisions.oracle_division),
    }
    curves: dict[str, Curve] = {}
    for name, (role, way) in ways.items():
        found = [divisions.measure_division((halves[0], halves[1]), way(share)) for share in (1, 2, 4, 8)]
        shares = np.array([one[0] for one in found])
        curves[name] = dataclasses.replace(
            like,
            label=name,
            costs={"tokens": np.array([one[1] for one in found])},
            shares=shares,
            problems=problems,
            role=role,
            accuracy=accuracies(shares, np.random.default_rng(0)),
            kind="replayed",
        )
    return curves


def interpolate_shares(curve: Curve, tokens: float) -> Floats:
    """Return the share of each problem [P] at a cost, between the points of a curve as figures draw it.

    Beyond the points, the share of the nearest one is returned.
    """
    cost = np.log(curve.cost("tokens"))
    order = np.argsort(cost)
    place = float(np.interp(np.log(tokens), cost[order], np.arange(len(cost))))
    low = int(place)
    high = min(low + 1, len(cost) - 1)
    return (1 - place + low) * curve.shares[order[low]] + (place - low) * curve.shares[order[high]]


def _compare_totals(mine: Curve, other: Callable[[float], Curve]) -> list[Against]:
    rows: list[tuple[float, float, Curve, Difference, float, float]] = []
    for share, tokens, own in zip(SHARES, mine.cost("tokens").tolist(), mine.shares, strict=True):
        curve = other(tokens)
        theirs = dict(zip(curve.problems, interpolate_shares(curve, tokens).tolist(), strict=True))
        base = [theirs[problem] for problem in mine.problems]
        rows.append(
            (
                share,
                tokens,
                curve,
                paired_difference(own, base, rng=np.random.default_rng(0)),
                float(own.mean()),
                float(np.mean(base)),
            )
        )
    corrected = holm([difference.p for _, _, _, difference, _, _ in rows])
    return [
        Against(
            share=share,
            tokens=tokens,
            mine=own,
            theirs=base,
            name=curve.label,
            difference=difference,
            p=float(p),
            detectable=_detectable_gap(difference.spread, len(mine.problems)),
        )
        for (share, tokens, curve, difference, own, base), p in zip(rows, corrected, strict=True)
    ]


def _detectable_gap(spread: float, problems: int) -> float:
    """Return the least difference for which so many problems are enough, to a tenth of a point."""
    return next((gap for gap in np.arange(0.001, 1.0, 0.001).tolist() if problems_needed(gap, spread) <= problems), 1.0)


def _gains(mine: Curve, base: Curve) -> dict[float, Gain]:
    """Return how much cheaper the accuracy is that the allocator reaches, by its total."""
    levels = zip(SHARES, (one.value for one in mine.accuracy), strict=True)
    found = (
        (share, gain(mine, base, "tokens", rng=np.random.default_rng(0), accuracy=level)) for share, level in levels
    )
    return {share: one for share, one in found if one is not None}
