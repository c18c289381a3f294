"""The claims as a page, with the tables behind them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from research.claims import plans
from research.claims.claims import Claim
from research.claims.measuring import Choices, Curves, Measured
from research.claims.reasons import reasons
from research.methods.writing import code, share
from research.stamps import stamp_line
from tts.allocator import shipped
from tts.experiments.analysis.curves import Curve
from tts.statistics import clustered_mean


def page(claims: list[Claim], measured: Measured, choices: Choices, command: str, folder: Path) -> Iterator[str]:
    """Yield the lines of the page.

    Args:
        claims: The claims.
        measured: The comparison on the test split.
        choices: What the validation split decided.
        command: The command that makes the page.
        folder: The folder of pages.
    """
    yield from _head("Claims about search methods, tested on countdowns", measured, command)
    exact = (
        " What does not hold is tested with exact verdicts too, uncorrected: if it holds with these, the verifier is "
        "the reason."
    )
    yield from (
        f"Parameters, the best methods and alpha are of {choices.problems} problems of the validation split, "
        f"{choices.seeds} seed(s), by the learnt verifier at {plans.TRIED_AT} tokens. A p-value is one-sided, "
        "corrected by Holm over all figures of all claims, and for no difference, a ratio of 1, or the loss that the "
        "claim allows. A figure holds if it reaches what is asked, and p is below 0.05. Claim (a) and that of (c) on "
        "budgets need one such figure, all others every "
        f"one.{exact if len({name for name, _ in measured.curves}) > 1 else ''}",
        "",
        "## Claims",
        "",
    )
    yield from _claims(claims)
    yield from ("", "## Why", "", *reasons(measured, choices, folder))
    yield from ("", "## Accuracy", "", *_table(measured.curves))
    yield from ("", "## Accuracy where every method has the rules too", "")
    yield (
        "Each method ends at the first answer that the verifier `rules` accepts. So a vote and best-of-N are the same."
    )
    yield from ("", *_table(measured.ruled))
    yield from ("", "## Plans, and what was tried on the validation split", "", "| method | plan |", "| :-- | :-- |")
    yield from (f"| {name} | {code(plan)} |" for name, plan in choices.plans.items())
    yield from ("", "| plan | accuracy in percent | live tokens |", "| :-- | --: | --: |")
    for plan, (value, *kept) in choices.tried.items():
        yield f"| {code(plan)} | {value:.1f} | {f'{kept[0]:.0f}' if kept else ''} |"


def page_on_auto(claims: list[Claim], measured: Measured, command: str) -> Iterator[str]:
    """Yield the lines of the page of claim (f) alone."""
    curves = ", ".join(f"`{curve}`" for curve in shipped.load("pocket-countdown").curves)
    yield from _head("The claim about `auto`, tested on countdowns", measured, command)
    yield from (
        f"`{plans.AUTO}` chooses among the curves of the performance model that ships: {curves}. A p-value is "
        "one-sided, and corrected by Holm over the figures of this page. [All claims](claims.md) are corrected over "
        "all figures.",
        "",
        "## Claims",
        "",
        *_claims(claims),
        "",
        "## Accuracy",
        "",
        *_table(measured.curves),
    )


def _head(title: str, measured: Measured, command: str) -> Iterator[str]:
    yield from (
        f"# {title}",
        "",
        stamp_line(command),
        "",
        f"{measured.problems} countdowns of {plans.NUMBERS} numbers, {measured.seeds} seed(s). Hard limits on "
        f"generated tokens: {', '.join(map(str, plans.BUDGETS))}.",
    )


def _claims(claims: list[Claim]) -> Iterator[str]:
    for one in claims:
        yield f"- {one.text}: **{one.verdict}**."
        yield from (f"  - {test}" for test in (*one.tests, *one.beside))


def _table(curves: Curves) -> Iterator[str]:
    yield "| verifier | method | budget | accuracy | generated | tokens | MFLOPs | minus best-of-N |"
    yield "| :-- | :-- | --: | :-- | --: | --: | --: | :-- |"
    for (verifier, method), curve in curves.items():
        base = curves.get((verifier, plans.BEST_OF_N))
        for i, budget in enumerate(plans.BUDGETS):
            spent = " | ".join(
                f"{curve.cost(axis)[i] / size:.0f}"
                for axis, size in (("generated_tokens", 1), ("tokens", 1), ("flops", 1e6))
            )
            beside = "" if base is None or base is curve else _gap(curve, base, i)
            yield f"| {verifier} | {method} | {budget} | {share(curve.accuracy[i])} | {spent} | {beside} |"


def _gap(curve: Curve, base: Curve, point: int) -> str:
    mine, theirs = (one.shares[point, np.argsort(one.problems)] for one in (curve, base))
    gap = clustered_mean(mine - theirs, rng=np.random.default_rng(0), bounds=(-1, 1))
    mark = "**" if gap.low > 0 or gap.high < 0 else ""
    return f"{mark}{100 * gap.value:+.1f} [{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]{mark}"
