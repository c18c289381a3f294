"""Why claims do not hold: the figures that show the cause."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from research.claims import plans
from research.claims.measuring import Choices, Measured
from research.claims.self_evaluation import FILE
from research.claims.testing import difference
from tts.experiments.analysis.comparing import describe_result, gain

ERRORS = {plans.EXACT: 0.0, **plans.FLIPPED}  # share of verdicts that are flipped, by verifier


def reasons(measured: Measured, choices: Choices, folder: Path) -> Iterator[str]:
    """Yield the lines of the section.

    Args:
        measured: The comparison on the test split.
        choices: What the validation split decided.
        folder: The folder of pages, which has the figures of claim (g).
    """
    errors = {name: share for name, share in ERRORS.items() if (name, plans.BEST_OF_N) in measured.curves}
    if len(errors) > 1:
        yield (
            "- (a), (b): the share of exact verdicts that must be flipped until a method is as accurate as with the "
            f"learnt verifier, at the largest budget: {', '.join(_equal_errors(measured, errors))}."
        )
        yield (
            "- (c): what a method gains on a vote with exact verdicts, and the share of this gain that is left with "
            "flipped verdicts, in the mean over budgets. The method that gains most has most to lose."
        )
        yield from (f"  - {line}" for line in _remaining_gains(measured, errors))
    yield from _charges(choices)
    if choices.alpha <= 1 / 16:
        yield (
            f"- (e): alpha {choices.alpha:g} at N = 16 keeps every answer, because one vote of 16 is a larger "
            "share. So best-of-majority equals best-of-N there."
        )
    if (bound := _bound(measured)) is not None:
        yield (
            f"- (f): no allocator can beat, by stopping alone, best-of-N that ends at the first right answer: {bound}."
        )
    yield from _self_evaluation(folder)


def _accuracy(measured: Measured, verifier: str, method: str) -> list[float]:
    return [100 * one.value for one in measured.curves[verifier, method].accuracy]


def _equal_errors(measured: Measured, errors: dict[str, float]) -> Iterator[str]:
    for method in plans.STEPWISE:
        known = [_accuracy(measured, name, method)[-1] for name in errors]
        learnt, shares = _accuracy(measured, plans.LEARNT, method)[-1], list(errors.values())
        if learnt < min(known):
            yield f"{method} above {shares[-1]:.0%}"
        else:  # accuracies fall as errors grow; `interp` wants them to rise
            falling = np.minimum.accumulate(known)
            yield f"{method} {np.interp(learnt, falling[::-1], shares[::-1]):.0%}"


def _remaining_gains(measured: Measured, errors: dict[str, float]) -> Iterator[str]:
    def gain_on_vote(verifier: str, method: str) -> float:
        return float(
            np.mean(_accuracy(measured, verifier, method)) - np.mean(_accuracy(measured, verifier, plans.MAJORITY))
        )

    for method in plans.STEPWISE:
        whole = gain_on_vote(plans.EXACT, method)
        parts = (f"{gain_on_vote(name, method) / whole:.0%} of it {name}" for name in errors if name != plans.EXACT)
        yield f"{method}: {whole:+.1f} points, {', '.join(parts)}" if whole > 0 else f"{method}: {whole:+.1f} points"


def _charges(choices: Choices) -> Iterator[str]:
    tried = {plan: figures for plan, figures in choices.tried.items() if len(figures) > 1}
    if tried:
        (accuracy, live), (plan, (last, least)) = next(iter(tried.values())), list(tried.items())[-1]
        yield (
            f"- (d): a charge of {plan.partition('charge=')[2].partition(')')[0]} has {live / least:.2f} times fewer "
            f"live tokens than the smallest, but {last:.1f} % in place of {accuracy:.1f} % (validation split, table "
            "below). A tree of three steps shares little except its prompt, which no charge removes."
        )


def _bound(measured: Measured) -> str | None:
    ended, base = (curves.get((plans.LEARNT, plans.BEST_OF_N)) for curves in (measured.ruled, measured.curves))
    found = None if ended is None or base is None else gain(ended, base, "tokens", rng=np.random.default_rng(0))
    return None if found is None else describe_result(found, "tokens")


def _self_evaluation(folder: Path) -> Iterator[str]:
    if (folder / FILE).is_file():
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        one, stopped, many = (np.array(found[name]) for name in ("one", "stopped", "many"))
        gains = (difference("", of, one, 0.0).value for of in (many, stopped))
        yield (
            "- (g): best-of-16 by self-evaluation gains {} on one sample. The search that stops early gains {}."
        ).format(*gains)
