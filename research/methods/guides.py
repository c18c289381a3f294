"""Verifiers side by side: the same searches, each guided by another verifier.

All searches have the same limit on all tokens.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from research.methods import running
from research.methods.choosing import Choices
from research.methods.claims import points
from research.methods.measuring import point_difference
from research.methods.writing import share
from research.stamps import stamp_line
from tts.experiments.analysis.curves import Curve
from tts.experiments.output import plots
from tts.experiments.store.store import Store
from tts.experiments.study import config
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.record import Result
from tts.search.plan import parse
from tts.statistics import Difference, Estimate, holm

SIZES = (2, 4, 8, 16, 32)  # plain samples' worth of tokens, the verifier's included
BASE = "process model"
GUIDES: Mapping[str, str] = {
    BASE: "process",
    "probe": "probe",
    "self-evaluation": "self_evaluation",
    "confidence": "confidence",
    "ensemble": "ensemble(members=('process', 'probe', 'self_evaluation', 'confidence'))",
}
SAMPLED = ("best_of_n | best", "best_of_n | weighted")
SEARCHED = ("beam", "a_star")  # with the parameters that the validation split chose


@dataclass(frozen=True, kw_only=True)
class Row:
    """A search under a guide at a limit.

    Args:
        strategy: The search.
        guide: The verifier that guides.
        limit: The limit on all tokens.
        accuracy: The share of right answers.
        generated: The generated tokens of a problem, in the mean.
        verifier: The verifier tokens of a problem, in the mean.
        flops: The FLOPs of a problem, in the mean.
        difference: The difference to the process model; None: the guide is the process model.
        p: The p-value, corrected over the limits.
    """

    strategy: str
    guide: str
    limit: int
    accuracy: Estimate
    generated: float
    verifier: float
    flops: float
    difference: Difference | None = None
    p: float | None = None

    @property
    def price(self) -> float:
        """The verifier tokens for each generated token."""
        return self.verifier / self.generated if self.generated else 0.0


def study(choices: Choices, limit: int, seeds: int) -> StudyConfig:
    """Return the study: every guide, every search, every limit, on the test split."""
    plans = [choices.chosen.get(name, name) for name in SEARCHED]
    return config.study_config(
        {
            "name": "verifiers",
            "models": {name: {"model": "pocket", "verifiers": verifier} for name, verifier in GUIDES.items()},
            "problems": {"dataset": "arithmetic", "split": "test", "operations": choices.operations, "limit": limit},
            "strategies": [*SAMPLED, *plans],
            "budgets": {"tokens": [size * choices.sample for size in SIZES]},
            "seeds": seeds,
            "concurrency": running.CONCURRENCY,
        }
    )


def compare(path: Path, folder: Path, chosen: Path, *, limit: int, seeds: int, jobs: int) -> None:
    """Run what is missing, and write the page and its figures.

    Args:
        path: The store.
        folder: The folder of the page.
        chosen: The folder of what the validation split chose.
        limit: The number of problems.
        seeds: The number of seeds.
        jobs: The number of processes.
    """
    choices = Choices.load(chosen)
    wanted = study(choices, limit, seeds)
    number = running.run(wanted, path, jobs)
    with Store(path) as store:
        results = list(store.results(number, drawn=False))
    curves = running.curves_by_budget(results)
    rows = add_differences(rows_of(results, curves), curves)
    names = {strategy: name_of(strategy) for strategy, _ in curves}
    drawn = [
        dataclasses.replace(curve, label=guide, group=names[strategy]) for (strategy, guide), curve in curves.items()
    ]
    drawn.sort(key=lambda curve: list(GUIDES).index(curve.label))
    for axis, file in (("tokens", "verifiers_tokens"), ("flops", "verifiers_flops")):
        figure = plots.draw(drawn, axis, bands=False, front=False)
        for ending in (".png", ".svg"):
            plots.save(figure, folder / f"{file}{ending}")
    page = "\n".join(page_of(rows, wanted, choices, limit, seeds)) + "\n"
    (folder / "verifiers.md").write_text(page, encoding="utf-8")
    print(folder / "verifiers.md")


def name_of(strategy: str) -> str:
    """Return a search's name without its parameters; a method that samples has its selection in the name."""
    plan = parse(strategy)
    name = plan.strategy.registered_as
    return f"{name}, {plan.selection.registered_as}" if plan.selection is not None else name


def rows_of(results: Sequence[Result], curves: Mapping[tuple[str, str], Curve]) -> list[Row]:
    """Return a row for each search, guide and limit, in that order."""
    grouped: dict[tuple[str, str, int], list[Result]] = {}
    for result in results:
        grouped.setdefault((result.cell.strategy, result.cell.model, int(result.cell.budget["tokens"])), []).append(
            result
        )
    limits = sorted({limit for _, _, limit in grouped})
    rows: list[Row] = []
    for (strategy, guide, limit), of in sorted(
        grouped.items(), key=lambda one: (one[0][0], list(GUIDES).index(one[0][1]), one[0][2])
    ):
        usages = [result.usage for result in of]
        rows.append(
            Row(
                strategy=strategy,
                guide=guide,
                limit=limit,
                accuracy=curves[strategy, guide].accuracy[limits.index(limit)],
                generated=statistics.fmean(usage.generated_tokens + usage.cancelled_tokens for usage in usages),
                verifier=statistics.fmean(usage.verifier_tokens for usage in usages),
                flops=statistics.fmean(usage.flops or 0 for usage in usages),
            )
        )
    return rows


def add_differences(rows: Sequence[Row], curves: Mapping[tuple[str, str], Curve]) -> list[Row]:
    """Return rows with their differences to the process model at the same search and limit.

    The p-values are corrected over the limits.
    """
    limits = sorted({row.limit for row in rows})
    complete: list[Row] = []
    for strategy, guide in dict.fromkeys((row.strategy, row.guide) for row in rows):
        group = [row for row in rows if (row.strategy, row.guide) == (strategy, guide)]
        if guide == BASE:
            complete += group
            continue
        places = [limits.index(row.limit) for row in group]
        differences = [
            point_difference(curves[strategy, guide], place, curves[strategy, BASE], place) for place in places
        ]
        corrected = holm([difference.p for difference in differences]).tolist()
        complete += [
            dataclasses.replace(row, difference=d, p=p) for row, d, p in zip(group, differences, corrected, strict=True)
        ]
    return complete


def price_of(guide: str, rows: Sequence[Row]) -> float:
    """Return the verifier tokens for each generated one, over all searches and limits."""
    of = [row for row in rows if row.guide == guide]
    return sum(row.verifier for row in of) / max(1e-9, sum(row.generated for row in of))


def findings(rows: Sequence[Row]) -> Iterator[str]:
    """Yield where a guide differs from the process model."""
    for strategy in dict.fromkeys(row.strategy for row in rows):
        texts: dict[tuple[str, str], list[str]] = {}
        for row in rows:
            if row.strategy == strategy and row.difference is not None and row.p is not None and row.p < 0.05:
                way = "better" if row.difference.mean.value > 0 else "worse"
                texts.setdefault((row.guide, way), []).append(f"{row.limit}")
        words = "; ".join(f"{guide} is {word} at {', '.join(at)} tokens" for (guide, word), at in texts.items())
        yield f"- {name_of(strategy)}: {words or 'no guide differs significantly'}."


def page_of(rows: Sequence[Row], wanted: StudyConfig, choices: Choices, limit: int, seeds: int) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from (
        "# Verifiers as guides, on the embedded pair",
        "",
        stamp_line(f"python -m research.methods.verifiers --compare --limit {limit} --seeds {seeds}"),
        "",
        f"{limit} problems, plain expressions of {', '.join(map(str, choices.operations))} operations; {seeds} seeds. "
        f"The limit is on all tokens: {', '.join(map(str, SIZES))} plain samples' worth, at {choices.sample} each. A "
        "verifier's largest cost is reserved until it has scored, so an expensive one leaves less to write. Parameters "
        "were chosen with the process model as the guide. Differences are to it, in the same search at the same limit, "
        "and p is corrected over the limits. [Selections](selections.md) has other scores.",
        "",
        "Against the process model:",
        "",
        *findings(rows),
        "",
        "Verifier tokens for each generated token: "
        + ", ".join(f"{guide} {price_of(guide, rows):.3f}" for guide in GUIDES)
        + ".",
        "",
        "![Accuracy against all tokens, by verifier](verifiers_tokens.svg)",
        "![Accuracy against FLOPs, by verifier](verifiers_flops.svg)",
        "",
    )
    yield "| search | guide | limit | accuracy | generated | verifier | price | FLOPs | difference | p (Holm) |"
    yield "| :-- | :-- | --: | :-- | --: | --: | --: | --: | :-- | --: |"
    for row in rows:
        difference = "–" if row.difference is None else points(row.difference.mean).removesuffix(" points")
        p = "–" if row.p is None else "< 0.001" if row.p < 0.001 else f"{row.p:.3f}"
        cells = (
            name_of(row.strategy),
            row.guide,
            str(row.limit),
            share(row.accuracy),
            f"{row.generated:.0f}",
            f"{row.verifier:.0f}",
            f"{row.price:.3f}",
            f"{row.flops:.2e}",
            difference,
            p,
        )
        yield f"| {' | '.join(cells)} |"
    yield from ("", f"Plans: {', '.join(f'`{strategy}`' for strategy in wanted.strategies)}.")
