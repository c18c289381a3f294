"""Search methods on countdowns of four numbers, by their guide.

    python -m research.methods.countdown [--problems 40] [--seeds 1] [--budgets 124 248 496] [--verifiers learnt exact
    ...]
        [--methods majority beam ...] [--out FILE] [--figure FILE [--beside PAGE]]
    python -m research.methods.countdown --stored PAGE [--figure FILE] [--verifiers learnt ...] [--methods majority ...]

The guides are the process model, the exact solver, and the solver with errors. The exact verifier judges each line:
the line must be right, and the target must be reachable from it. `flipped(error=0.15)` inverts each of its verdicts
with that probability, by the text alone. Budgets are hard limits on generated tokens. Problems are of the test split.
With `--stored` nothing is measured: the figure shows the study of a page of `research.claims`. Where none are named,
it stands beside the page, and has the methods of the README's figure.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # a core for each process

import numpy as np

from research.pocket.evaluate.intervals import Intervals
from research.pocket.evaluate.problems import Cell, Item
from research.pocket.gates.drawing import draw_problems
from research.pocket.train.reach import judge_prefixes
from research.stamps import stamp_line
from tts.budget.budget import Budget
from tts.errors import ConfigError, TTSError
from tts.randomness import hash64
from tts.solver.solver import Solver
from tts.statistics import Estimate
from tts.tasks.arithmetic import countdown
from tts.types import Problem, Solution, Trajectory
from tts.verifiers.base import Calls, StepScores, Verifier
from tts.verifiers.heads import ProcessVerifier

METHODS = {
    "majority": "best_of_n | majority",
    "best_of_n": "best_of_n | weighted",
    "beam": "beam(n=8, branching=4) | weighted",
    "rebase": "rebase(n=8) | weighted",
    "ets": "ets(n=8, charge=1.5) | weighted",
    "particle_filter": "particle_filter(n=8) | weighted",
    "a_star": "a_star(branching=4, goals=1) | best",
}
LEARNT = "reach"  # the value head of the process model for countdowns
VERIFIERS = {"learnt": None, "exact": 0.0, "flipped 5 %": 0.05, "flipped 15 %": 0.15, "flipped 30 %": 0.3}
BASELINES = ("majority", "best_of_n")
_MOST_BANDS = 4  # lines of a figure whose intervals can be told apart
_OF_README = ("a_star", "rebase", "best_of_n", "majority")  # the methods of its figure
NUMBERS = 4
_STORED = re.compile(
    r"^\| ([\w %]+) \| (\w+) \| (\d+) \| ([\d.]+) \[([\d.]+), ([\d.]+)\] \| (\d+) \| \d+ \| (\d+) \|", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reachable(Verifier):
    """Scores each line of a countdown by whether the target can be reached from it.

    A line scores 1 - error if it is right and the target can be reached from it, and error otherwise.

    Args:
        error: The probability in [0, 0.5] that a verdict is flipped.
        seed: The seed of the flips, which depend on the problem and the text alone.
    """

    error: float = 0.0
    seed: int = 0
    name = "reachable"

    def __post_init__(self) -> None:
        if not 0 <= self.error <= 0.5:
            raise ConfigError(f"error is {self.error!r}, but must be a number between 0 and 0.5")

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score for each line."""
        asked = countdown.read(problem.text)
        if asked is None:
            raise ConfigError(f"the problem {problem.text[:40]!r} is no countdown")
        return [StepScores(steps=self.judge_lines(problem, asked, calls.task.split(t.full_text))) for t in trajectories]

    def judge_lines(
        self, problem: Problem, parsed: countdown.CountdownProblem, lines: Sequence[str]
    ) -> tuple[float, ...]:
        """Return the score of each line of a solution."""
        scores: list[float] = []
        for i, right in enumerate(judge_prefixes(parsed, lines)):
            flipped = (
                self.error > 0 and hash64("verdict", self.seed, problem.text, *lines[: i + 1]) * 2.0**-64 < self.error
            )
            scores.append(1 - self.error if right != flipped else self.error)
        return tuple(scores)


@dataclass(frozen=True)
class Row:
    """A method at a budget by a verifier.

    Args:
        verifier: The verifier.
        method: The method.
        budget: The limit on generated tokens.
        accuracy: The accuracy over problems and seeds.
        generated: The generated tokens of a problem, in the mean.
        flops: The FLOPs of a problem, in the mean.
        right: The share of right seeds of each problem.
    """

    verifier: str
    method: str
    budget: int
    accuracy: Estimate
    generated: float
    flops: float
    right: tuple[float, ...] = ()


def rows(
    items: Sequence[Item], verifiers: Sequence[str], budgets: Sequence[int], seeds: int, methods: Sequence[str]
) -> list[Row]:
    """Return every method at every budget by every verifier."""
    table: list[Row] = []
    for name in verifiers:
        error = VERIFIERS[name]
        guide: Verifier = ProcessVerifier(head=LEARNT) if error is None else Reachable(error=error)
        with Solver("pocket", guide, task="countdown") as solver:
            for method in methods:
                plan = METHODS[method]
                for budget in budgets:
                    began = time.perf_counter()
                    solutions = [
                        solver.solve_many(
                            [item.problem for item in items],
                            each=Budget(generated_tokens=budget),
                            strategy=plan,
                            seed=seed,
                        )
                        for seed in range(seeds)
                    ]
                    table.append(_row(name, method, budget, items, solutions))
                    line = (
                        f"{name}, {method}, {budget}: {table[-1].accuracy.value:.3f}, "
                        f"{time.perf_counter() - began:.0f} s"
                    )
                    print(line, file=sys.stderr, flush=True)
    return table


def _row(
    verifier: str, method: str, budget: int, items: Sequence[Item], solutions: Sequence[Sequence[Solution]]
) -> Row:
    from tts.tasks import get

    task = get("countdown")
    right = [
        float(
            np.mean(
                [
                    each_seed[i].answer is not None
                    and task.equivalent(each_seed[i].answer or "", item.problem.answer or "")
                    for each_seed in solutions
                ]
            )
        )
        for i, item in enumerate(items)
    ]
    every = [solution.usage for each_seed in solutions for solution in each_seed]
    return Row(
        verifier,
        method,
        budget,
        Intervals(0).share(right, "countdown", verifier, method, budget),
        float(np.mean([usage.generated_tokens for usage in every])),
        float(np.mean([usage.flops or 0 for usage in every])),
        tuple(right),
    )


def page(measured: Sequence[Row], problems: int, seeds: int, options: str = "") -> str:
    """Return the rows as a page."""
    lines = [
        "# Search methods on countdowns of four numbers",
        "",
        stamp_line(f"python -m research.methods.countdown --problems {problems} --seeds {seeds}{options}"),
        f"Fresh test problems, {seeds} seed(s);",
        "hard limits on generated tokens. Accuracy is in percent, with 95 % intervals, resampled by problem. "
        "MFLOPs are those of a problem, the process model included; the verdicts of the exact solver cost none. "
        "Parameters are defaults, not tuned. A formula is right if it reaches the target, even if a line states "
        "a wrong result. The exact verifier rejects such lines.",
        "",
        "| verifier | method | budget | accuracy | generated | MFLOPs |",
        "| :-- | :-- | --: | :-- | --: | --: |",
    ]
    for one in measured:
        accuracy = f"{100 * one.accuracy.value:.1f} [{100 * one.accuracy.low:.1f}, {100 * one.accuracy.high:.1f}]"
        lines.append(
            f"| {one.verifier} | {one.method} | {one.budget} | {accuracy} | {one.generated:.0f} | "
            f"{one.flops / 1e6:.0f} |"
        )
    return "\n".join([*lines, *_differences(measured), ""])


def _differences(measured: Sequence[Row]) -> list[str]:
    """Return the table of each method's accuracy minus those of the baselines, paired.

    Methods are compared within the same limit on tokens and by the same verifier.
    """
    row_of = {(one.verifier, one.method, one.budget): one for one in measured}
    lines: list[str] = []
    for one in measured:
        cells = [f"{one.verifier} | {one.method} | {one.budget}"]
        for base in BASELINES:
            other = row_of.get((one.verifier, base, one.budget))
            if other is None or other is one or not one.right:
                cells.append("")
                continue
            gained = Intervals(0).difference(
                one.right, other.right, "countdown", one.verifier, one.method, one.budget, base
            )
            apart = "**" if gained.low > 0 or gained.high < 0 else ""
            cells.append(f"{apart}{100 * gained.value:+.1f} [{100 * gained.low:+.1f}, {100 * gained.high:+.1f}]{apart}")
        if any(cells[1:]):
            lines.append(f"| {' | '.join(cells)} |")
    if not lines:
        return []
    head = [
        "",
        "The next table has differences in points, paired by problem. A difference is bold if its interval "
        "excludes 0. Limits on generated tokens are equal, FLOPs are not.",
        "",
    ]
    return [
        *head,
        f"| verifier | method | budget | {' | '.join(f'minus {base}' for base in BASELINES)} |",
        "| :-- | :-- | --: | :-- | :-- |",
        *lines,
    ]


@dataclass(frozen=True)
class StoredStudy:
    """The study of a page.

    Args:
        rows: The rows of the page.
        problems: The number of its problems.
        seeds: The number of its seeds.
    """

    rows: list[Row]
    problems: int
    seeds: int


def read_page(path: Path, verifiers: Sequence[str], methods: Sequence[str]) -> StoredStudy:
    """Return the rows that a page of `research.claims` has of some methods by some verifiers.

    Raises:
        ConfigError: The page or its table cannot be read, or has no such row.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = path.with_suffix(".csv")
        if table.exists():
            titles, *rows = csv.reader(table.read_text(encoding="utf-8").splitlines())
            first = titles.index("verifier")  # after the section, where there is one
            text = "\n".join([text, *(f"| {' | '.join(row[first:])} |" for row in rows)])
    except OSError as failure:
        raise ConfigError(f"{failure.filename!r}, a page of results or its table, cannot be read") from None
    counts = re.search(r"--problems (\d+) --seeds (\d+)", text)
    stored_rows = [
        Row(
            verifier,
            method,
            int(budget),
            Estimate(float(value) / 100, float(low) / 100, float(high) / 100, num=int(counts[1])),
            float(generated),
            1e6 * float(mflops),
        )
        for verifier, method, budget, value, low, high, generated, mflops in _STORED.findall(text)
        if counts is not None and verifier in verifiers and method in methods
    ]
    if counts is None or not stored_rows:
        raise ConfigError(
            f"the page {str(path)!r} has no study with {', '.join(methods)}", hint="name docs/results/claims.md"
        )
    # later tables have the same methods in other settings
    first = {(one.verifier, one.method, one.budget): one for one in reversed(stored_rows)}
    return StoredStudy(
        [one for one in stored_rows if first[one.verifier, one.method, one.budget] is one],
        int(counts[1]),
        int(counts[2]),
    )


def draw_figure(
    measured: Sequence[Row], items: Sequence[Item], seeds: int, path: Path, beside: StoredStudy | None = None
) -> None:
    """Draw accuracy against the FLOPs of a problem, those of the process model included.

    Each method is a line, and each verifier a panel.

    Args:
        measured: The measured rows; empty: the stored study is drawn alone.
        items: The problems.
        seeds: The number of seeds.
        path: The figure.
        beside: A study that has a panel of its own; None: none.

    Raises:
        ConfigError: The path has no ending of a picture, or cannot be written.
        MissingDependency: matplotlib is not installed.
    """
    from tts.experiments.analysis.curves import Curve
    from tts.experiments.output.plots import draw, save

    def curves_of(rows_of: Sequence[Row], problems: Sequence[str], num_seeds: int, group: str | None) -> list[Curve]:
        lines: dict[tuple[str, str], list[Row]] = {}
        for one in rows_of:
            lines.setdefault((one.verifier, one.method), []).append(one)
        several = len({one.verifier for one in rows_of}) > 1
        return [
            Curve(
                label=method,
                dataset="countdowns of four numbers",
                model="pocket",
                verifier=verifier,
                costs={"flops": np.array([one.flops for one in of])},
                accuracy=[one.accuracy for one in of],
                # a page has the mean alone
                shares=np.array([one.right or [one.accuracy.value] * len(problems) for one in of]),
                problems=problems,
                seeds=range(num_seeds),
                group=", ".join(filter(None, (group, f"verifier: {verifier}" if several else None))) or None,
            )
            for (verifier, method), of in lines.items()
        ]

    own, other = (
        ("this run", f"stored study, {beside.seeds} seeds") if beside is not None and measured else (None, None)
    )
    curves = curves_of(measured, [str(item.problem.id) for item in items], seeds, own)
    fullest = len(curves)
    if beside is not None:
        stored = curves_of(beside.rows, [f"stored {number}" for number in range(beside.problems)], beside.seeds, other)
        fullest = max(len(curves), len(stored))
        curves += stored
    save(draw(curves, "flops", bands=fullest <= _MOST_BANDS, front=False), path)


def main() -> None:
    """Measure, print, and write the page where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--budgets", type=int, nargs="+", default=[124, 248, 496], help="generated tokens of a problem")
    parser.add_argument("--verifiers", nargs="+", choices=tuple(VERIFIERS), default=list(VERIFIERS))
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS))
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="accuracy against FLOPs: .png, .svg or .pdf")
    parser.add_argument(
        "--beside", type=Path, metavar="PAGE", help="a page of research.claims, whose study is drawn beside this one"
    )
    parser.add_argument(
        "--stored",
        type=Path,
        metavar="PAGE",
        help="a page of research.claims, whose study is drawn; nothing is measured",
    )
    options = parser.parse_args()
    options.methods = options.methods or (list(METHODS) if options.stored is None else _OF_README)
    if options.stored is not None:
        figure = options.figure or options.stored.with_suffix(".svg")
        try:
            draw_figure([], [], 0, figure, read_page(options.stored, options.verifiers, options.methods))
        except TTSError as failure:
            raise SystemExit(str(failure)) from None
        print(figure)
        return
    items = draw_problems(Cell("countdown", NUMBERS), "test", options.problems)
    try:
        beside = None if options.beside is None else read_page(options.beside, options.verifiers, options.methods)
        measured = rows(items, options.verifiers, options.budgets, options.seeds, options.methods)
        if options.figure is not None:
            draw_figure(measured, items, options.seeds, options.figure, beside)
    except TTSError as failure:
        raise SystemExit(str(failure)) from None
    named = " ".join(f"'{one}'" if " " in one else one for one in options.verifiers)
    flags = f" --budgets {' '.join(map(str, options.budgets))} --verifiers {named}"
    if tuple(options.methods) != tuple(METHODS):
        flags += f" --methods {' '.join(options.methods)}"
    text = page(measured, options.problems, options.seeds, flags)
    print(text)
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
