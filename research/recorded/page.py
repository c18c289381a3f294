"""The page of the recorded pools: a table and a figure for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tts
from research.recorded.chances import add_chances
from research.recorded.pools import MODELS, NOTES
from research.recorded.programs import ORDERS
from tts.experiments.analysis.curves import Curve
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.recorded_search import RecordedSearch
from tts.experiments.analysis.replay import ReplayedCurve
from tts.experiments.output import plots
from tts.search.plan import parse
from tts.search.stop_rules.reasc import ReASC
from tts.statistics import Estimate, clustered_mean
from tts_addons.code.written import SECONDS

SELECTIONS = (
    "majority", "best", "weighted", "best_of_majority", "borda", "weighted(temperature=0.1)", "pessimistic", "shortest",
    "last_finish",
)  # fmt: skip
RULES = (
    "unanimous(window=5)", "posterior", "sprt(preset='consol')", "mixture_sprt(preset='consol')", "sprt",
    "mixture_sprt",
)  # fmt: skip
PLANS = ("pass@k", "random choice", *(f"best_of_n | {name}" for name in SELECTIONS))
UNSCORED = ("pass@k", "random choice", *(f"best_of_n | {name}" for name in ("majority", "shortest", "last_finish")))
TREE = "game24_tot"
# the columns of the first table, each with the labels that it shows
_SUMMARY: Mapping[str, Sequence[str]] = {
    "one sample": ("random choice", "one sample"),
    "pass@k": ("pass@k",),
    "majority, CodeT": ("majority", "CodeT"),
    "weighted, most tests": ("weighted", "most tests"),
}
_OF_A_TREE = "These are the five states that the search kept, scored by its last values, and no independent samples."


@dataclass(frozen=True, slots=True)
class Stopped:
    """The result of a stop rule or `auto` on a pool.

    Args:
        accuracy: The share of right answers.
        samples: The mean samples of a problem.
        tokens: The mean tokens of a problem.
        undecided: The share of runs that the rule ended because its test found no difference; None: it tests none.
    """

    accuracy: Estimate
    samples: float
    tokens: float
    undecided: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The replays on a pool.

    Args:
        pool: The recorded pool.
        curves: The curves of coverage and selections, over sizes.
        stops: The results of each stop rule, in recorded order and averaged over orders.
        notes: The notes that readers need.
    """

    pool: tts.Pool
    curves: Sequence[ReplayedCurve]
    stops: Mapping[str, tuple[Stopped, Stopped]]
    notes: Sequence[str]


def replay_pool(pool: tts.Pool, draws: int, totals: Sequence[int]) -> Replayed:
    """Replay everything on a pool whose problems have equally many samples.

    Args:
        pool: The pool.
        draws: The number of random orders.
        totals: The mean samples of a problem in the totals that `auto` divides.
    """
    most = len(pool.problems[0].drawn)
    if pool.name == TREE:
        return Replayed(pool, pool.replay(PLANS[:7], [most], draws=draws), {}, [_OF_A_TREE])
    sizes = sorted({*(2**i for i in range(most.bit_length())), most})
    scored = all(one.has("main") for one in pool.problems)
    rules: list[str] = list(RULES)
    if scored:
        first = [one.drawn[0] for one in pool.problems]
        rule = ReASC.calibrate([one.scores["main"] for one in first], [one.right is True for one in first])
        rules.append(
            f"{dataclasses.replace(rule, mean=round(rule.mean, 3), spread=round(rule.spread, 3), gate=round(rule.gate or 0, 3))}"  # noqa: E501
        )
    shuffled = [np.random.default_rng(draw).permutation(most).tolist() for draw in range(draws)]
    stops = {
        rule: (replay_rule(pool.problems, rule, [range(most)]), replay_rule(pool.problems, rule, shuffled))
        for rule in ("never", *rules)
    }
    if scored:
        likely = add_chances(pool.problems)
        stops["cges"] = replay_rule(likely, "cges", [range(most)]), replay_rule(likely, "cges", shuffled)
    stops |= {f"auto, at most {most} each": replay_auto(pool, most, draws)}
    stops |= {f"auto, a total of {mean} a problem": replay_auto(pool, mean, draws, shared=True) for mean in totals}
    return Replayed(pool, pool.replay(PLANS if scored else UNSCORED, sizes, draws=draws), stops, ())


def replay_auto(pool: tts.Pool, size: int, draws: int, *, shared: bool = False) -> tuple[Stopped, Stopped]:
    """Return the results of `auto` with a majority vote in recorded order, and in the mean over orders."""
    curves = [
        pool.replay(["auto | majority"], [size], first=first, draws=draws, shared=shared)[0].curve
        for first in (True, False)
    ]
    first, mean = (
        Stopped(one.accuracy[0], float(one.costs["samples"][0]), float(one.costs["generated_tokens"][0]))
        for one in curves
    )
    return first, mean


def replay_rule(problems: Sequence[ProblemPool], rule: str, orders: Sequence[Sequence[int]]) -> Stopped:
    """Return the result of a stop rule with a majority vote, in the mean over orders of all samples."""
    plan = parse(f"best_of_n | {rule} | majority")
    ends = np.array(
        [
            [
                (end.right, end.samples, end.generated_tokens, end.stopped_by.endswith("no difference"))
                for end in map(RecordedSearch(one, plan).run, orders)
            ]
            for one in problems
        ],
        np.float64,
    ).mean(axis=1)
    accuracy, undecided = (
        clustered_mean(ends[:, place], rng=np.random.default_rng(0), bounds=(0, 1)) for place in (0, 3)
    )
    return Stopped(accuracy, float(ends[:, 1].mean()), float(ends[:, 2].mean()), undecided if "sprt" in rule else None)


def sections(replayed: Sequence[Replayed], programs: Mapping[str, Mapping[int, Estimate]]) -> Iterator[str]:
    """Yield the lines of the tables.

    Args:
        replayed: The replays of each pool.
        programs: The estimates of each way to choose a program, by size; empty: programs were not run.
    """
    rows = {one.pool.name: {_label(of.curve): of.curve.accuracy for of in one.curves} for one in replayed}
    sizes = {one.pool.name: one.curves[0].sizes for one in replayed}
    if programs:
        rows["humaneval"] = {way: list(of.values()) for way, of in programs.items()}
        sizes["humaneval"] = list(next(iter(programs.values())))
    yield from ("## All samples of a problem", "", f"| pool | samples | {' | '.join(_SUMMARY)} |")
    yield f"| :-- | --: |{' :-- |' * len(_SUMMARY)}"
    for name, of in rows.items():
        last = (next((of[label][-1] for label in labels if label in of), None) for labels in _SUMMARY.values())
        yield f"| {name} | {sizes[name][-1]} | {' | '.join('–' if one is None else percent(one) for one in last)} |"
    yield from ("", "| pool | samples a problem | selection | accuracy |", "| :-- | --: | :-- | :-- |")
    for name, of in rows.items():
        for label, points in of.items():
            yield from (
                f"| {name} | {n} | `{label}` | {percent(p)} |" for n, p in zip(sizes[name], points, strict=True)
            )
    yield from (
        "",
        "Figures: " + ", ".join(f"[{name}](recorded_{name}.svg)" for name in rows if len(sizes[name]) > 1) + ".",
    )
    yield from ("", "## Stop rules with a majority vote", "")
    yield "| pool | stop rule | accuracy | samples | tokens | no difference | in recorded order | samples in it |"
    yield "| :-- | :-- | :-- | --: | --: | :-- | :-- | --: |"
    for one in replayed:
        for rule, (first, mean) in one.stops.items():
            ends = f"{percent(mean.accuracy)} | {mean.samples:.2f} | {mean.tokens:,.0f}"
            undecided = "–" if mean.undecided is None else percent(mean.undecided)
            whole = f"{percent(first.accuracy)} | {first.samples:.2f}"
            yield f"| {one.pool.name} | `{rule}` | {ends} | {undecided} | {whole} |"


def pool_line(replayed: Replayed, folder: Path) -> str:
    """Save a pool's figure, and return the line on its source, its size and its notes."""
    pool = replayed.pool
    if len(replayed.curves[0].sizes) > 1:
        save([one.curve for one in replayed.curves], folder / f"recorded_{pool.name}")
    notes = [*NOTES.get(pool.name, ()), *replayed.notes]
    return " ".join([f"- `{pool.name}`: {MODELS[pool.name]}. {pool.report.lines()[0]}.", *notes])


def _label(curve: Curve) -> str:
    return curve.label.removeprefix("best_of_n | ")


def programs_line(
    names: Sequence[str], estimates: Mapping[str, Mapping[int, Estimate]], every: int, folder: Path
) -> str:
    """Save the figure of programs, and return the line on them."""
    sizes = list(next(iter(estimates.values())))
    curves = [
        Curve(
            label=way,
            dataset="humaneval",
            model="CodeGen-16B",
            kind="replayed",
            costs={"samples": np.array(sizes, np.float64)},
            accuracy=[of[size] for size in sizes],
            shares=np.full((len(sizes), len(names)), np.nan),
            problems=names,
            seeds=(0,),
        )
        for way, of in estimates.items()
    ]
    save(curves, folder / "recorded_humaneval")
    return (
        f"- `humaneval`: CodeGen-16B with tests that it wrote. {len(names)} problems, every {every}th of 164, 100 "
        f"programs each; at most 5 tests of each of 100 texts; {SECONDS:g} seconds for all tests of a program. A "
        f"point is the mean over {ORDERS} random subsets of the programs; `pass@k` and one sample are exact."
    )


def save(curves: Sequence[Curve], path: Path) -> None:
    """Save the figure of curves over samples."""
    figure = plots.draw(curves, "samples", bands=False, front=False)
    plots.save(figure, path.with_suffix(".svg"))


def percent(one: Estimate) -> str:
    """Return an estimate in percent with its interval."""
    return f"{100 * one.value:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]"
