"""The comparison on the test split: accuracy and spend of every method beside the baseline."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from research.methods import plans, running
from research.methods.choosing import Choices, is_named
from tts.experiments.analysis.curves import Curve
from tts.experiments.analysis.pools import pool_study, pools_of
from tts.experiments.analysis.replay import CHANCE, COVERAGE, replay
from tts.experiments.store.store import Store
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.record import Result
from tts.statistics import Difference, Estimate, clustered_mean, holm, paired_difference

TRACED = 20  # problems whose searches are recorded, for their live tokens
BASELINE = "weighted"  # the name of the baseline among the replayed
LIVE_BASELINE = "best_of_n"  # the same under the hard limit that every live method has
# of which the more accurate one at a budget is what live methods are held against
LIVE_BASELINES = (LIVE_BASELINE, "best_of_n, best")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A method at a budget.

    Args:
        name: The name of the method.
        size: The budget, in plain samples' worth.
        kind: "live" or "replayed".
        accuracy: The share of right answers.
        generated: The generated tokens of a problem, in the mean.
        verifier: The verifier tokens of a problem, in the mean.
        total: The tokens of a problem, in the mean.
        calls: The verifier calls of a problem, in the mean; None: replayed.
        peak: The most distinct tokens that were live at once; None: replayed.
        kept: The distinct tokens of the live set, over the levels of a search; None: unknown.
        limit: The budget in generated tokens; None: replayed.
        stops: The number of runs, by why they stopped.
        difference: The difference to the baseline, paired by problem; None: the row has none.
        p: The p-value, corrected over all methods and budgets.
    """

    name: str
    size: int
    kind: str
    accuracy: Estimate
    generated: float
    verifier: float
    total: float
    calls: float | None = None
    peak: float | None = None
    kept: float | None = None
    limit: int | None = None
    stops: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])
    difference: Difference | None = None
    p: float | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The comparison.

    Args:
        rows: The rows of all methods and budgets.
        curves: The curves, by name.
        kept: The mean live tokens of each problem whose searches were recorded, by name and size.
        copies: The share of recorded problems at which a method has REBASE's candidates, by name and size.
        problems: The number of problems.
        seeds: The number of seeds.
    """

    rows: Sequence[Row]
    curves: Mapping[str, Curve]
    kept: Mapping[tuple[str, int], Mapping[str, float]]
    copies: Mapping[tuple[str, int], Estimate]
    problems: int
    seeds: int

    def rows_of(self, name: str) -> list[Row]:
        """Return the rows of a method, smallest budget first."""
        return sorted((row for row in self.rows if row.name == name), key=lambda row: row.size)


def measure(choices: Choices, path: Path, jobs: int, limit: int, seeds: int) -> Measured:
    """Run what is missing, and return the comparison."""
    problems = {"split": "test", "operations": choices.operations, "limit": limit}
    pool = pool_study(
        running.make_study(
            "methods-pool", problems, [plans.BASELINE], {"samples": plans.POOL}, seeds=seeds, verifier=plans.GUIDE
        ),
        plans.POOL,
    )
    numbers = {
        study.name: (running.run(study, path, jobs), study)
        for study in (pool, *_studies(choices, problems, limit, seeds))
    }
    rows: list[Row] = []
    curves: dict[str, Curve] = {}
    kept: dict[tuple[str, int], dict[str, float]] = {}
    texts: dict[tuple[str, int], dict[str, list[str]]] = {}
    with Store(path) as store:
        for row, curve in _replay(store, numbers.pop(pool.name)[0]):
            rows.append(row)
            curves[row.name] = curve
        for name, (number, _) in numbers.items():
            names = _names(choices, name)
            results = list(store.results(number, drawn=False))
            for (strategy, _), curve in running.curves_by_budget(results).items():
                curves[names[strategy]] = dataclasses.replace(curve, label=names[strategy])
            sizes = {worth: size for size, worth in _limits(choices).items()}
            for (strategy, budget), of in sorted(group_results(results).items()):
                place = names[strategy], sizes[budget]
                kept[place] = kept_tokens(store, of)
                if place[0] in plans.KEPT:
                    texts[place] = candidate_texts(store, of)
                rows.append(_row(place, budget, of, curves[place[0]], kept[place]))
    return Measured(
        rows=_add_differences(rows, curves),
        curves=curves,
        kept=kept,
        copies=_copies(texts),
        problems=limit,
        seeds=seeds,
    )


def _limits(choices: Choices) -> dict[int, int]:
    return dict(zip(plans.BUDGETS, choices.budgets()["generated_tokens"], strict=True))


def _plans_of(choices: Choices, study: str) -> dict[str, str]:
    """Return the plans of a study by the names of their methods."""
    chosen = {name: plan for name, plan in choices.chosen.items() if name not in plans.REPLAYED}
    if study == "methods-kept":
        return {name: chosen[name] for name in plans.KEPT}
    if study == "methods-self-evaluated":
        return {name: plan for name, plan in chosen.items() if name.endswith(plans.SELF_EVALUATED)}
    left = {
        name: plan
        for name, plan in chosen.items()
        if name not in plans.KEPT and not name.endswith(plans.SELF_EVALUATED)
    }
    return {**plans.LIVE, **left}


def _studies(choices: Choices, problems: Mapping[str, object], limit: int, seeds: int) -> Iterator[StudyConfig]:
    for name, verifier, traces in (
        ("methods-kept", plans.GUIDE, limit),
        ("methods", plans.GUIDE, TRACED),
        ("methods-self-evaluated", "self_evaluation", TRACED),
    ):
        strategies = list(_plans_of(choices, name).values())
        recorded = min(traces, limit)
        yield running.make_study(
            name, problems, strategies, choices.budgets(), seeds=seeds, verifier=verifier, traces=recorded
        )


def _names(choices: Choices, study: str) -> Names:
    return Names({plan: name for name, plan in _plans_of(choices, study).items()})


class Names(dict[str, str]):
    """Names of methods by their plans, whichever way a plan is written."""

    def __missing__(self, strategy: str) -> str:
        name = next(name for plan, name in list(self.items()) if is_named(plan, strategy))
        self[strategy] = name
        return name


def group_results(results: Sequence[Result]) -> dict[tuple[str, int], list[Result]]:
    found: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        found.setdefault((result.cell.strategy, int(result.cell.budget["generated_tokens"])), []).append(result)
    return found


def kept_tokens(store: Store, results: Sequence[Result]) -> dict[str, float]:
    """Return the mean live tokens over the levels of each recorded search, by problem.

    Searches that do not say what they keep are left out.
    """
    found: dict[str, float] = {}
    for result in results:
        if (recorded := store.trace(result.cell.key)) is not None and (levels := json.loads(recorded)["kept_tokens"]):
            found[result.cell.problem] = statistics.fmean(levels)
    return found


def candidate_texts(store: Store, results: Sequence[Result]) -> dict[str, list[str]]:
    """Return the sorted texts of the candidates of each recorded search, by problem."""
    found: dict[str, list[str]] = {}
    for result in results:
        if (recorded := store.trace(result.cell.key)) is None:
            continue
        texts: dict[int, str] = {}
        ends: list[str] = []
        for node in json.loads(recorded)["nodes"]:  # parents first
            texts[node["node"]] = texts.get(node["parent"], "") + node["text"]
            if node["candidate"] is not None:
                ends.append(texts[node["node"]])
        found[result.cell.problem] = sorted(ends)
    return found


def _copies(texts: Mapping[tuple[str, int], Mapping[str, list[str]]]) -> dict[tuple[str, int], Estimate]:
    found: dict[tuple[str, int], Estimate] = {}
    for (name, size), mine in texts.items():
        other = texts["rebase", size]
        equal = [float(mine[problem] == other[problem]) for problem in mine if problem in other]
        if name != "rebase" and equal:
            found[name, size] = clustered_mean(equal, rng=np.random.default_rng(0), bounds=(0.0, 1.0))
    return found


def _row(place: tuple[str, int], limit: int, results: Sequence[Result], curve: Curve, kept: Mapping[str, float]) -> Row:
    usages = [result.usage for result in results]
    point = plans.BUDGETS.index(place[1])
    total = statistics.fmean(usage.tokens for usage in usages)
    assert math.isclose(total, curve.costs["tokens"][point]), "points of a curve are in the order of budgets"
    return Row(
        name=place[0],
        size=place[1],
        kind="live",
        accuracy=curve.accuracy[point],
        generated=statistics.fmean(usage.generated_tokens + usage.cancelled_tokens for usage in usages),
        verifier=statistics.fmean(usage.verifier_tokens for usage in usages),
        total=total,
        calls=statistics.fmean(usage.verifier_calls for usage in usages),
        peak=statistics.fmean(usage.peak_kv_tokens for usage in usages),
        kept=statistics.fmean(kept.values()) if kept else None,
        limit=limit,
        stops=dict(Counter(result.stopped_by for result in results).most_common()),
    )


def _replay(store: Store, number: int) -> Iterator[tuple[Row, Curve]]:
    """Yield a row for each selection and size, and its curve."""
    pools = pools_of(store.results(number)).pools
    sizes = sorted({*plans.BUDGETS, *(2**k for k in range(plans.POOL.bit_length()))})
    names = {COVERAGE: COVERAGE, CHANCE: CHANCE, **{plan: name for name, plan in plans.REPLAYED.items()}}
    for one in replay(pools, list(names), sizes):
        name = names[one.curve.label]
        curve = dataclasses.replace(one.curve, label=name)
        for point, size in enumerate(one.sizes):
            costs = {
                axis: float(curve.costs[axis][point]) for axis in ("generated_tokens", "verifier_tokens", "tokens")
            }
            yield (
                Row(
                    name=name,
                    size=size,
                    kind="replayed",
                    accuracy=curve.accuracy[point],
                    generated=costs["generated_tokens"],
                    verifier=costs["verifier_tokens"],
                    total=costs["tokens"],
                ),
                curve,
            )


def _add_differences(rows: Sequence[Row], curves: Mapping[str, Curve]) -> list[Row]:
    """Return rows with their differences to the baseline of their kind at the same budget.

    Live methods are held against the more accurate of the live baselines. The live baselines and replayed methods are
    held
    against the replayed baseline. The p-values are corrected over all rows.
    """
    places = {
        (row.name, row.size): point
        for name in curves
        for point, row in enumerate(one for one in rows if one.name == name)
    }
    differences: dict[int, Difference] = {}
    for i, row in enumerate(rows):
        if row.name not in (BASELINE, COVERAGE):
            base = (
                strongest_baseline(rows, row.size)
                if row.kind == "live" and row.name not in LIVE_BASELINES
                else BASELINE
            )
            differences[i] = point_difference(
                curves[row.name], places[row.name, row.size], curves[base], places[base, row.size]
            )
    corrected = dict(
        zip(differences, holm([difference.p for difference in differences.values()]).tolist(), strict=True)
    )
    return [dataclasses.replace(row, difference=differences.get(i), p=corrected.get(i)) for i, row in enumerate(rows)]


def strongest_baseline(rows: Sequence[Row], size: int) -> str:
    """Return the name of the more accurate of the live baselines at a budget; `weighted` among equals."""
    return max(
        LIVE_BASELINES,
        key=lambda name: next(row.accuracy.value for row in rows if (row.name, row.size) == (name, size)),
    )


def point_difference(curve: Curve, point: int, other: Curve, other_point: int) -> Difference:
    """Return the difference of two points on the problems that both have."""
    theirs = dict(zip(other.problems, other.shares[other_point].tolist(), strict=True))
    mine = dict(zip(curve.problems, curve.shares[point].tolist(), strict=True))
    shared = [problem for problem in mine if problem in theirs]
    return paired_difference([mine[p] for p in shared], [theirs[p] for p in shared], rng=np.random.default_rng(0))
