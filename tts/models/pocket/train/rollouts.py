"""Stage "rollouts": what the step prefixes of the policy's own solutions are worth, by continuing each of them many times.

The value of a prefix is the share of its continuations that end in the right answer. A whole solution is worth 1 or 0 without any.
A prefix more than two steps behind the first wrong one is left out: it is next to never worth anything, and says nothing new.
    Source: Wang et al. 2024, "Math-Shepherd" (arXiv 2312.08935), section 3.3, soft estimation. Differs: `EACH` continuations, where they
    draw 8 too; late prefixes are left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tts.models.pocket.train.examples import Asked, asked
from tts.models.pocket.train.sampling import Marker, continued
from tts.tasks.arithmetic.generator import Split
from tts.tasks.base import split_at

EACH = 8
SOLUTIONS = 2  # of a problem
TEMPERATURE = 0.8
_FIRST_INDEX = 20_000_000  # of problems, beyond those of the earlier stages
_PROBLEMS_PER_MINUTE = 150
_BEYOND = 2  # steps behind the first wrong one that are still valued
VALIDATION = 0.1  # share of problems, from the validation split


@dataclass(frozen=True)
class Valued:
    """A solution of the policy's and the value of the prefix that ends with each of its lines; None where it was not estimated."""

    problem: Asked
    solution: str
    values: tuple[float | None, ...]


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Value prefixes of solutions by OUT/policy; write OUT/rollouts/{train,validation}.jsonl."""
    problems = max(16, round(minutes * _PROBLEMS_PER_MINUTE))
    counts = {}
    for split, number in (("train", problems), ("validation", max(8, round(problems * VALIDATION)))):
        valued = values(out / "policy", [asked(seed, _FIRST_INDEX + i, split) for i in range(number)], seed, device)
        path = out / "rollouts" / f"{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps(asdict(one))}\n" for one in valued))
        counts[f"{split}_prefixes"] = float(sum(value is not None for one in valued for value in one.values))
    return counts


def read(out: Path, split: Split) -> list[Valued]:
    """Return what `run` wrote."""
    lines = [json.loads(line) for line in (out / "rollouts" / f"{split}.jsonl").open()]
    return [Valued(Asked(**one["problem"]), one["solution"], tuple(one["values"])) for one in lines]


def values(policy: Path, problems: Sequence[Asked], seed: int, device: str) -> list[Valued]:
    """Return solutions of problems with the values of their prefixes."""
    marker = Marker()
    drawn = continued(policy, [one.prompt for one in problems], each=SOLUTIONS, temperature=TEMPERATURE, seed=seed, device=device)
    pairs = [(one, text) for one, texts in zip(problems, drawn, strict=True) for text in dict.fromkeys(texts) if text.endswith("\n")]
    wanted: dict[str, Asked] = {}
    for one, text in pairs:
        for prefix in _open_prefixes(one, text):
            wanted[one.prompt + prefix] = one
    rollouts = continued(policy, list(wanted), each=EACH, temperature=TEMPERATURE, seed=seed, device=device)
    worth = {
        prompt: sum(marker.right(one, prompt[len(one.prompt) :] + text) for text in texts) / EACH
        for (prompt, one), texts in zip(wanted.items(), rollouts, strict=True)
    }
    found: list[Valued] = []
    for one, text in pairs:
        prefixes = _prefixes(text)
        known: list[float | None] = [worth.get(one.prompt + prefix) for prefix in prefixes[:-1]]
        found.append(Valued(one, text, (*known, float(marker.right(one, text)))))
    return found


def _prefixes(solution: str) -> list[str]:
    lines = split_at(solution, ("\n",))
    return ["".join(lines[: i + 1]) for i in range(len(lines))]


def _open_prefixes(problem: Asked, solution: str) -> list[str]:
    """Return the prefixes to be continued: all but the whole, up to a little behind where it leaves the worked solution."""
    right = split_at(problem.worked, ("\n",))
    prefixes = _prefixes(solution)
    lines = split_at(solution, ("\n",))
    wrong = next((i for i, line in enumerate(lines) if i >= len(right) or line != right[i]), len(lines))
    last = len(lines) if problem.task == "countdown" else wrong + 1 + _BEYOND  # a countdown may be solved in another way
    return prefixes[: min(len(prefixes) - 1, last)]
