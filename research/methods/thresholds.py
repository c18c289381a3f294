"""How rare an answer best-of-majority may keep, chosen on validation data of several verifiers.

The verifiers are four scores of the embedded pair on the validation split, and rewards of published models on recorded
samples where these are present. All samples are real: how rare right answers are decides, and no simulation can say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import tts
from research.recorded import pools as recorded
from tts.errors import ConfigError
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.replay import replay
from tts.tasks import get

# Least share of all candidates and least votes, by name.
THRESHOLDS: Mapping[str, tuple[float, int]] = {
    "1/N": (0.0, 1), "2/N": (0.0, 2), "3/N": (0.0, 3), "max(0.03, 2/N)": (0.03, 2), "max(0.03, 3/N)": (0.03, 3),
    "max(0.05, 3/N)": (0.05, 3), "max(0.1, 3/N)": (0.1, 3), "max(0.2, 2/N)": (0.2, 2),
}  # fmt: skip
DEFAULT = "max(0.1, 3/N)"
SIZES = (16, 32, 64)
_ANSWERS = {"answer": "answer"}  # the field has the answers of the model, and not the reference
_CRUCIBLE = "crucible_math500/math500-bestofn-seed{}.json"


def alpha_of(name: str, size: int) -> float:
    """Return the least share that a threshold means at a size."""
    share, votes = THRESHOLDS[name]
    return min(1.0, max(share, votes / size))


def rewarded_pools() -> Iterator[tuple[str, tts.Pool]]:
    """Yield recorded samples with rewards, by name; none where they are not present."""
    try:
        yield "Qwen2.5-Math's reward, MATH", recorded.pool("qwen25math")
        yield (
            "Skywork's process model, MATH",
            tts.Pool.from_rows(_crucible(), fields=_ANSWERS, name="crucible", task="text", verdicts="given"),
        )
    except ConfigError:
        return


def _crucible() -> list[dict[str, Any]]:
    """Return the recorded problems, each with the samples of all seeds."""
    task, rows = get("math"), dict[str, dict[str, Any]]()
    for seed in range(3):
        path = recorded.folder() / _CRUCIBLE.format(seed)
        for one in json.loads(path.read_text(encoding="utf-8"))["records"]:
            row = rows.setdefault(
                one["problem_id"], {"problem": one["problem_id"], "text": [], "answer": [], "correct": [], "scores": []}
            )
            for trace in one["traces"]:
                row["text"].append(trace["text"])
                row["answer"].append(task.canonical(task.extract(trace["text"]) or ""))
                row["correct"].append(trace["correct"])
                row["scores"].append(trace["prm_score"])
    return list(rows.values())


def accuracies(pools: Sequence[ProblemPool], size: int, draws: int, verifier: str = "main") -> list[float]:
    """Return the accuracy at a size for each threshold, over random subsets."""
    plans = [
        f"best_of_n | best_of_majority(alpha={alpha_of(name, size)!r}, verifier={verifier!r})" for name in THRESHOLDS
    ]
    return [curve.curve.accuracy[0].value for curve in replay(pools, plans, [size], draws=draws)]


def columns(pools: Sequence[ProblemPool], roles: Mapping[str, str], draws: int) -> Iterator[tuple[str, list[float]]]:
    """Yield a column of accuracies for each verifier and size.

    Args:
        pools: The samples of the pair on the validation split.
        roles: The names of the pair's scores, by role.
        draws: The subsets of a pool.
    """
    for size in (size for size in SIZES if size <= len(pools[0].drawn)):
        yield from ((f"{name}, N = {size}", accuracies(pools, size, draws, role)) for role, name in roles.items())
    for name, pool in rewarded_pools():
        most = min(len(one.drawn) for one in pool.problems)
        yield f"{name}, N = {most}", accuracies(pool.problems, most, 2)


def table(found: Sequence[tuple[str, Sequence[float]]]) -> Iterator[str]:
    """Yield the lines of the table: the accuracy of each threshold, and its loss to the best of a column."""
    names = list(THRESHOLDS)
    losses = np.array([[max(column) - value for value in column] for _, column in found])
    yield f"| verifier | {' | '.join(f'`{name}`' for name in names)} |"
    yield f"| :-- |{' --: |' * len(names)}"
    yield from (f"| {name} | {' | '.join(f'{100 * value:.1f}' for value in column)} |" for name, column in found)
    for what, by in (("mean loss", losses.mean(0)), ("largest loss", losses.max(0))):
        yield f"| **{what}** | {' | '.join(f'**{100 * value:.1f}**' for value in by)} |"
