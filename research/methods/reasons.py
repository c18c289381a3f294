"""Why the methods do as they do, and what ETS's charge buys.

The searches run on the toy language, where the errors of the verifier are set.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.methods import measuring, plans, running
from research.methods.choosing import Choices
from research.methods.writing import NEVER, code, share
from research.stamps import stamp_line
from tts.experiments.analysis.comparing import describe_result, gain
from tts.experiments.analysis.curves import Curve, curves_of
from tts.experiments.store.store import Store
from tts.experiments.study import config
from tts.experiments.study.config import StudyConfig
from tts.statistics import Estimate

FILE = "methods_by_verifier.md"
ERRORS = (0.02, 0.1, 0.3, 0.45)  # share of steps that the toy's verifier misjudges
OPERATIONS = 10
SAMPLE = 63  # generated tokens of a solution of so many operations, which has one step each
SIZES = (1, 2, 4, 8, 16)
SEARCHES = (
    "best_of_n | best",
    "best_of_n | weighted",
    "beam(branching=2) | weighted",
    "dvts(branching=2) | weighted",
    "rebase | weighted",
    "ets | weighted",
    "a_star(branching=2, goals=1)",
    "a_star(goals=1)",
    "particle_filter | weighted",
)
GAINS = (
    ("a_star(branching=2) | best", "best_of_n | best", "tokens"),
    ("a_star(branching=2) | best", "best_of_n | weighted", "tokens"),
    ("particle_filter | weighted", "beam(branching=2) | weighted", "generated_tokens"),
    ("particle_filter | weighted", "dvts(branching=2) | weighted", "generated_tokens"),
)
CHARGES = (0.5, 1.0, 1.5, 2.0, 4.0)
CHARGED_AT = (8, 16)


def write(choices: Choices, path: Path, folder: Path, *, limit: int, seeds: int, jobs: int) -> None:
    """Run what is missing, and write the page."""
    lines = [*_error_section(path, limit, seeds, jobs), "", *_charge_section(choices, path, limit, jobs)]
    (folder / FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(folder / FILE)


def _error_section(path: Path, limit: int, seeds: int, jobs: int) -> Iterator[str]:
    """Yield the searches on the toy, by how often its verifier errs."""
    yield from (
        "# Search methods by what their verifier is worth",
        "",
        stamp_line("python -m research.methods --reasons"),
        "",
        f"`toy` on {limit} sums of {OPERATIONS} operations of the validation split, a step for each, {seeds} seeds. "
        "Its verifier knows the truth, and a share of its verdicts is flipped (*errors*). The limit is on generated "
        f"tokens alone: {', '.join(map(str, SIZES))} plain samples' worth, at {SAMPLE} each. Parameters are not tuned.",
        "",
        f"| errors | search | {' | '.join(map(str, SIZES))} |",
        f"| --: | :-- {'| :-- ' * len(SIZES)}|",
    )
    curves_of_errors = {error: _curves(_toy_study(error, limit, seeds), path, jobs) for error in ERRORS}
    for error, curves in curves_of_errors.items():
        for label, curve in curves.items():
            yield f"| {error:.0%} | {code(label)} | {' | '.join(share(one) for one in curve.accuracy)} |"
    yield from ("", "At equal accuracy, the share of the other's tokens, or of its generated ones for particles:", "")
    yield from ("| errors | method | against | times the tokens |", "| --: | :-- | :-- | :-- |")
    for error, curves in curves_of_errors.items():
        for name, base, axis in GAINS:
            found = gain(curves[name], curves[base], axis, rng=np.random.default_rng(0))
            words = NEVER if found is None else re.sub(r" times| the [a-z ]*tokens", "", describe_result(found, axis))
            yield f"| {error:.0%} | {code(name)} | {code(base)} | {words} |"


def _toy_study(error: float, limit: int, seeds: int) -> StudyConfig:
    sums: dict[str, Any] = {"operations": [OPERATIONS], "operators": "+-", "parentheses": False, "limit": limit}
    return config.study_config(
        {
            "name": f"methods-toy-{error:g}",
            "models": "toy",
            "verifiers": f"toy(error={error:g})",
            "problems": {"dataset": "arithmetic", "split": "validation", **sums},
            "strategies": list(SEARCHES),
            "budgets": {"generated_tokens": [size * SAMPLE for size in SIZES]},
            "seeds": seeds,
            "concurrency": running.CONCURRENCY,
        }
    )


def _curves(study: StudyConfig, path: Path, jobs: int) -> dict[str, Curve]:
    number = running.run(study, path, jobs)
    with Store(path) as store:
        found = running.curves_by_budget(store.results(number, drawn=False))
    return {strategy: dataclasses.replace(curve, label=strategy) for (strategy, _), curve in found.items()}


def _charge_section(choices: Choices, path: Path, limit: int, jobs: int) -> Iterator[str]:
    """Yield the live tokens and the accuracy of ETS by its charge, on the embedded pair."""
    rebase = choices.chosen["rebase"]
    balance = rebase.partition("balance_temperature=")[2].partition(")")[0]
    tried = {
        f"ets(balance_temperature={balance}, charge={charge:g}) | weighted": f"ETS, charge {charge:g}"
        for charge in CHARGES
    }
    alone = {
        f"ets(balance_temperature={balance}, charge={charge:g}, coverage=0.0) | "
        "weighted": f"ETS, charge {charge:g}, no coverage"
        for charge in CHARGES[1:3]
    }
    plans_of = {rebase: "REBASE", **tried, **alone}
    names = measuring.Names(plans_of)
    problems = {"split": "validation", "operations": choices.operations, "limit": limit}
    yield from (
        "## What the charge of ETS buys on the embedded pair",
        "",
        f"{limit} problems of the validation split, one seed, guided by the process model. *Live*: distinct tokens "
        "that are kept, in the mean over levels.",
        "",
        f"| charge | {' | '.join(f'accuracy at {size} | live' for size in CHARGED_AT)} |",
        f"| :-- {'| :-- | --: ' * len(CHARGED_AT)}|",
    )
    figures: dict[str, list[tuple[Estimate, float]]] = {name: [] for name in plans_of.values()}
    for size in CHARGED_AT:
        study = running.make_study(
            f"methods-charge-{size}",
            problems,
            list(plans_of),
            choices.budgets([size]),
            seeds=1,
            verifier=plans.GUIDE,
            traces=limit,
        )
        number = running.run(study, path, jobs)
        with Store(path) as store:
            results = list(store.results(number, drawn=False))
            curves = {curve.label: curve for curve in curves_of(results, rng=np.random.default_rng(0))}
            for (strategy, _), of in measuring.group_results(results).items():
                kept = measuring.kept_tokens(store, of)
                figures[names[strategy]].append((curves[strategy].accuracy[0], statistics.fmean(kept.values())))
    for name, points in figures.items():
        yield f"| {name} | {_points(points)} |"


def _points(points: Sequence[tuple[Estimate, float]]) -> str:
    return " | ".join(f"{share(accuracy)} | {kept:.0f}" for accuracy, kept in points)
