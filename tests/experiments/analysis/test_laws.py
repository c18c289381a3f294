"""Laws of curves: where there is none, the line has the reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.experiments.made import made_curve
from tts.experiments.analysis.curves import Curve
from tts.experiments.analysis.laws import describe_laws


def curve(label: str, problems: Sequence[str], sizes: Sequence[int]) -> Curve:
    shares = np.tile(np.linspace(0.2, 0.6, len(sizes))[:, None], len(problems))
    return made_curve(label, shares, costs={"samples": np.array(sizes, np.float64)}, problems=problems)


def test_too_few_sizes_have_no_law_and_other_problems_no_comparison() -> None:
    told = describe_laws([curve("majority", "ab", (1, 2)), curve("best", "ac", (1, 2))])
    assert told == [
        "majority: no law: it takes 3 sizes that all problems have",
        "best: no law: it takes 3 sizes that all problems have",
        "best and majority: not on the same problems",
    ]


def measured(label: str, means: Sequence[float], problems: int = 400) -> Curve:
    sizes = 2.0 ** np.arange(len(means))
    shares = (np.arange(problems)[None, :] < problems * np.array(means)[:, None]).astype(np.float64)
    return made_curve(label, shares, costs={"samples": sizes})


def test_a_law_that_leaves_out_a_measured_point_is_refused_with_the_point() -> None:
    smooth = [0.8 * (1 - 0.5**k) for k in (1, 2, 4, 8, 16)]
    (fits,) = describe_laws([measured("majority", smooth)])
    assert fits.startswith("majority: tends to ")
    (refused,) = describe_laws([measured("majority", [0.2, 0.2, 0.75, 0.75, 0.3])])
    assert refused.startswith("majority: no law: what tends to a ceiling leaves out the measured ")
    assert " samples, by " in refused
    (coverage,) = describe_laws([measured("pass@k", [0.1, 0.1, 0.9, 0.9, 0.9])])
    assert coverage.startswith("pass@k: no law: coverage(k) = exp(a k^b) leaves out the measured ")
