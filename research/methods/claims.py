"""The claims of those who proposed the methods, in miniature.

Each verdict is computed from what was measured, and never typed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from research.methods import plans
from research.methods.measuring import LIVE_BASELINE, Measured, point_difference
from tts.experiments.analysis.comparing import Gain, describe_result, gain
from tts.statistics import Estimate, bootstrap

A_STAR_SAVES, PARTICLES_SAVE, ETS_SAVES = 3.0, 4.0, 1.8  # times less, as claimed
HOLDS, HOLDS_IN_THE_MEAN, FAILS, UNSEEN = (
    "holds",
    "holds in the mean, not within its interval",
    "does not hold",
    "cannot be seen here",
)


@dataclass(frozen=True)
class Claim:
    """A claim, whether it holds, and the figures that say so."""

    text: str
    verdict: str
    figures: Sequence[str]


def claims(measured: Measured) -> list[Claim]:
    """Return every claim, checked."""
    ets = [claim for name in plans.KEPT if name != "rebase" for claim in _ets(measured, name)]
    return [*_a_star(measured), *_particles(measured), *ets, _best_of_majority(measured)]


def judge_factor(wanted: float, estimate: Estimate | None) -> str:
    """Return the verdict on a factor that is to be reached.

    Args:
        wanted: The factor.
        estimate: The estimate of it; None: one method never reaches what the other does.
    """
    if estimate is None or estimate.value < wanted:
        return FAILS
    return HOLDS if estimate.low >= wanted else HOLDS_IN_THE_MEAN


def _describe_gain(measured: Measured, name: str, base: str, axis: str) -> tuple[Gain | None, str]:
    found = gain(measured.curves[name], measured.curves[base], axis, rng=np.random.default_rng(0))
    words = "one of the two never reaches what the other does" if found is None else describe_result(found, axis)
    return found, f"{name} against {base}: {words}"


def _a_star(measured: Measured) -> Iterator[Claim]:
    gains = {base: _describe_gain(measured, "a_star", base, "tokens") for base in (LIVE_BASELINE, "best", "majority")}
    first = gains[LIVE_BASELINE][0]
    yield Claim(
        f"A* reaches the accuracy of best-of-N (weighted, live) with at most 1/{A_STAR_SAVES:.0f} of its tokens, "
        "verifier included",
        judge_factor(A_STAR_SAVES, None if first is None else first.ratio),
        [words for _, words in gains.values()],
    )
    mine, other = measured.rows_of("a_star"), measured.rows_of("particle_filter")
    level = min(max(row.accuracy.value for row in rows) for rows in (mine, other))
    points = [next(row for row in rows if row.accuracy.value >= level) for rows in (mine, other)]
    yield Claim(
        "A* needs fewer verifier passes than particle filtering for the accuracy that both reach",
        HOLDS_IN_THE_MEAN if (points[0].calls or 0) < (points[1].calls or 0) else FAILS,
        [
            f"for {100 * level:.1f} %: "
            f"{'; '.join(f'{row.name} {row.calls:.1f} passes at a budget of {row.size}' for row in points)}"
        ],
    )


def _particles(measured: Measured) -> Iterator[Claim]:
    for base in ("beam", "dvts"):
        found, words = _describe_gain(measured, "particle_filter", base, "generated_tokens")
        total = _describe_gain(measured, "particle_filter", base, "tokens")[1]
        yield Claim(
            f"particle filtering needs at most 1/{PARTICLES_SAVE:.0f} of the budget that {base} needs for the same "
            "accuracy",
            judge_factor(PARTICLES_SAVE, None if found is None else found.ratio),
            [words, total],
        )


def _ets(measured: Measured, name: str) -> Iterator[Claim]:
    differences = [
        point_difference(measured.curves[name], i, measured.curves["rebase"], i).mean
        for i in range(len(measured.rows_of(name)))
    ]
    yield Claim(
        f"{name} keeps the accuracy of REBASE within the interval",
        HOLDS if all(one.high >= 0 for one in differences) else FAILS,
        [],
    )
    saved = [live_ratio(measured, name, size) for size in plans.BUDGETS]
    yield Claim(
        f"{name} keeps at least {ETS_SAVES} times fewer tokens alive than REBASE, on average over levels (at the "
        "largest budget)",
        judge_factor(ETS_SAVES, saved[-1]) if any(saved) else UNSEEN,
        [],
    )


def live_ratio(measured: Measured, name: str, size: int) -> Estimate | None:
    """Return live tokens of REBASE over those of a method, on the problems that both recorded.

    None: there are no such problems.
    """
    mine, other = (measured.kept.get((one, size), {}) for one in (name, "rebase"))
    shared = [problem for problem in mine if problem in other]
    if not shared:
        return None
    above, below = (np.array([of[p] for p in shared]) for of in (other, mine))
    return bootstrap(lambda counts: (counts @ above) / (counts @ below), len(shared), np.random.default_rng(0))


def _best_of_majority(measured: Measured) -> Claim:
    best, kept = measured.rows_of("best"), measured.rows_of("best of majority")
    tops = [max(range(len(rows)), key=lambda i, of=rows: of[i].accuracy.value) for rows in (best, kept)]
    curves = [measured.curves[name] for name in ("best", "best of majority")]
    falls, stays = (
        point_difference(curve, len(best) - 1, curve, top).mean for curve, top in zip(curves, tops, strict=True)
    )
    verdict = UNSEEN if not falls.high < 0 else HOLDS if not stays.high < 0 else FAILS
    return Claim(
        "best-of-majority does not fall as N grows where best-of-N falls",
        verdict,
        [
            f"each from where it is best to N = {best[-1].size}: best-of-N from {best[tops[0]].size} {points(falls)}, "
            f"best-of-majority from {kept[tops[1]].size} {points(stays)}",
        ],
    )


def points(one: Estimate) -> str:
    """Return a difference in points with its interval."""
    return f"{100 * one.value:+.1f} [{100 * one.low:+.1f}, {100 * one.high:+.1f}] points"
