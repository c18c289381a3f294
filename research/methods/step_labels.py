"""Labels of steps by rollouts beside exact verdicts, on countdowns: agreement and cost.

    python -m research.methods.step_labels [--problems 60] [--samples 4] [--k 1 4 8] [--out FOLDER]

An exact verdict of a line says whether the line is right and the target can still be reached. The last line of a path
is left out: its label is the path's own verdict. `step_labels.md` has for each k the AUC of soft labels with its 95 %
interval over problems, the share of hard labels that agree, and the tokens of rollouts for each labelled step. The
page has the same figures for the binary search for the first error.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

import tts
from research.pocket.train.reach import judge_prefixes
from research.stamps import stamp_line
from tts.experiments.datasets import countdown
from tts.statistics.discrimination import clustered_auc
from tts.tasks.arithmetic.countdown import read
from tts.types import Solution
from tts_addons.training.step_labels import StepLabels

RESULTS = Path(__file__).parents[2] / "docs/results"


def exact_verdicts(problem: tts.Problem, steps: tuple[str, ...]) -> list[bool]:
    """Return the exact verdicts of steps."""
    asked = read(problem.text)
    assert asked is not None, problem.text
    return judge_prefixes(asked, [step.strip() for step in steps])


def measure(name: str, solutions: list[Solution], labels: list[StepLabels]) -> str:
    """Return the line of one setting."""
    soft, truth, agree, clusters = list[float](), list[bool](), list[bool](), list[int]()
    for number, (solution, one) in enumerate(zip(solutions, labels, strict=True)):
        for path in {path.steps: path for path in one.paths}.values():
            for value, hard, right in list(
                zip(path.soft, path.hard, exact_verdicts(solution.problem, path.steps), strict=True)
            )[:-1]:
                if hard is None:
                    continue
                agree.append(hard == right)
                soft.append(float(hard) if value is None else value)
                truth.append(right)
                clusters.append(number)
    auc = clustered_auc(soft, truth, clusters, rng=np.random.default_rng(0))
    tokens = sum(one.usage.tokens for one in labels)
    return (
        f"| {name} | {len(truth):,} | {np.mean(truth):.2f} | {auc.value:.3f} [{auc.low:.3f}, {auc.high:.3f}] | "
        f"{np.mean(agree):.3f} | {tokens / len(truth):.0f} |"
    )


def page(problems: int, samples: int, ks: Sequence[int]) -> Iterator[str]:
    """Yield the lines of the page."""
    flags = f"--problems {problems} --samples {samples} --k {' '.join(map(str, ks))}"
    command = stamp_line(f"python -m research.methods.step_labels {flags}")
    yield from ("# Labels of steps by rollouts", "", command, "")
    yield (
        f"`tts.label_steps` on {problems} countdowns of 3 and 4 numbers of the validation split, {samples} samples of "
        "`pocket` each. An exact verdict says whether a line is right and the target can still be reached. The last "
        "line of a path is left out, whose label is that of the path. *AUC* is that of soft labels, and *tokens* are "
        "those of rollouts."
    )
    yield ""
    yield "| labels | steps | right | AUC | hard labels that agree | tokens a step |"
    yield "| :-- | --: | --: | :-- | --: | --: |"
    problem_list = countdown.load(limit=problems, split="validation", numbers=(3, 4))
    with tts.Solver("pocket", task="countdown") as solver:
        budget = tts.Budget(samples=samples)
        solutions = list(solver.solve_many(problem_list, each=budget, strategy="best_of_n | majority"))
        for method in ("each", "first_error"):
            for k in ks if method == "each" else ks[-1:]:
                labels = [tts.label_steps(one, 100_000, solver=solver, k=k, method=method) for one in solutions]
                yield measure(f"{method}, k = {k}", solutions, labels)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--k", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    lines = list(page(args.problems, args.samples, args.k))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "step_labels.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(args.out / "step_labels.md")


if __name__ == "__main__":
    main()
