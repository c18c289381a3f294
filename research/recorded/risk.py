"""Calibrated risks on recorded pools: how often calibrated thresholds exceed their level.

    TTS_DATA_DIR=… python -m research.recorded.risk [--times 1000] [--problems 300] [--only POOL …] [--out FOLDER]

The rule `selective` and random answers stand beside them. The problems of a pool, each with 20 random sets of its
samples, are the population. So the error at each threshold is known. Calibration problems are drawn from the
population independently. The command takes a minute of one core.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from research.recorded import pools
from research.stamps import stamp_line
from tts.errors import ConfigError, TTSError
from tts.experiments.analysis.recorded_search import RecordedSearch
from tts.search.algorithms.calibration import PROPOSING, calibrate_chain
from tts.search.plan import parse
from tts.statistics import wilson

RESULTS = Path(__file__).parents[2] / "docs/results"
PLANS = {"dates": ("majority", 8), "qwen25math": ("weighted", 4)}
LEVELS, DELTA, ORDERS = (0.02, 0.05, 0.1), 0.1, 20
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def main() -> None:
    """Calibrate what is asked for, and write the page."""
    parser = argparse.ArgumentParser(description="Calibrated risks on recorded pools.")
    parser.add_argument("--times", type=int, default=1000, help="calibrations of each pool and level")
    parser.add_argument("--problems", type=int, default=300, help="problems of a calibration")
    parser.add_argument("--only", nargs="*", choices=PLANS, default=[*PLANS])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    try:
        lines = list(page_lines(options.only, options.times, options.problems))
    except TTSError as failure:
        raise SystemExit(str(failure)) from None
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "risk.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(options.out / "risk.md")


def page_lines(names: Sequence[str], times: int, problems: int) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from (
        "# Calibrated risks on recorded samples",
        "",
        stamp_line(f"python -m research.recorded.risk --times {times} --problems {problems}"),
        "",
        f"Each row is the mean of {times:,} calibrations on {problems} problems, drawn independently from a pool, "
        "which is the whole population here. *Level* is the largest allowed share of wrong answers. *Exceeded* is "
        f"the share of calibrations that are wrong more often; `tts calibrate` allows {DELTA:g}. *Answered* is the "
        "share of problems with an answer. `selective` takes the lowest threshold whose errors on the calibration "
        "problems are within the level, without a statistical bound. *Random* gives as many answers as `tts "
        "calibrate`, blindly.",
        "",
    )
    told, table = list[str](), list[str]()
    for name in names:
        selection, n = PLANS[name]
        confidence, right = population(name, selection, n)
        plan = f"`best_of_n(n={n}) | {selection}`"
        told.append(f"`{name}` is of {pools.MODELS[name]}: {plan}, {right.mean():.1%} of all answers are right")
        table += [f"| {name} {row}" for level in LEVELS for row in rows(confidence, right, level, times, problems)]
    yield from (f"{'; '.join(told)}.", "", "| pool | level | answers by | answered | wrong | exceeded |")
    yield from ("| :-- | --: | :-- | --: | --: | :-- |", *table)


def population(name: str, selection: str, n: int) -> tuple[Floats, Bools]:
    """Return the confidence and the verdict of each problem with each of its sets of samples."""
    rng = np.random.Generator(np.random.Philox(5))
    plan, pairs = parse(f"best_of_n | {selection}"), list[tuple[float, bool]]()
    for pool in pools.pool(name).problems:
        search = RecordedSearch(pool, plan)
        for _ in range(ORDERS):
            outcome, confidence = search.sure(rng.permutation(len(pool.drawn))[:n].tolist())
            pairs.append((math.nan if outcome.answer is None else confidence, bool(outcome.right)))
    return np.array([one[0] for one in pairs]), np.array([one[1] for one in pairs])


def rows(confidence: Floats, right: Bools, level: float, times: int, problems: int) -> Iterator[str]:
    """Yield the rows of a level."""
    rng = np.random.Generator(np.random.Philox(6))
    proposes = np.arange(problems) % PROPOSING == 0
    everything = float(1 - right.mean())
    outcomes_by_rule: dict[str, list[tuple[float, float]]] = {"tts calibrate": [], "selective": [], "random": []}
    for _ in range(times):
        drawn = rng.integers(len(right), size=problems)
        sure, correct = confidence[drawn], right[drawn]
        try:
            [threshold] = calibrate_chain([sure], [correct], proposes, level, DELTA).thresholds
        except ConfigError:
            threshold = math.inf
        calibrated = outcome(confidence, right, threshold)
        outcomes_by_rule["tts calibrate"].append(calibrated)
        outcomes_by_rule["selective"].append(outcome(confidence, right, plain_threshold(sure, correct, level)))
        outcomes_by_rule["random"].append((calibrated[0], everything if calibrated[0] else 0.0))
    for name, outcomes in outcomes_by_rule.items():
        answered, wrong = (np.array([one[i] for one in outcomes]) for i in range(2))
        count = int((wrong > level).sum())
        interval = wilson(count, times)
        share = float(np.average(wrong, weights=answered)) if answered.any() else math.nan
        share_text = "–" if math.isnan(share) else f"{share:.1%}"
        yield (
            f"| {level:g} | {name if name == 'random' else f'`{name}`'} | {answered.mean():.1%} | {share_text} | "
            f"{count / times:.3f} [{interval.low:.3f}, {interval.high:.3f}] |"
        )


def outcome(confidence: Floats, right: Bools, threshold: float) -> tuple[float, float]:
    """Return the share of the population that is answered from a threshold on, and the share of errors."""
    answers = np.nan_to_num(confidence, nan=-math.inf) >= threshold
    return (float(answers.mean()), float((~right[answers]).mean())) if answers.any() else (0.0, 0.0)


def plain_threshold(confidence: Floats, right: Bools, level: float) -> float:
    """Return the least confidence from which on the share of wrong answers is within the level.

    Without such a confidence, infinity is returned.
    """
    order = np.argsort(-np.nan_to_num(confidence, nan=-math.inf), kind="stable")
    sure = confidence[order]
    ends = np.append(sure[1:] != sure[:-1], True) & ~np.isnan(sure)
    within = ends & (np.cumsum(~right[order]) <= level * np.arange(1, len(sure) + 1))
    return float(sure[within].min()) if within.any() else math.inf


if __name__ == "__main__":
    main()
