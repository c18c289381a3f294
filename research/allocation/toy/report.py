"""The page of research/allocation/toy/__main__.py: tables in Markdown, and a figure of both settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from research.allocation.toy.reliability import Told
from research.stamps import stamp_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNIFORM, ALLOCATOR, REFERENCE = "uniform best-of-N", "allocator", "reference"
_NEAR = 0.05  # of the reference's gain over uniform that the allocator may lack
_DRAWN = {
    REFERENCE: ("#000000", "-", "none"), ALLOCATOR: ("#000000", "none", "*"),
    "allocator, population learnt": ("#0072B2", "-", "o"),
    UNIFORM: ("#7A7A7A", "--", "x"), "random": ("#7A7A7A", ":", "none"), "A14, five oracle bins": ("#E69F00", "-", "s"),
    "A14, five predicted bins": ("#E69F00", "--", "s"), "static oracle": ("#009E73", ":", "none"),
    "adaptive oracle": ("#009E73", "-.", "none"),
}  # fmt: skip


class Line(NamedTuple):
    """A policy at one budget.

    Args:
        accuracy: The share of right answers.
        share: The share of the reference's gain over uniform.
        low: The lower end of the 95 % interval of the share.
        high: The upper end of that interval.
        spent: The share of the total that the policy spent.
    """

    accuracy: float
    share: float
    low: float
    high: float
    spent: float


Row = Mapping[str, Line]


class Pilots(NamedTuple):
    """A division made once after pilots.

    Args:
        budget: The samples of a problem, on average.
        uniform: The expected accuracy of equal counts.
        oracle: The expected accuracy where success rates are known.
        regret: The distance to the oracle, by pilots.
    """

    budget: int
    uniform: float
    oracle: float
    regret: Mapping[int, float]


class Page:
    """A page that grows part by part, and is written or printed at its end."""

    def __init__(self, problems: str) -> None:
        self._lines = [
            "# The allocator on a toy world of known truth",
            "",
            stamp_line("python -m research.allocation.toy --seeds 0,1,2 --out docs/results/allocator_toy.md"),
            "",
            f"- Problems: {problems}, of mixed difficulty. A tenth is never solved. Wrong answers agree a "
            "little, a lot, or hardly at all.",
            "- Budget: the mean number of plain samples for each problem. All policies see the same draws, so "
            "differences are paired.",
            "- *Reference*: the best policy with the information that the allocator has. It draws one sample at "
            "a time, by the exact index under the true population of problems. The allocator draws in waves.",
            "- *Static oracle*: divides the total once, and knows every problem's success rate. *Adaptive "
            "oracle*: knows these rates too, and sees each sample before it draws the next. Neither knows the "
            "answers.",
            "- *Share of the gain*: the allocator's gain over uniform best-of-N, divided by the reference's "
            "gain. The 95 % interval is resampled by problem. If both policies reach all that can be gained, "
            "the share is 1. If hardly any gain is possible, the share is noise.",
            "- *Population learnt*: the allocator begins with a broad prior, and learns the population of "
            "problems from their samples. Without a verifier, votes show how samples agree, but not which "
            "answer is right. So a part of the population cannot be learnt.",
        ]
        self._settings: dict[str, Mapping[int, Row]] = {}
        self._told: dict[str, Mapping[str, Told]] = {}

    def add_setting(self, name: str, rows: Mapping[int, Row]) -> None:
        """Add the accuracies of a setting, by budget."""
        self._settings[name] = rows
        self._lines += ["", f"## With {name}", "", "FIGURE" if len(self._settings) == 1 else "", ""]
        near = [budget for budget, row in rows.items() if row[ALLOCATOR].share >= 1 - _NEAR]
        far = {budget: row[ALLOCATOR] for budget, row in rows.items() if row[ALLOCATOR].share < 1 - _NEAR}
        beyond = [f"{budget} ({line.share:.3f} [{line.low:.3f}, {line.high:.3f}])" for budget, line in far.items()]
        self._lines.append(
            f"The allocator is within {_NEAR:.0%} of the reference's gain at "
            f"{', '.join(map(str, near)) or 'no budget'} samples a problem"
            + (f", and farther at {', '.join(beyond)}." if beyond else ".")
        )
        self._lines += [
            "",
            "| samples | policy | accuracy | share of the gain | spent | to the adaptive oracle |",
            "| --: | :-- | --: | --: | --: | --: |",
        ]
        for budget, row in rows.items():
            most = row["adaptive oracle"].accuracy
            for policy, line in row.items():
                share = f"{line.share:.3f} [{line.low:.3f}, {line.high:.3f}]"
                self._lines.append(
                    f"| {budget} | {policy} | {line.accuracy:.4f} | {share} | {line.spent:.2f} | "
                    f"{most - line.accuracy:+.4f} |"
                )

    def add_pilots(self, name: str, figures: Pilots) -> None:
        """Add the worth of pilots to a division made once."""
        self._lines += [
            "",
            f"### Regret falls with pilots: {name}",
            "",
            f"A pilot is a first sample that only informs, and is not charged here. A total of {figures.budget} "
            f"samples a problem is divided once, by what the pilots show. Expected accuracy: {figures.uniform:.4f} "
            f"if divided evenly, {figures.oracle:.4f} with known success rates.",
            "",
            "| pilots | regret |",
            "| --: | --: |",
            *(f"| {pilots} | {regret:.4f} |" for pilots, regret in figures.regret.items()),
        ]

    def add_reliability(self, name: str, groups: Mapping[str, Told]) -> None:
        """Add how expected success rates compare with true ones."""
        self._told[name] = groups
        self._lines += [
            "",
            f"### Difficulty is told rightly: {name}",
            "",
            "The problems are sorted by their expected success rate, and divided into ten groups of equal size. "
            "The table compares the expected with the true rate of each group. The error is the mean difference "
            "of the two.",
            "",
            "| from | error | expected | true |",
            "| :-- | --: | :-- | :-- |",
            *(
                f"| {name} | {told.error:.3f} | {_format_values(told.expected)} | {_format_values(told.true)} |"
                for name, told in groups.items()
            ),
        ]

    def add_timings(self, timings: Mapping[str, str]) -> None:
        """Add how long decisions take."""
        self._lines += [
            "",
            "## Deciding",
            "",
            "| what | time |",
            "| :-- | --: |",
            *(f"| {what} | {took} |" for what, took in timings.items()),
        ]

    def write(self, out: Path | None) -> None:
        """Write the page and its figure; without a place, print the page."""
        text = "\n".join(self._lines) + "\n"
        if out is None:
            print(text.replace("FIGURE\n\n", ""), end="")
            return
        from tts.experiments.output.plots import render, style_context

        picture = out.with_suffix(".svg")
        with style_context():
            picture.write_bytes(render(self._figure(), "svg"))
        out.write_text(
            text.replace("FIGURE", f"![Share of the gain of the best policy, by budget]({picture.name})"),
            encoding="utf-8",
        )

    def _figure(self) -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10.5, 7.2), layout="constrained")
        axes = figure.subplots(2, len(self._settings), squeeze=False)
        for panel, (name, rows) in zip(axes[0], self._settings.items(), strict=True):
            for policy, (colour, line, marker) in _DRAWN.items():
                panel.plot(
                    list(rows),
                    [row[policy].accuracy for row in rows.values()],
                    color=colour,
                    linestyle=line,
                    marker=marker,
                    label=policy,
                )
            panel.set(title=f"with {name}", xscale="log", xlabel="samples a problem", ylabel="accuracy")
            panel.set_xticks(list(rows), labels=[str(budget) for budget in rows])
            panel.set_xticks([], minor=True)
        axes[0][-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        for panel, (name, found) in zip(axes[1], self._told.items(), strict=True):
            panel.plot([0, 1], [0, 1], color="#7A7A7A", linestyle=":")
            for (what, told), marker in zip(found.items(), "ox^v<>", strict=False):
                panel.plot(told.expected, told.true, marker=marker, linewidth=0.8, label=what)
            panel.set(title=f"difficulty, with {name}", xlabel="expected success rate", ylabel="true")
        axes[1][-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        return figure


def _format_values(values: NDArray[np.float64]) -> str:
    return " ".join(f"{value:.2f}" for value in values.tolist())
