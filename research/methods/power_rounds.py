"""Samplers of p^alpha beside each other, at equal candidates: rounds, tokens and right votes.

    python -m research.methods.power_rounds [--limit 60] [--n 8] [--out FOLDER]

The command solves arithmetic problems of the test split with the embedded policy, without a verifier. A *round* is a
call in which the model writes for all candidates at once. Rounds follow each other, so that they bound the latency. The
command writes `power_rounds.md`, and takes ten minutes of one core.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import tts
from research.methods.arguments import RESULTS, write_page
from research.stamps import stamp_line
from tts import tasks
from tts.experiments.datasets import arithmetic
from tts.statistics import clustered_mean

OPERATIONS = (3, 4, 5, 6)  # as on the page of the second wave
BUDGET = 10**6  # tokens: no search is cut
PLANS = (
    "best_of_n(n={n}, temperature=0.25) | majority",
    "power_smc(n={n}) | majority",
    "power_smc(n={n}, block=4) | majority",
    "power_sampling(chains={n}, moves=2) | majority",
    "power_sampling(chains={n}) | majority",
)
COLUMNS = ("rounds", "generated tokens", "tokens read", "right votes, %")


def measure(plan: str, problems: Sequence[tts.Problem]) -> np.ndarray:
    """Return the figures of each problem, [problems, columns]."""
    rows: list[tuple[float, ...]] = []
    task = tasks.get("pocket")
    with tts.Solver("pocket", "none", strategy=plan) as solver:
        for problem in problems:
            found = solver.solve(problem, BUDGET)
            rounds = sum(call.usage.generated_tokens > 0 for call in found.trace.calls)
            usage, is_right = (
                found.usage,
                found.answer is not None and task.equivalent(found.answer, problem.answer or ""),
            )
            rows.append((
                rounds, usage.generated_tokens, usage.prompt_tokens + (usage.reused_tokens or 0), 100.0 * is_right,
            ))  # fmt: skip
    return np.array(rows)


def page(options: argparse.Namespace, problems: Sequence[tts.Problem]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from ("# Samplers of a sharpened law", "")
    yield stamp_line(f"python -m research.methods.power_rounds --limit {options.limit} --n {options.n}")
    yield ""
    yield (
        f"{len(problems)} expressions of {min(OPERATIONS)} to {max(OPERATIONS)} operations, {options.n} candidates "
        "each, one seed. *Rounds* are calls that write for all candidates, one after another. *Tokens read* may be "
        "in the model's cache. The first plan sharpens tokens alone, not texts."
    )
    yield from ("", f"| plan | {' | '.join(COLUMNS)} |", f"| :-- |{' :-- |' * len(COLUMNS)}")
    for template in PLANS:
        plan = template.format(n=options.n)
        figures = measure(plan, problems)
        cells: list[str] = []
        for column, values in zip(COLUMNS, figures.T, strict=True):
            bounds = (0.0, 100.0) if column.startswith("right") else None
            mean = clustered_mean(values, rng=np.random.default_rng(0), bounds=bounds)
            cells.append(f"{mean.value:.1f} [{mean.low:.1f}, {mean.high:.1f}]")
        name = plan.replace("|", "\\|")
        yield f"| `{name}` | {' | '.join(cells)} |"


def main() -> None:
    """Measure all plans, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--limit", type=int, default=60, help="problems")
    parser.add_argument("--n", type=int, default=8, help="candidates of a problem")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    problems = arithmetic.load(split="test", operations=OPERATIONS, limit=options.limit)
    write_page(options.out, "power_rounds.md", page(options, problems))


if __name__ == "__main__":
    main()
