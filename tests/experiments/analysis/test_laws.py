"""Laws of curves: where there is none, the line has the reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts.experiments.analysis.curves import Curve, accuracies
from tts.experiments.analysis.laws import describe_laws


def curve(label: str, problems: Sequence[str], sizes: Sequence[int]) -> Curve:
    shares = np.tile(np.linspace(0.2, 0.6, len(sizes))[:, None], len(problems))
    return Curve(
        label=label, dataset="sums", model="toy", costs={"samples": np.array(sizes, np.float64)},
        accuracy=accuracies(shares, np.random.default_rng(0)), shares=shares, problems=problems, seeds=[0],
    )  # fmt: skip


def test_too_few_sizes_have_no_law_and_other_problems_no_comparison() -> None:
    told = describe_laws([curve("majority", "ab", (1, 2)), curve("best", "ac", (1, 2))])
    assert told == [
        "majority: no law: it takes 3 sizes that all problems have",
        "best: no law: it takes 3 sizes that all problems have",
        "best and majority: not on the same problems",
    ]
