"""The decisions of the validation split: difficulty, the cost of a plain sample, and parameters."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from research.methods import plans, running
from tts.errors import ConfigError
from tts.experiments.analysis.curves import Curve, curves_of
from tts.experiments.analysis.pools import pool_study, pools_of
from tts.experiments.analysis.replay import COVERAGE, replay
from tts.experiments.store.store import Store
from tts.search.plan import parse
from tts.statistics import Estimate

FILE = "methods_choices.json"
SAMPLES = 16  # of each problem, to choose the range of
OPERATIONS = tuple(range(1, 11))
EASIEST, HARDEST = 0.85, 0.15  # accuracy of one sample in the range
ROOM = 0.15  # that coverage by SAMPLES must have over their vote: else there is nothing that a search could find
TRIED_AT = 8  # samples' worth, at which parameters are tried


@dataclass(frozen=True, kw_only=True)
class Level:
    """The figures of one number of operations on the validation split.

    Args:
        operations: The number of operations.
        problems: The number of problems.
        one: The share of right single samples.
        vote: The share of right votes.
        coverage: The share of problems with any right sample.
        generated: The mean generated tokens of a sample.
        total: The mean tokens of a sample, the verifier's included.
    """

    operations: int
    problems: int
    one: float
    vote: float
    coverage: float
    generated: float
    total: float

    @property
    def is_in_range(self) -> bool:
        """Whether the problems are neither too easy nor too hard, and a search has something to find."""
        return HARDEST <= self.one <= EASIEST and self.coverage - self.vote >= ROOM


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A plan and its figures on the validation split.

    Args:
        plan: The plan.
        accuracy: The share of right answers.
        generated: The mean generated tokens of a problem.
        total: The mean tokens of a problem.
    """

    plan: str
    accuracy: Estimate
    generated: float
    total: float


@dataclass(frozen=True, kw_only=True)
class Choices:
    """All that was chosen.

    Args:
        levels: The figures of each number of operations.
        problems: The number of problems on which parameters were tried.
        seeds: The number of seeds.
        tried: The plans of each method, with their figures.
    """

    levels: Sequence[Level]
    problems: int = 0
    seeds: int = 0
    tried: Mapping[str, Sequence[Tried]] = dataclasses.field(default_factory=dict[str, Sequence[Tried]])

    @property
    def operations(self) -> list[int]:
        """The numbers of operations in the range."""
        return [level.operations for level in self.levels if level.is_in_range]

    @property
    def sample(self) -> int:
        """The generated tokens of a plain sample in the range, in the mean, rounded up.

        Raises:
            ConfigError: no number of operations is in the range.
        """
        generated = [level.generated for level in self.levels if level.is_in_range]
        if not generated:
            raise ConfigError("no number of operations is in the range", hint="run --choose-range on more problems")
        return int(np.ceil(np.mean(generated)))

    @property
    def chosen(self) -> dict[str, str]:
        """The best plan of each method, the first among equals, and the variants of these plans."""
        best = {name: max(of, key=lambda one: one.accuracy.value).plan for name, of in self.tried.items()}
        return plans.add_variants(best)

    def budgets(self, sizes: Sequence[int] = plans.BUDGETS) -> dict[str, list[int]]:
        """Return limits on generated tokens that are worth so many plain samples."""
        return {"generated_tokens": [size * self.sample for size in sizes]}

    def save(self, folder: Path) -> None:
        """Write the choices as JSON."""
        (folder / FILE).write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Choices:
        """Return the choices of a folder.

        Raises:
            ConfigError: The folder has none.
        """
        try:
            data: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="utf-8"))
        except OSError:
            raise ConfigError(
                f"{folder / FILE} cannot be read", hint="run --choose-range, then --choose-parameters, first"
            ) from None
        data["levels"] = [Level(**level) for level in data["levels"]]
        data["tried"] = {name: [_read_result(one) for one in of] for name, of in data["tried"].items()}
        return cls(**data)


def _read_result(one: dict[str, Any]) -> Tried:
    one["accuracy"] = Estimate(**one["accuracy"])
    return Tried(**one)


def choose_range(store: Path, jobs: int, limit: int) -> Choices:
    """Draw samples of problems of every number of operations, and return their levels."""
    problems = {"split": "validation", "operations": list(OPERATIONS), "limit": limit, "group_by": "operations"}
    study = running.make_study(
        "methods-range", problems, [plans.BASELINE], {"samples": SAMPLES}, seeds=1, verifier=plans.GUIDE
    )
    number = running.run(study := pool_study(study, SAMPLES), store, jobs)
    with Store(store) as opened:
        pools = pools_of(opened.results(number)).pools
    found = replay(pools, [COVERAGE, plans.REPLAYED["majority"], plans.BASELINE], [1, SAMPLES], by_group=True)
    by_group: dict[str, dict[str, Curve]] = {}
    for one in found:
        by_group.setdefault(one.curve.group or "", {})[one.curve.label] = one.curve
    levels = [_level(group, of) for group, of in by_group.items()]
    return Choices(levels=sorted(levels, key=lambda level: level.operations))


def _level(group: str, curves: Mapping[str, Curve]) -> Level:
    coverage, vote, weighted = curves[COVERAGE], curves[plans.REPLAYED["majority"]], curves[plans.BASELINE]
    return Level(
        operations=int(group.split(maxsplit=1)[0]),
        problems=len(coverage.problems),
        one=coverage.accuracy[0].value,
        vote=vote.accuracy[1].value,
        coverage=coverage.accuracy[1].value,
        generated=float(weighted.costs["generated_tokens"][0]),
        total=float(weighted.costs["tokens"][0]),
    )


def choose_parameters(choices: Choices, store: Path, jobs: int, limit: int, seeds: int) -> Choices:
    """Try every plan of the grids on validation problems of the chosen range."""
    problems = {"split": "validation", "operations": choices.operations, "limit": limit}

    def try_grids(
        name: str, grids: Mapping[str, Sequence[str]], verifier: str = plans.GUIDE
    ) -> dict[str, Sequence[Tried]]:
        strategies = list(dict.fromkeys(plan for group in grids.values() for plan in group))
        study = running.make_study(
            f"methods-{name}", problems, strategies, choices.budgets([TRIED_AT]), seeds=seeds, verifier=verifier
        )
        number = running.run(study, store, jobs)
        with Store(store) as opened:
            curves = {curve.label: curve for curve in curves_of(opened.results(number), rng=np.random.default_rng(0))}
        return {method: [_plan_result(curves, plan) for plan in group] for method, group in grids.items()}

    first = try_grids("parameters", plans.first_grids())
    chosen = Choices(levels=choices.levels, tried=first).chosen
    second = try_grids("parameters-shared", plans.second_grids(chosen))
    judged = try_grids("parameters-self-evaluated", plans.self_evaluated_grids(), "self_evaluation")
    return Choices(levels=choices.levels, problems=limit, seeds=seeds, tried={**first, **second, **judged})


def _plan_result(curves: Mapping[str, Curve], plan: str) -> Tried:
    curve = curves[canonical_name(plan, curves)]
    generated, total = (float(curve.costs[axis][0]) for axis in ("generated_tokens", "tokens"))
    return Tried(plan=plan, accuracy=curve.accuracy[0], generated=generated, total=total)


def canonical_name(plan: str, known: Iterable[str]) -> str:
    """Return the known name that a study gives a plan."""
    return next(name for name in known if is_named(plan, name))


def is_named(plan: str, name: str) -> bool:
    """Return whether a study gives a plan a name: its canonical text, which includes the selection."""
    text = str(parse(plan))
    return name == text or name.startswith(f"{text} | ")
