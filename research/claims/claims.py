"""The claims (a) to (g), each as tests of what was measured by the learnt verifier.

The same tests with exact verdicts explain the claims that do not hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from research.claims import plans
from research.claims.measuring import ACCURATE, Choices, Measured
from research.claims.testing import Figure, Floats, correct, difference, figure_of, unknown_figure
from tts.experiments.analysis.comparing import gain
from tts.experiments.analysis.curves import Curve

HOLDS, FAILS, UNSEEN = "holds", "does not hold", "cannot be seen here"
POINTS, A_STAR_SAVES, PARTICLES_SAVE, ETS_SAVES, AUTO_SAVES, GAIN_KEPT = 10.0, 2.0, 2.0, 1.5, 3.0, 0.74


@dataclass(frozen=True)
class Claim:
    """A claim.

    Args:
        letter: The letter of the claim.
        text: The sentence that is tested.
        tests: The tests by the learnt verifier.
        every: Whether all tests must hold; otherwise one is enough.
        beside: The same tests with exact verdicts, uncorrected.
        unseen: Why nothing can be tested; "": the claim is tested.
    """

    letter: str
    text: str
    tests: Sequence[Figure]
    every: bool = False
    beside: Sequence[Figure] = ()
    unseen: str = ""

    @property
    def verdict(self) -> str:
        """The verdict: "holds", "does not hold", or that the claim cannot be seen.

        A claim that exact verdicts show fails by its verifier, and the verdict says so.
        """
        if self.unseen:
            return f"{UNSEEN}: {self.unseen}"
        if self._is_met(self.tests, lambda one: one.holds):
            return HOLDS
        if self.beside and self._is_met(self.beside, lambda one: one.found.value >= one.bound and one.p < 0.05):
            return f"{FAILS}; explained by the verifier: with exact verdicts it does"
        return FAILS

    def _is_met(self, tests: Sequence[Figure], good: Callable[[Figure], bool]) -> bool:
        return bool(tests) and (all if self.every else any)(map(good, tests))


def claims(measured: Measured, choices: Choices, recorded: Path) -> list[Claim]:
    """Return every claim, with p-values corrected over all of them.

    Args:
        measured: The comparison on the test split.
        choices: What the validation split decided.
        recorded: The folder of pages, which has the figures of claim (g).
    """
    every = [
        _stepwise_claim(measured, choices),
        _a_star(measured),
        _robustness_claim(measured),
        _cheap_particles(measured),
        *_ets(measured),
        _best_of_majority(measured),
        *_auto(measured, choices),
        _self_evaluation_claim(recorded),
    ]
    return _correct(every)


def claims_on_auto(measured: Measured, choices: Choices) -> list[Claim]:
    """Return claim (f) alone, with p-values corrected over its figures."""
    return _correct(list(_auto(measured, choices)))


def _correct(made: Sequence[Claim]) -> list[Claim]:
    return [
        replace(claim, tests=tests) for claim, tests in zip(made, correct([claim.tests for claim in made]), strict=True)
    ]


def _shares(measured: Measured, verifier: str, method: str) -> Floats:
    """Return the share of each problem's seeds that are right, [budgets, problems], ordered by name."""
    curve = measured.curves[verifier, method]
    return curve.shares[:, np.argsort(curve.problems)]


def _measured_verifiers(measured: Measured) -> list[str]:
    return [name for name in plans.VERIFIERS if (name, plans.BEST_OF_N) in measured.curves]


def _compute_both(measured: Measured, made: Callable[[str], list[Figure]]) -> tuple[list[Figure], list[Figure]]:
    return made(plans.LEARNT), made(plans.EXACT) if plans.EXACT in _measured_verifiers(measured) else []


def _stepwise_claim(measured: Measured, choices: Choices) -> Claim:
    def figures(verifier: str) -> list[Figure]:
        mine, theirs = (_shares(measured, verifier, name) for name in (choices.stepwise, plans.BEST_OF_N))
        return [
            difference(f"{budget} tokens, {verifier}", one, other, POINTS)
            for budget, one, other in zip(plans.BUDGETS, mine, theirs, strict=True)
        ]

    text = (
        f"(a) {choices.stepwise}, the best stepwise method on the validation split, beats weighted best-of-N by "
        f"{POINTS:g} points"
    )
    tests, beside = _compute_both(measured, figures)
    return Claim("a", text, tests, beside=beside)


def _ratio(where: str, mine: Curve, base: Curve, axis: str, bound: float) -> Figure:
    """Return the test of how many times less a curve costs for the highest accuracy that both reach."""
    found = gain(mine, base, axis, rng=np.random.default_rng(0))
    if found is None:
        return unknown_figure(where, bound, "times")
    order, other = (np.argsort(curve.problems) for curve in (mine, base))
    costs, shares = (mine.cost(axis), base.cost(axis)), (mine.shares[:, order], base.shares[:, other])
    return figure_of(where, _times(costs, shares), len(order), bound, "times")


def _times(costs: tuple[Floats, Floats], shares: tuple[Floats, Floats]) -> Callable[[Floats], Floats]:
    """Return the statistic of `gain` at the highest accuracy that both curves reach in a resample.

    Args:
        costs: The costs of the curve and of its base.
        shares: The shares of right seeds of the curve and of its base.
    """
    (cost, base), (mine, theirs) = costs, shares

    def statistic(counts: Floats) -> Floats:
        total = counts.sum(axis=1, keepdims=True)
        means, others = counts @ mine.T / total, counts @ theirs.T / total
        level = np.minimum(means.max(axis=1), others.max(axis=1))
        return np.exp(_log_cost_at(others, np.log(base), level) - _log_cost_at(means, np.log(cost), level))

    return statistic


def _log_cost_at(means: Floats, logs: Floats, level: Floats) -> Floats:
    """Return the logarithm of the cost at which each resample first reaches a level.

    Costs between points are on the line through the points.
    """
    order = np.argsort(logs)
    means, logs = means[:, order], logs[order]
    first = (means >= level[:, None] - 1e-12).argmax(axis=1)
    rows, before = np.arange(len(means)), np.maximum(first - 1, 0)
    low, high = means[rows, before], means[rows, first]
    share = np.where(high > low, (level - low) / np.where(high > low, high - low, 1.0), 1.0)
    return np.where(first == 0, logs[first], logs[before] + np.clip(share, 0, 1) * (logs[first] - logs[before]))


def _a_star(measured: Measured) -> Claim:
    def figures(verifier: str) -> list[Figure]:
        mine, base = (measured.curves[verifier, name] for name in ("a_star", plans.BEST_OF_N))
        return [_ratio(f"{axis}, {verifier}", mine, base, axis, A_STAR_SAVES) for axis in ("tokens", "flops")]

    tests, beside = _compute_both(measured, figures)
    text = (
        f"(b) A* reaches best-of-N's accuracy with at most 1/{A_STAR_SAVES:g} of its tokens and FLOPs, verifier "
        "included"
    )
    return Claim("b", text, tests, every=True, beside=beside)


def _robustness_claim(measured: Measured) -> Claim:
    text = "(c) particle filtering loses least to flipped verdicts: others lose more, in the mean over budgets"
    flipped = [name for name in plans.FLIPPED if name in _measured_verifiers(measured)]
    if plans.EXACT not in _measured_verifiers(measured) or not flipped:
        return Claim("c", text, [], unseen="exact or flipped verdicts were not measured")

    def loss(name: str, verifier: str) -> Floats:
        return (_shares(measured, plans.EXACT, name) - _shares(measured, verifier, name)).mean(axis=0)

    tests = [
        difference(f"{name}, {verifier}", loss(name, verifier), loss("particle_filter", verifier), 0.0)
        for verifier in flipped
        for name in plans.STEPWISE
        if name != "particle_filter"
    ]
    return Claim("c", text, tests, every=True)


def _cheap_particles(measured: Measured) -> Claim:
    tests = [
        _ratio(
            verifier,
            measured.curves[verifier, "particle_filter"],
            measured.curves[verifier, "beam"],
            "generated_tokens",
            PARTICLES_SAVE,
        )
        for verifier in _measured_verifiers(measured)
    ]
    return Claim(
        "c",
        f"(c) particle filtering needs at most 1/{PARTICLES_SAVE:g} of beam search's budget with some verifier",
        tests,
    )


def _ets(measured: Measured) -> Iterator[Claim]:
    def accuracy_figures(verifier: str) -> list[Figure]:
        mine, theirs = (_shares(measured, verifier, name) for name in ("ets", "rebase"))
        allowed = -100 * ACCURATE
        return [
            difference(f"{budget} tokens, {verifier}", one, other, allowed, allowed)
            for budget, one, other in zip(plans.BUDGETS, mine, theirs, strict=True)
        ]

    def live_figures(verifier: str) -> list[Figure]:
        tests: list[Figure] = []
        for budget in plans.BUDGETS:
            mine, other = (measured.kept.get((verifier, name, budget), {}) for name in ("ets", "rebase"))
            shared = [problem for problem in mine if problem in other]
            if not shared:
                tests.append(unknown_figure(f"{budget} tokens, {verifier}", ETS_SAVES, "times"))
                continue
            above, below = (np.array([of[problem] for problem in shared]) for of in (other, mine))
            tests.append(
                figure_of(f"{budget} tokens, {verifier}", _sum_ratio(above, below), len(shared), ETS_SAVES, "times")
            )
        return tests

    for text, make_tests in (
        ("keeps REBASE's accuracy within 2 points", accuracy_figures),
        (f"has {ETS_SAVES:g} times fewer live tokens", live_figures),
    ):
        tests, beside = _compute_both(measured, make_tests)
        yield Claim("d", f"(d) ETS {text}", tests, every=True, beside=beside)


def _sum_ratio(above: Floats, below: Floats) -> Callable[[Floats], Floats]:
    return lambda counts: (counts @ above) / (counts @ below)


def _best_of_majority(measured: Measured) -> Claim:
    best = measured.pools["best"]
    (name,) = (name for name in measured.pools if name != "best")
    kept = measured.pools[name]
    top, other = (int(np.argmax([one.value for one in curve.accuracy])) for curve in (best, kept))
    falls = difference(
        f"best-of-N, from {plans.POOL_SIZES[top]} to {plans.POOL_SIZES[-1]}", best.shares[top], best.shares[-1], 0.0
    )
    where = f"best-of-majority, {name}, from {plans.POOL_SIZES[other]} to {plans.POOL_SIZES[-1]}"
    stays = difference(where, kept.shares[-1], kept.shares[other], -100 * ACCURATE, -100 * ACCURATE)
    unseen = (
        ""
        if falls.found.low > 0
        else f"best-of-N does not fall ({str(falls).partition(',')[0]}: {falls.found.value:+.1f} points lost)"
    )
    text = "(e) best-of-majority with a fixed alpha does not fall as N grows where best-of-N falls"
    return Claim("e", text, [falls, stays], every=True, unseen=unseen)


def _auto(measured: Measured, choices: Choices) -> Iterator[Claim]:
    auto, base = measured.curves[plans.LEARNT, "auto"], measured.curves[plans.LEARNT, plans.BEST_OF_N]
    text = f"(f) auto reaches uniform best-of-N's best accuracy with at most 1/{AUTO_SAVES:g} of its tokens"
    yield Claim("f", text, [_ratio("tokens", auto, base, "tokens", AUTO_SAVES)])
    mine, theirs = _shares(measured, plans.LEARNT, "auto"), _shares(measured, plans.LEARNT, choices.single)
    allowed = -100 * ACCURATE
    tests = [
        difference(f"{size} tokens", one, other, allowed, allowed)
        for size, one, other in zip(plans.BUDGETS, mine, theirs, strict=True)
    ]
    yield Claim(
        "f",
        f"(f) auto is at most 2 points below {choices.single}, the best single method on the validation split",
        tests,
        every=True,
    )


def _self_evaluation_claim(folder: Path) -> Claim:
    text = f"(g) self-evaluation that stops after 1.2 samples on average keeps {GAIN_KEPT:.0%} of best-of-16's gain"
    path = folder / "claims_self_evaluation.json"
    if not path.is_file():
        return Claim("g", text, [], unseen="not measured; run --self-evaluation")
    found: Mapping[str, list[float]] = json.loads(path.read_text(encoding="utf-8"))
    one, stopped, many = (np.array(found[name]) for name in ("one", "stopped", "many"))
    where = f"{np.mean(found['samples']):.2f} samples on average, {len(one)} problems"

    def statistic(counts: Floats) -> Floats:
        gained = counts @ (many - one)
        return np.where(gained > 0, counts @ (stopped - one) / np.where(gained > 0, gained, 1.0), np.nan)

    return Claim("g", text, [replace(figure_of(where, statistic, len(one), GAIN_KEPT, "times", 0.0))])
