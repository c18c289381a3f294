"""Stage "attempts": the policy's own solutions of countdowns, with exact verdicts on their lines.

A process model learns from them which lines still lead to the target. Beside them stand right solutions, and right
ones with a slip. The slips are of the kinds that the policy makes most: an operand that is not there, a wrong result,
an answer that is not the target, a step too few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from research.pocket.train.reach import apply_step, is_reachable, judge_prefixes, legal_steps
from research.pocket.train.sampling import Writer, make_in_chunks, read_items, weights_checksum
from research.pocket.train.states import Branch, State, bits_of, shuffle_operands
from tts.models.registry import SHIPPED
from tts.randomness import generator
from tts.tasks.arithmetic import countdown
from tts.tasks.arithmetic.countdown import CountdownProblem
from tts.tasks.arithmetic.expression import Step, apply
from tts.tasks.arithmetic.lines import read_answer, read_step
from tts.tasks.base import split_after

FIRST_INDEX = 70_001_000  # of their problems, beyond those of the other stages
SAMPLES, TEMPERATURE = 12, 0.8
_PROBLEMS_PER_MINUTE = 200
_OF_STATE, _RIGHT, _SLIPS = 6, 2, 2  # branches: attempts, right solutions, slips


@dataclass(frozen=True)
class Attempted:
    """A countdown and the solutions that the policy wrote."""

    problem: CountdownProblem
    solutions: tuple[str, ...]


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Draw solutions of the shipped policy for countdowns of three and four numbers of the train split.

    They are written to OUT/stages/attempts/train.jsonl.
    """
    total = max(1, round(minutes * _PROBLEMS_PER_MINUTE))
    with Writer(SHIPPED / "policy", temperature=TEMPERATURE, seed=seed, device=device) as writer:

        def make(numbers: range) -> list[Any]:
            problems = [_problem(i) for i in numbers]
            made = writer.continue_prompts([f"{one.text}\n" for one in problems], SAMPLES)
            return [[one.target, list(one.numbers), texts] for one, texts in zip(problems, made, strict=True)]

        found = make_in_chunks(
            _path(out), total, make, {"stage": "attempts", "seed": seed, "policy": weights_checksum(SHIPPED / "policy")}
        )
    solutions = [text for _, _, texts in found for text in texts]
    return {"problems": float(len(found)), "solutions": float(len(solutions))}


def read_attempts(out: Path) -> list[Attempted]:
    """Return the solutions that the stage drew.

    Raises:
        ConfigError: The stage has not been run, or was run with another policy than the shipped one.
    """
    made = read_items(_path(out), policy=weights_checksum(SHIPPED / "policy"))
    return [Attempted(CountdownProblem(target, tuple(numbers)), tuple(texts)) for target, numbers, texts in made]


def attempt_state(attempted: Sequence[Attempted], seed: int, index: int) -> State:
    """Return a countdown with some of the policy's solutions, right solutions and slips.

    A right solution of the policy is among them if there is one.
    """
    rng = generator(seed, 0, "attempt state", index)
    one = attempted[int(rng.integers(len(attempted)))]
    drawn = [split_after(one.solutions[i], ("\n",)) for i in rng.permutation(len(one.solutions))]
    # one right one first, if any; the others in their order
    drawn.sort(key=lambda lines: not all(judge_prefixes(one.problem, lines)))
    chosen = [*drawn[:1], *(drawn[1:] if rng.random() < 0.5 else drawn[:0:-1])][:_OF_STATE]
    right = [_solve(one.problem, rng) for _ in range(_RIGHT)]
    slips = [_add_slip(one.problem, right[int(rng.integers(_RIGHT))], rng) for _ in range(_SLIPS)]
    return State(
        f"{one.problem.text}\n",
        tuple(judge_solution(one.problem, lines) for lines in (*chosen, *right, *slips) if lines),
        "countdown",
    )


def judge_solution(problem: CountdownProblem, lines: Sequence[str]) -> Branch:
    """Return a solution with the exact verdict on each of its lines, and the targets that stay in reach.

    Targets are known while the steps are right.
    """
    left: tuple[int, ...] | None = tuple(problem.numbers)
    hints: list[np.ndarray | None] = []
    for line in lines:
        step = read_step(line)
        left = None if left is None or step is None else apply_step(left, step)
        hints.append(None if left is None else bits_of(left))
    return Branch(tuple(lines), tuple(judge_prefixes(problem, lines)), tuple(hints))


def _problem(index: int) -> CountdownProblem:
    return countdown.draw(4 if index % 5 else 3, "train", 77, FIRST_INDEX + index)


def _path(out: Path) -> Path:
    return out / "stages" / "attempts" / "train.jsonl"


def _solve(problem: CountdownProblem, rng: np.random.Generator) -> list[str]:
    """Return a right solution; its steps are drawn evenly among those that keep the target in reach."""
    numbers, lines = tuple(int(n) for n in rng.permutation(problem.numbers)), list[str]()
    while len(numbers) > 1:
        good = [
            (step, rest)
            for step in legal_steps(numbers)
            if (rest := apply_step(numbers, step)) and is_reachable(rest, problem.target)
        ]
        likely = [one for one in good if one[0].result >= 0] or good
        step, numbers = likely[int(rng.integers(len(likely)))]
        lines.append(f"{shuffle_operands(step, rng)}\n")
    return [*lines, f"A: {problem.target}\n"]


def _add_slip(problem: CountdownProblem, lines: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Return a solution with one slip; later lines go on from what the slip states."""
    steps = [step for line in lines if (step := read_step(line)) is not None]
    place, kind = int(rng.integers(len(steps))), rng.random()
    step = steps[place]
    if kind < 0.1:  # the answer
        return [*lines[:-1], f"A: {problem.target + int(rng.choice([-10, -2, -1, 1, 2, 10]))}\n"]
    if kind < 0.2 and len(steps) > 1:  # a step too few
        return [*lines[: len(steps) - 1], f"A: {problem.target}\n"]
    if kind < 0.4:  # the result
        wrong = Step(step.left, step.operator, step.right, step.result + int(rng.choice([-10, -2, -1, 1, 2, 10])))
    else:  # an operand: a given number, one that is a result, the target, or any
        stated = [other.result for other in steps[:place]]
        options = [*problem.numbers, *stated, *stated, problem.target, int(rng.integers(1, 26))]
        stray = options[int(rng.integers(len(options)))]
        left, right = (stray, step.right) if rng.random() < 0.5 else (step.left, stray)
        wrong = Step(left, step.operator, right, apply(step.operator, left, right))
    answer = wrong.result if place + 1 == len(steps) and rng.random() < 0.5 else read_answer(lines[-1])
    return [*lines[:place], f"{wrong}\n", *lines[place + 1 : -1], f"A: {answer}\n"]
