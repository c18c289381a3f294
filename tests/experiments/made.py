"""Cells and results that are made up, for tests of what keeps and adds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tts.experiments.analysis.curves import Curve, accuracies
from tts.experiments.study.record import Cell, RecordedSample, Result
from tts.types import Usage


def cell(number: int | str = 0, **given: Any) -> Cell:
    """Return a cell; those of one number and otherwise equal arguments are the same."""
    return Cell(
        **{
            "key": f"key {number}",
            "dataset": "sums",
            "problem": f"sums/{number}",
            "model": "toy",
            "setting": "a setting",
            "strategy": "best_of_n(n=4) | majority",
            "budget": {"tokens": 100},
            "seed": 0,
        }
        | given
    )


def result(of: Cell, tokens: int = 10, **given: Any) -> Result:
    """Return what came of a cell: a right answer that took so many tokens."""
    usual = {
        "answer": "4",
        "right": True,
        "confidence": 0.75,
        "stopped_by": "samples drawn",
        "usage": Usage(generated_tokens=tokens),
    }
    return Result(cell=of, **{**usual, **given})


def sample(kind: int | None = 0, tokens: int = 10, **given: Any) -> RecordedSample:
    """Return a recorded sample of a class of answers: None has no answer, and 0 is right."""
    answer = None if kind is None else f"answer {kind}"
    usual = {"answer": answer, "answer_class": kind, "right": kind == 0, "status": "finished", "tokens": tokens}
    return RecordedSample(**{"scores": {}, **usual, **given})


def made_curve(label: str, shares: Any, rng: np.random.Generator | None = None, **given: Any) -> Curve:
    """Return the curve of shares of right answers, [point, problem], with the given costs."""
    usual = {
        "label": label,
        "dataset": "sums",
        "model": "toy",
        "accuracy": accuracies(shares, rng or np.random.default_rng(0)),
        "shares": shares,
        "problems": [str(i) for i in range(shares.shape[1])],
        "seeds": [0],
    }
    return Curve(**{**usual, **given})
