"""Labels of steps by rollouts beside exact verdicts, on countdowns: how well they agree, and what they cost.

    python -m research.methods.step_labels [--problems 60] [--samples 4] [--k 1 4 8]

An exact verdict of a line says whether the line is right and the target can still be reached. The last line of a path is left out: its
label is the path's own verdict. Prints for each k the AUC of soft labels with its 95 % interval over problems, the share of hard labels
that agree, and the tokens of rollouts for each labelled step; and the agreement and cost of the binary search for the first error.
"""

from __future__ import annotations

import argparse

import numpy as np

import tts
from research.pocket.train.reach import leads
from tts.experiments.datasets import countdown
from tts.solver.step_labels import StepLabels
from tts.statistics.discrimination import clustered_auc
from tts.tasks.arithmetic.countdown import read
from tts.types import Solution


def exact(problem: tts.Problem, steps: tuple[str, ...]) -> list[bool]:
    """Return the exact verdicts of steps."""
    asked = read(problem.text)
    assert asked is not None, problem.text
    return leads(asked, [step.strip() for step in steps])


def measure(name: str, found: list[Solution], labels: list[StepLabels]) -> str:
    """Return the line of one setting."""
    soft, truth, agree, clusters = list[float](), list[bool](), list[bool](), list[int]()
    for number, (solution, one) in enumerate(zip(found, labels, strict=True)):
        for path in {path.steps: path for path in one.paths}.values():
            for value, hard, right in list(zip(path.soft, path.hard, exact(solution.problem, path.steps), strict=True))[:-1]:
                if hard is None:
                    continue
                agree.append(hard == right)
                soft.append(float(hard) if value is None else value)
                truth.append(right)
                clusters.append(number)
    auc = clustered_auc(soft, truth, clusters, rng=np.random.default_rng(0))
    tokens = sum(one.usage.tokens for one in labels)
    return (
        f"| {name} | {len(truth):,} | {np.mean(truth):.2f} | {auc.value:.3f} [{auc.low:.3f}, {auc.high:.3f}] | {np.mean(agree):.3f} | "
        f"{tokens / len(truth):.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--k", type=int, nargs="+", default=[1, 4, 8])
    args = parser.parse_args()
    problems = countdown.load(limit=args.problems, split="validation", numbers=(3, 4))
    print("| labels | steps | right | AUC | hard labels that agree | tokens a step |\n|---|---|---|---|---|---|")
    with tts.Solver("pocket", task="countdown") as solver:
        budget = tts.Budget(samples=args.samples)
        found = list(solver.solve_many(problems, each=budget, strategy="best_of_n | majority"))
        for method in ("each", "first_error"):
            for k in args.k if method == "each" else args.k[-1:]:
                labels = [tts.label_steps(one, 100_000, solver=solver, k=k, method=method) for one in found]
                print(measure(f"{method}, k = {k}", found, labels), flush=True)


if __name__ == "__main__":
    main()
