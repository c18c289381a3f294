"""Compare beam search over the turns of the toy agent with independent runs, and write `patches.md`.

    python -m research.patches [--runs 48] [--seeds 3] [--sizes 4 8] [--limit 6] [--store FILE] [--out FOLDER]

Independent runs are drawn once for each repository. The result of `best_of_n | best` with k runs is the exact mean
over all k of these runs. Beam search runs at each size with each seed. Both choose by the share of visible tests that
pass. A repository is solved if all of its tests pass, hidden ones included.

The cost is the words that the agent says, about ten a turn. At each size of beam search, the cost of independent runs
that solve as many repositories is interpolated between whole numbers of runs. Intervals are bootstrapped over seeds
and over runs, and the repositories are held fixed. The command takes about half an hour of two cores. If it was
stopped, it goes on where it ended.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import tts
from research.stamps import refuse_mixture, stamp_line
from tts._common.scopes import allow_commands
from tts.experiments.study.record import Result
from tts.statistics.selection import best_at_k

DATA = "examples/patches"
_TOKENS = 100_000  # a budget that ends nothing
_RESAMPLES = 2000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Runs:
    """Independent runs in one repository.

    Args:
        right: Whether each run is right.
        scores: The score of each run.
        tokens: The tokens of each run.
    """

    right: Floats
    scores: Floats
    tokens: Floats

    def resample(self, rng: np.random.Generator) -> Runs:
        """Return as many runs, drawn with repetition."""
        drawn = rng.integers(len(self.right), size=len(self.right))
        return Runs(self.right[drawn], self.scores[drawn], self.tokens[drawn])


@dataclass(frozen=True)
class Row:
    """A size of beam search.

    Args:
        size: The size.
        solved: The share of solved repositories, in the mean.
        tokens: The tokens of a repository, in the mean.
        runs: The number of independent runs that solve as many repositories.
        ratio: The tokens of these runs over those of beam search.
        low: The lower end of the ratio's 95 % interval.
        high: The upper end of that interval.
    """

    size: int
    solved: float
    tokens: float
    runs: float
    ratio: float
    low: float
    high: float


def study(name: str, strategies: Sequence[str], seeds: int, limit: int, store: Path) -> list[Result]:
    """Run what is missing of a study of the repositories, and return its results."""
    new_study = tts.Study(
        name=name,
        models={
            "toy": {
                "backend": "tts_addons.agents.repositories:Repositories",
                "options": {"data": DATA, "agent": "toy", "jobs": 2},
                "expected_tokens": 20,
            }
        },
        problems={"dataset": DATA, "limit": limit},
        verifiers="tests(credit='share')",
        strategies=list(strategies),
        budgets={"tokens": _TOKENS},
        seeds=seeds,
        record={"candidates": True},
        concurrency=1,
    )
    with allow_commands():
        new_study.run(store)
    return new_study.results()


def pools(results: Sequence[Result]) -> list[Runs]:
    """Return the independent runs of each repository."""
    return [
        Runs(
            np.array([one.right is True for one in result.drawn or ()], np.float64),
            np.array([one.scores["main"] for one in result.drawn or ()], np.float64),
            np.array([one.tokens for one in result.drawn or ()], np.float64),
        )
        for result in results
    ]


def share_by_runs(runs: Sequence[Runs]) -> tuple[Floats, Floats]:
    """Return the share of repositories that 1, 2, … independent runs solve, and their tokens."""
    counts = np.arange(1, len(runs[0].right) + 1)
    shares = [best_at_k(np.zeros(len(one.right), int), one.scores, one.right, counts) for one in runs]
    mean = float(np.mean([one.tokens.mean() for one in runs]))
    return sum(shares[1:], shares[0]) / len(shares), np.array([count * mean for count in counts], np.float64)


def equal_runs(solved: float, curve: Floats) -> float:
    """Return how many independent runs solve a share of the repositories; infinity: more than were drawn."""
    grown = np.maximum.accumulate(np.r_[0.0, curve])
    if solved > grown[-1]:
        return float("inf")
    after = int(np.searchsorted(grown, solved))
    before = max(0, after - 1)
    step = grown[after] - grown[before]
    return float(after if step <= 0 else before + (solved - grown[before]) / step)


def compare(size: int, right: Floats, tokens: Floats, runs: Sequence[Runs]) -> Row:
    """Return the row of a size of beam search.

    Args:
        size: The size.
        right: Whether each repository was solved with each seed.
        tokens: The tokens of each repository with each seed.
        runs: The independent runs.
    """
    curve, cost = share_by_runs(runs)
    number = equal_runs(float(right.mean()), curve)
    rng = np.random.default_rng(size)
    ratios: list[float] = []
    for _ in range(_RESAMPLES):
        seeds = rng.integers(right.shape[1], size=right.shape)
        found = np.take_along_axis(right, seeds, 1).mean(), np.take_along_axis(tokens, seeds, 1).mean()
        other, each = share_by_runs([one.resample(rng) for one in runs])
        ratios.append(equal_runs(float(found[0]), other) * each[0] / float(found[1]))
    low, high = np.quantile(ratios, [0.025, 0.975], method="nearest")
    return Row(
        size,
        float(right.mean()),
        float(tokens.mean()),
        number,
        number * cost[0] / float(tokens.mean()),
        float(low),
        float(high),
    )


def page(rows: Sequence[Row], runs: Sequence[Runs], names: Sequence[str], command: str, seeds: int) -> Iterator[str]:
    """Yield the lines of the page."""
    drawn = len(runs[0].right)
    yield from ("# Search over the turns of an agent", "", stamp_line(command), "")
    yield (
        f"The toy agent on {len(names)} small repositories of `examples/patches`: {drawn} independent runs of each, "
        f"and beam search with {seeds} seeds. Both choose by the share of visible tests that pass. A repository is "
        "solved if all its tests pass, hidden ones included. Tokens are the words that the agent prints, about ten a "
        "turn. *Equal runs* solve as many repositories. *Ratio* is their tokens over those of beam search, with an "
        "interval over seeds and runs: above 1, beam search needs fewer."
    )
    yield from ("", "| strategy | solved | tokens | equal runs | ratio |", "| :-- | --: | --: | --: | --: |")
    for row in rows:
        ratio = f"{_number(row.ratio)} [{_number(row.low)}, {_number(row.high)}]"
        number = f"> {drawn}" if row.runs == float("inf") else f"{row.runs:.1f}"
        yield f"| `beam(n={row.size}) \\| best` | {100 * row.solved:.0f} % | {row.tokens:.0f} | {number} | {ratio} |"
    yield from ("", _verdict(rows), "", "Independent runs:", "")
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64, 128) if count <= drawn]
    curve, cost = share_by_runs(runs)
    yield from ("| runs | solved | tokens |", "| --: | --: | --: |")
    yield from (f"| {count} | {100 * curve[count - 1]:.0f} % | {cost[count - 1]:.0f} |" for count in counts)
    solved = (f"{name} {int(one.right.sum())}" for name, one in zip(names, runs, strict=True))
    yield from ("", f"Of {drawn} runs of each repository, these solve it: {', '.join(solved)}.")


def _number(value: float) -> str:
    return "∞" if value == float("inf") else f"{value:.2f}"


def _verdict(rows: Sequence[Row]) -> str:
    better, worse = [row.size for row in rows if row.low > 1], [row.size for row in rows if row.high < 1]
    words = {True: "fewer", False: "more"}
    findings = [
        f"it needs {words[way]} tokens at n = {', '.join(map(str, sizes))}"
        for way, sizes in ((True, better), (False, worse))
        if sizes
    ]
    rest = [row.size for row in rows if row.size not in (*better, *worse)]
    findings += [f"no difference is shown at n = {', '.join(map(str, rest))}"] if rest else []
    return f"Beside independent runs that solve as many repositories, beam search: {'; '.join(findings)}."


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=48, help="independent runs of each repository")
    parser.add_argument("--seeds", type=int, default=3, help="of beam search")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 8], help="of beam search")
    parser.add_argument("--limit", type=int, default=6, help="repositories, the first ones")
    parser.add_argument("--store", type=Path, default=Path(".tts/patches.sqlite"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "docs/results")
    options = parser.parse_args()
    options.store.parent.mkdir(parents=True, exist_ok=True)
    refuse_mixture(options.store)
    drawn = study("patches-runs", [f"best_of_n(n={options.runs}) | best"], 1, options.limit, options.store)
    searched = study(
        "patches-beam",
        [f"beam(n={size}) | best" for size in options.sizes],
        options.seeds,
        options.limit,
        options.store,
    )
    runs, names = pools(drawn), [result.cell.problem for result in drawn]
    rows: list[Row] = []
    for size in options.sizes:
        of_size = [one for one in searched if one.cell.strategy.startswith(f"beam(n={size})")]
        by_name = {name: [one for one in of_size if one.cell.problem == name] for name in names}
        right = np.array([[one.right is True for one in by_name[name]] for name in names], np.float64)
        tokens = np.array([[one.usage.generated_tokens for one in by_name[name]] for name in names], np.float64)
        rows.append(compare(size, right, tokens, runs))
    sizes = " ".join(map(str, options.sizes))
    limit = "" if options.limit == parser.get_default("limit") else f" --limit {options.limit}"
    command = f"python -m research.patches --runs {options.runs} --seeds {options.seeds} --sizes {sizes}{limit}"
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "patches.md").write_text(
        "\n".join(page(rows, runs, names, command, options.seeds)) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
