"""Scores as probabilities of being right, for stop rules that read them so.

A logistic law, which is fitted on other problems, turns scores into probabilities.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from tts.experiments.analysis.pools import ProblemPool

_RIDGE = 1e-3  # keeps the law finite where it separates all samples


def add_chances(problems: Sequence[ProblemPool]) -> list[ProblemPool]:
    """Return pools whose scores of the role `main` are the chances that samples are right.

    The law of every second problem is fitted on the others, and the other way round. So no problem takes part in its
    own
    law.
    """
    laws = [_fit_law([one for i, one in enumerate(problems) if i % 2 != half]) for half in (0, 1)]
    return [_apply_law(one, *laws[i % 2]) for i, one in enumerate(problems)]


def _apply_law(one: ProblemPool, mean: float, spread: float, law: NDArray[np.float64]) -> ProblemPool:
    drawn = tuple(
        dataclasses.replace(
            each, scores={"main": float(special.expit(law[0] + law[1] * (each.scores["main"] - mean) / spread))}
        )
        for each in one.drawn
    )
    return dataclasses.replace(
        one, drawn=drawn, cell=dataclasses.replace(one.cell, verifiers={"main": "recorded(low=0, high=1)"})
    )


def _fit_law(problems: Sequence[ProblemPool]) -> tuple[float, float, NDArray[np.float64]]:
    """Return the mean and the spread of the scores, and a law of the log-odds.

    The law has an intercept and a slope, for scores less the mean in units of the spread.
    """
    scores = np.array([each.scores["main"] for one in problems for each in one.drawn])
    signs = np.array([1.0 if each.right else -1.0 for one in problems for each in one.drawn])
    mean, spread = float(scores.mean()), float(scores.std()) or 1.0

    def loss(law: NDArray[np.float64]) -> float:
        margins = signs * (law[0] + law[1] * (scores - mean) / spread)
        return float(np.logaddexp(0, -margins).mean() + _RIDGE * law @ law)

    return mean, spread, optimize.minimize(loss, np.zeros(2)).x
