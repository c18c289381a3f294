"""Stage "rollouts": the values of step prefixes of the policy's own solutions, by many continuations.

The value of a prefix is the share of its continuations that end in the right answer. A whole solution is worth 1 or 0
without a continuation. A prefix more than two steps after the first wrong one is left out: its value is nearly always
0. More solutions of the same problems are kept whose prefixes have one continuation each, the solution itself. This is
a value without bias, which costs nothing, and shows right and wrong solutions of one problem side by side.

Source: Wang et al. 2024, "Math-Shepherd" (arXiv 2312.08935), section 3.3, soft estimation. Differs: `EACH`
continuations, where they draw 8 too; late prefixes are left out; solutions with one continuation beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from research.pocket.train.examples import Asked, make_problem
from research.pocket.train.sampling import Marker, Writer, make_in_chunks, read_items, weights_checksum
from tts.tasks.arithmetic.generator import Split
from tts.tasks.base import split_after

EACH = 8
SOLUTIONS = 12  # of a problem
CONTINUED = 2  # of these, the ones whose prefixes are continued
TEMPERATURE = 0.8
_FIRST_INDEX = 20_000_000  # of problems, beyond those of the earlier stages
_PROBLEMS_PER_MINUTE = 200
_BEYOND = 2  # steps behind the first wrong one that are still valued
VALIDATION = 0.1  # share of problems, from the validation split


@dataclass(frozen=True)
class Valued:
    """A solution of the policy's and the values of its prefixes.

    Args:
        problem: The problem.
        solution: The solution.
        values: The value of the prefix that ends with each line; None: it was not estimated.
    """

    problem: Asked
    solution: str
    values: tuple[float | None, ...]


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Value prefixes of solutions by OUT/policy; write OUT/stages/rollouts/{train,validation}.jsonl."""
    problems = max(16, round(minutes * _PROBLEMS_PER_MINUTE))
    marker, counts = Marker(), {}
    identity = {
        "seed": seed,
        "solutions": SOLUTIONS,
        "continuations": EACH,
        "temperature": TEMPERATURE,
        "policy": weights_checksum(out / "policy"),
    }
    with Writer(out / "policy", temperature=TEMPERATURE, seed=seed, device=device) as writer:

        def make(split: Split, numbers: range) -> list[Any]:
            found = values(writer, marker, [make_problem(seed, _FIRST_INDEX + i, split) for i in numbers])
            return [[asdict(valued) for valued in of_one] for of_one in found]

        numbers: dict[Split, int] = {"train": problems, "validation": max(8, round(problems * VALIDATION))}
        for split, number in numbers.items():
            made = make_in_chunks(
                out / "stages" / "rollouts" / f"{split}.jsonl", number, partial(make, split), identity
            )
            counts[f"{split}_prefixes"] = float(
                sum(value is not None for one in made for valued in one for value in valued["values"])
            )
    return counts


def read(out: Path, split: Split) -> list[Valued]:
    """Return the solutions that `run` wrote.

    Raises:
        ConfigError: The stage has not been run, or was run with another policy than the one in OUT/policy.
    """
    made = read_items(out / "stages" / "rollouts" / f"{split}.jsonl", policy=weights_checksum(out / "policy"))
    found = [valued for of_one in made for valued in of_one]
    return [Valued(Asked(**one["problem"]), one["solution"], tuple(one["values"])) for one in found]


def values(writer: Writer, marker: Marker, problems: Sequence[Asked]) -> list[list[Valued]]:
    """Return, for each problem, its solutions with the values of their prefixes."""
    drawn = writer.continue_prompts([one.prompt for one in problems], SOLUTIONS)
    solutions = [[text for text in texts if text.endswith("\n")] for texts in drawn]
    wanted = {
        one.prompt + prefix: one
        for one, texts in zip(problems, solutions, strict=True)
        for text in texts[:CONTINUED]
        for prefix in _open_prefixes(one, text)
    }
    rollouts = writer.continue_prompts(list(wanted), EACH)
    worth = {
        prompt: sum(marker.is_right(one, prompt.removeprefix(one.prompt) + text) for text in texts) / EACH
        for (prompt, one), texts in zip(wanted.items(), rollouts, strict=True)
    }

    def value_solution(one: Asked, number: int, text: str) -> Valued:
        right, prefixes = float(marker.is_right(one, text)), _prefixes(text)
        known = [worth.get(one.prompt + prefix) if number < CONTINUED else right for prefix in prefixes[:-1]]
        return Valued(one, text, (*known, right))

    return [
        [value_solution(one, i, text) for i, text in enumerate(texts)]
        for one, texts in zip(problems, solutions, strict=True)
    ]


def _prefixes(solution: str) -> list[str]:
    lines = split_after(solution, ("\n",))
    return ["".join(lines[: i + 1]) for i in range(len(lines))]


def _open_prefixes(problem: Asked, solution: str) -> list[str]:
    """Return the prefixes to be continued: all but the whole, up to a little after the first wrong step."""
    right = split_after(problem.worked, ("\n",))
    prefixes = _prefixes(solution)
    lines = split_after(solution, ("\n",))
    wrong = next((i for i, line in enumerate(lines) if i >= len(right) or line != right[i]), len(lines))
    # a countdown may be solved in another way
    last = len(lines) if problem.task == "countdown" else wrong + 1 + _BEYOND
    return prefixes[: min(len(prefixes) - 1, last)]
