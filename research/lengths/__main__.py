"""Measure how much of a budget goes into solutions that end, and write `docs/results/lengths.md`.

    python -m research.lengths --out docs/results/lengths.md [--before before.json]
    python research/lengths/__main__.py --json before.json      # in a checkout of an earlier revision

There are two parts. The first is a function model under a task whose constant is 256. Its lengths are lognormal, with
a median of 600 tokens and a 95th percentile of 4,000. The second is the embedded policy on problems whose solutions
are longer than the constant of its task: six operations, and countdown with four numbers. The script uses the public
interface alone, so that earlier revisions run it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tts
from research.stamps import stamp_line
from tts.experiments import datasets

MEDIAN, SPREAD = 600, math.log(4000 / 600) / 1.6448536
MEDIANS = (8, 32, 128)
PLANS = ("best_of_n | majority", "best_of_n(n=16) | majority")
TOKENS = (204, 408, 816, 1632)
DATA: Mapping[str, tuple[str, dict[str, Any]]] = {
    "six operations": ("arithmetic", {"operations": [6]}),
    "countdown, four numbers": ("countdown", {"numbers": [4]}),
}
VOTES = ("best_of_n | majority", "best_of_n | weighted")


def write_lognormal(ask: Any) -> Any:
    """Continue a solution; the row's seed decides its length and its answer."""
    rng = np.random.default_rng(ask.seed)
    length = max(1, int(MEDIAN * math.exp(SPREAD * rng.standard_normal())))
    answer = "7" if rng.random() < 0.5 else str(rng.integers(100))
    begun = len(ask.text.split())
    count = min(ask.max_tokens, length - begun)
    ended = begun + count >= length
    text = " ".join(["w"] * (count - ended)) + (f" \\boxed{{{answer}}}" if ended else " ")
    return _answer(text, tokens=count, finished=ended)


def _answer(text: str, **more: Any) -> Any:
    from tts.backends.function import Answer

    return Answer(text, **more)


def measure_lengths(seeds: int) -> list[dict[str, Any]]:
    """Return a row for each plan and budget: the tokens spent on solutions that ended, over seeds."""
    rows: list[dict[str, Any]] = []
    for plan in PLANS:
        for medians in MEDIANS:
            answered, spent, calls, none = list[int](), list[int](), list[int](), 0
            for seed in range(seeds):
                solution = tts.solve(
                    "x", medians * MEDIAN, backend=write_lognormal, strategy=plan, task="math", seed=seed
                )
                answered.append(sum(c.trajectory.num_tokens for c in solution.candidates if c.answer is not None))
                spent.append(solution.usage.tokens)
                calls.append(sum(call.kind == "expand" for call in solution.trace.calls))
                none += solution.answer is None
            rows.append(
                {
                    "plan": plan,
                    "medians": medians,
                    "seeds": seeds,
                    "answered": sum(answered) / sum(spent),
                    "interval": list(_interval(np.array(answered), np.array(spent))),
                    "spent": float(np.mean(spent)) / (medians * MEDIAN),
                    "calls": float(np.mean(calls)),
                    "most_calls": max(calls),
                    "calls_95": float(np.quantile(calls, 0.95)),
                    "unanswered": none,
                }
            )
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def _interval(answered: Any, spent: Any) -> tuple[float, float]:
    """Return the 95 % bootstrap interval over seeds of the ratio of sums."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(spent), (2000, len(spent)))
    low, high = np.quantile(answered[drawn].sum(axis=1) / spent[drawn].sum(axis=1), [0.025, 0.975])
    return float(low), float(high)


def measure_policy(problems: int, seeds: int) -> list[dict[str, Any]]:
    """Return a row for each data set, plan and budget: the share of right answers.

    Each row has the share of each problem too, for paired comparisons.
    """
    rows: list[dict[str, Any]] = []
    for name, (dataset, parameters) in DATA.items():
        problem_list = datasets.load(dataset, limit=problems, **parameters)[:problems]
        task = tts.tasks.get(problem_list[0].task or "pocket")
        for plan in VOTES:
            for tokens in TOKENS:
                right = np.zeros((seeds, len(problem_list)))
                for seed in range(seeds):
                    solutions = tts.solve_many(problem_list, each=tokens, strategy=plan, seed=seed, verifier="process")
                    right[seed] = [
                        s.answer is not None and bool(task.equivalent(s.answer, s.problem.answer or ""))
                        for s in solutions
                    ]
                rows.append(
                    {"data": name, "plan": plan, "tokens": tokens, "seeds": seeds, "right": right.mean(axis=0).tolist()}
                )
                print(name, plan, tokens, right.mean(), file=sys.stderr, flush=True)
    return rows


def mean_of(right: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean over problems with its 95 % bootstrap interval."""
    values = np.array(right)
    drawn = np.random.default_rng(0).integers(0, len(values), (2000, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


def _code(plan: str) -> str:
    return "`" + plan.replace("|", "\\|") + "`"


def page(after: Mapping[str, Any], before: Mapping[str, Any] | None) -> str:
    """Return the page of results."""
    lines = [
        "# Solutions of unknown length",
        "",
        stamp_line("python -m research.lengths"),
        *(["The column *before* is of revision a89fcf3, which cut rows."] if before else []),
        "",
        "## A function model with lognormal lengths",
        "",
        f"Lengths have a median of {MEDIAN} tokens and a 95th percentile of 4,000. The task assumes 256 tokens. "
        f"Each row has {after['lengths'][0]['seeds']} seeds.",
        "*In answers* is the share of the spent tokens that belong to candidates with an answer, with its 95 % "
        "interval over seeds.",
        "",
        "| plan | budget in medians | in answers | before | spent | calls, mean / 95 % / most | without an answer |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    old = {} if before is None else {(row["plan"], row["medians"]): row for row in before["lengths"]}
    for row in after["lengths"]:
        was = old.get((row["plan"], row["medians"]))
        share = f"{row['answered']:.3f} [{row['interval'][0]:.3f}, {row['interval'][1]:.3f}]"
        calls = f"{row['calls']:.1f} / {row['calls_95']:.0f} / {row['most_calls']}"
        cells = [
            share,
            "" if was is None else format(was["answered"], ".3f"),
            f"{row['spent']:.2f}",
            calls,
            str(row["unanswered"]),
        ]
        lines.append(f"| {_code(row['plan'])} | {row['medians']} | {' | '.join(cells)} |")
    lines += [
        "", "## The embedded policy", "",
        "Accuracy is in percent, with its 95 % interval over problems. The difference is paired by problem.", "",
        "| problems | plan | tokens | after | before | difference |", "|---|---|--:|--:|--:|--:|",
    ]  # fmt: skip
    old = (
        {} if before is None else {(row["data"], row["plan"], row["tokens"]): row["right"] for row in before["policy"]}
    )
    for row in after["policy"]:
        was = old.get((row["data"], row["plan"], row["tokens"]))
        now, low, high = mean_of(row["right"])
        cells = [f"{now:.1%} [{low:.1%}, {high:.1%}]", "", ""]
        if was is not None:
            gain, least, most = mean_of((np.array(row["right"]) - np.array(was)).tolist())
            cells[1:] = [f"{mean_of(was)[0]:.1%}", f"{gain:+.1%} [{least:+.1%}, {most:+.1%}]"]
        problems = f"{row['data']}, {len(row['right'])} problems, {row['seeds']} seeds"
        lines.append(f"| {problems} | {_code(row['plan'])} | {row['tokens']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="of the function model")
    parser.add_argument("--problems", type=int, default=60, help="of each data set")
    parser.add_argument("--policy-seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures")
    parser.add_argument("--measured", type=Path, help="figures that --json wrote, in place of new ones")
    parser.add_argument("--before", type=Path, help="figures of an earlier revision")
    parser.add_argument("--out", type=Path, help="write the page; else it is printed")
    options = parser.parse_args(arguments)
    if options.measured is not None:
        made = json.loads(options.measured.read_text(encoding="utf-8"))
    else:
        made = {
            "lengths": measure_lengths(options.seeds),
            "policy": measure_policy(options.problems, options.policy_seeds),
        }
    if options.json is not None:
        options.json.write_text(json.dumps(made), encoding="utf-8")
    text = page(made, None if options.before is None else json.loads(options.before.read_text(encoding="utf-8")))
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
