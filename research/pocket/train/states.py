"""The states that a process model learns from: prefixes of solutions with many judged next lines.

A row is a prefix and branches after it. Each branch follows the prefix alone. So one reading of the prefix serves all
branches, and each sees exactly what it would see by itself. A branch is read at its newlines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from research.pocket.train.examples import EVEN_TOKENS, make_problem
from research.pocket.train.reach import apply_step, is_reachable, judge_prefixes, legal_steps, targets
from research.pocket.train.slips import careless_lines, follow_lines
from tts.randomness import generator
from tts.tasks.arithmetic import countdown
from tts.tasks.arithmetic.countdown import LARGEST_RESULT, CountdownProblem
from tts.tasks.arithmetic.expression import Step, numbers, steps
from tts.tasks.arithmetic.generator import Split, held_out
from tts.tasks.arithmetic.lines import read_answer, read_step, solution
from tts.tasks.arithmetic.reading import read
from tts.tasks.base import split_after

HINTS = LARGEST_RESULT  # entries of a hint
# by count of numbers: shares of steps taken before
_DEPTHS: dict[int, list[float]] = {2: [1.0], 3: [0.7, 0.3], 4: [0.6, 0.3, 0.1]}
_BLOCK = 8  # batches that are drawn together and cut by length


@dataclass(frozen=True)
class Branch:
    """Lines after a prefix.

    Args:
        lines: The lines.
        labels: The label of each line; None: the line is not judged.
        hints: What a judge has to know at each line, as entries of 0 and 1; None: nothing is asked.
    """

    lines: tuple[str, ...]
    labels: tuple[bool | None, ...]
    hints: tuple[np.ndarray | None, ...]


@dataclass(frozen=True)
class State:
    """A prefix and branches after it.

    Args:
        prefix: The prefix, prompt included.
        branches: The branches.
        kind: "countdown" or "pocket".
    """

    prefix: str
    branches: tuple[Branch, ...]
    kind: str


@dataclass(frozen=True)
class Forest:
    """Rows of states.

    Args:
        ids: The tokens, [rows, tokens].
        positions: The positions of the tokens, [rows, tokens].
        mask: The attention mask, [rows, 1, tokens, tokens], 0 or -inf.
        at: The rows and the columns that are read.
        labels: The labels of these places.
        group: The number of each place's group; lines of a group are compared with each other.
        kind: The kind of each place, 1 for countdown.
        hinted: Whether each place has a hint.
        hints: The hints, [hinted, HINTS].
        spoken: The rows and the columns whose next token should be that of `next_tokens`.
        next_tokens: The next tokens.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    at: tuple[torch.Tensor, torch.Tensor]
    labels: torch.Tensor
    group: torch.Tensor
    kind: torch.Tensor
    hinted: torch.Tensor
    hints: torch.Tensor
    spoken: tuple[torch.Tensor, torch.Tensor]
    next_tokens: torch.Tensor


def countdown_state(seed: int, index: int, split: Split = "train") -> State:
    """Return a state of a countdown, with the right next steps and a few wrong ones."""
    rng = generator(seed, 0, "countdown state", split, index)
    count = int(rng.choice([2, 3, 4], p=[0.04, 0.26, 0.7]))
    problem = countdown.draw(count, split, seed, 50_000_000 + index)
    depth = int(rng.choice(count - 1, p=_DEPTHS[count]))
    numbers_left, prefix = tuple(int(n) for n in rng.permutation(problem.numbers)), list[str]()
    for _ in range(depth):
        options = [step for step in legal_steps(numbers_left) if step.result >= 0]
        good = [step for step in options if is_reachable(_apply_right_step(numbers_left, step), problem.target)]
        step = _pick(good, options, rng)
        numbers_left = _apply_right_step(numbers_left, step)
        prefix.append(f"{step}\n")
    branches = [_branch(problem, prefix, step, numbers_left, rng) for step in _next_steps(numbers_left, rng)]
    return State(f"{problem.text}\n{''.join(prefix)}", tuple(branches), "countdown")


def _pick(good: Sequence[Step], options: Sequence[Step], rng: np.random.Generator) -> Step:
    chosen = good if good and rng.random() < 0.8 else options
    return shuffle_operands(chosen[int(rng.integers(len(chosen)))], rng)


def _apply_right_step(left: tuple[int, ...], step: Step) -> tuple[int, ...]:
    found = apply_step(left, step)
    assert found is not None, "the step is right"
    return found


def shuffle_operands(step: Step, rng: np.random.Generator) -> Step:
    """Return a step with its operands in random order, where either order is the same."""
    return (
        step if step.operator == "-" or rng.random() < 0.5 else Step(step.right, step.operator, step.left, step.result)
    )


def _next_steps(left: tuple[int, ...], rng: np.random.Generator) -> list[Step]:
    """Return all right steps and up to two wrong ones; most steps with a negative result are left out."""
    next_steps = [shuffle_operands(step, rng) for step in legal_steps(left) if step.result >= 0 or rng.random() < 0.2]
    for _ in range(int(rng.integers(3))):
        step = next_steps[rng.integers(len(next_steps))]
        if rng.random() < 0.6:
            moved = step.result + int(rng.choice([-10, -2, -1, 1, 2, 10]))
            next_steps.append(Step(step.left, step.operator, step.right, moved))
        else:
            stray = int(rng.integers(1, 26))
            next_steps.append(Step(stray, "+", step.right, stray + step.right))
    return next_steps


def _branch(
    problem: CountdownProblem, prefix: Sequence[str], step: Step, left: tuple[int, ...], rng: np.random.Generator
) -> Branch:
    lines = [f"{step}\n"]
    rest = apply_step(left, step)
    if rest is not None and len(rest) == 1:
        stated = problem.target if rng.random() < 0.3 else rest[0]
        lines.append(f"A: {stated}\n")
    labels = judge_prefixes(problem, [*prefix, *lines])[len(prefix) :]
    hints = [None if rest is None else bits_of(rest)] + [None] * (len(lines) - 1)
    return Branch(tuple(lines), tuple(labels), tuple(hints))


def bits_of(left: tuple[int, ...]) -> np.ndarray:
    """Return the targets that the numbers left reach, as entries of 0 and 1, from target 1 on."""
    found = targets(left)
    return np.array([found >> t & 1 for t in range(1, HINTS + 1)], np.float32)


def pocket_state(seed: int, index: int, split: Split = "train") -> State:
    """Return a state of an expression or a story.

    The state has the right next line and wrong ones, or the prompt has careless solutions.
    """
    rng = generator(seed, 0, "pocket state", split, index)
    while True:
        problem = make_problem(seed, 60_000_000 + index, split, EVEN_TOKENS)
        if problem.task == "pocket":
            break
        index += 500_000_000
    asked_for = read(problem.prompt).expression
    # of the other splits: `careless_lines` would look for a solution without such a pair
    banned = any(map(held_out, steps(asked_for)))
    if rng.random() < 0.25 and not banned:
        made = [careless_lines(problem, rng, 1.0) for _ in range(4)]
        return State(
            problem.prompt, tuple(judge_branch(asked_for, [line.written for line in one]) for one in made), "pocket"
        )
    right = split_after(problem.worked, ("\n",))
    depth = int(rng.integers(len(right)))
    branches = [judge_branch(asked_for, right[: depth + 1], depth)]
    for wrong in {_slip_line(right[depth], right[:depth], list(numbers(asked_for)), rng) for _ in range(5)} - {
        right[depth],
        "",
    }:
        branches.append(judge_branch(asked_for, [*right[:depth], wrong], depth))
    order = rng.permutation(len(branches))
    return State(problem.prompt + "".join(right[:depth]), tuple(branches[i] for i in order), "pocket")


def judge_branch(asked_for: Any, lines: Sequence[str], start: int = 0) -> Branch:
    """Return the lines of a solution from number `start` on, with labels.

    A label says whether the solution is right as far as the end of its line.
    """
    labels, hints, right = list[bool](), list["np.ndarray | None"](), True
    for line in follow_lines(asked_for, lines):
        right = right and line.written == line.wanted
        labels.append(right)
        hints.append(_line_hint(line.wanted))
    return Branch(tuple(lines[start:]), tuple(labels[start:]), tuple(hints[start:]))


def _line_hint(line: str) -> np.ndarray | None:
    """Return the operands and the result that a line should have, as entries.

    Each number has its sign and its last three digits.
    """
    step, stated = read_step(line), read_answer(line)
    entries = np.zeros(HINTS, np.float32)
    if step is None:
        if stated is None:
            return None
        stated_numbers = (None, None, stated)
    else:
        stated_numbers = (step.left, step.right, step.result)
        entries[96 + "+-*".index(step.operator)] = 1
    for k, number in enumerate(stated_numbers):
        if number is not None:
            entries[32 * k + int(number < 0)] = 1
            for place in range(3):
                entries[32 * k + 2 + 10 * place + abs(number) // 10**place % 10] = 1
    return entries


def _slip_line(line: str, before: Sequence[str], given: Sequence[int], rng: np.random.Generator) -> str:
    """Return a line with a slip; "": it would have a pair of operands that is held out."""
    step = read_step(line)
    if step is None:
        moved = (read_answer(line) or 0) + int(rng.choice([-100, -10, -1, 1, 10, 100]))
        results = [found.result for one in before if (found := read_step(one)) is not None]
        return solution([], results[rng.integers(len(results))] if results and rng.random() < 0.5 else moved)[0]
    chosen = rng.random()
    if chosen < 0.55:  # the result, mostly by little
        moved = step.result + int(rng.choice([1, 1, 1, 10, 10, 2, 100, 9, 11, 20, int(rng.integers(1, 100))])) * int(
            rng.choice([-1, 1])
        )
        wrong = Step(
            step.left, step.operator, step.right, -step.result if step.result and rng.random() < 0.07 else moved
        )
    elif chosen < 0.9:  # an operand
        results = [found.result for one in before if (found := read_step(one)) is not None]
        options = [
            *given,
            *results,
            step.left + int(rng.choice([-10, -1, 1, 10])),
            step.right + int(rng.choice([-10, -1, 1, 10])),
        ]
        stray = options[rng.integers(len(options))]
        left, right = (stray, step.right) if rng.random() < 0.5 else (step.left, stray)
        wrong = _compute_step(left, step.operator, right)
    elif chosen < 0.95:
        wrong = _compute_step(step.right, step.operator, step.left)
    else:
        wrong = _compute_step(step.left, "+-*"[rng.integers(3)], step.right)
    return "" if held_out(wrong) and not held_out(step) else f"{wrong}\n"


def _compute_step(left: int, operator: str, right: int) -> Step:
    return Step(
        left, operator, right, left + right if operator == "+" else left - right if operator == "-" else left * right
    )


class Forests:
    """Batches by number: states are drawn a block at a time, sorted by length, and cut into batches.

    Args:
        tokenizer: The tokenizer.
        state: The function from a number to a state.
        tokens: The tokens of a batch, about.
        average: The tokens of a state, about.
        seed: The seed of the order.
    """

    def __init__(self, tokenizer: Any, state: Callable[[int], State], *, tokens: int, average: int, seed: int) -> None:
        self._tokenizer, self._state, self._seed = tokenizer, state, seed
        self._rows = max(1, tokens // average) * _BLOCK
        self._block, self._batches = -1, list[Forest]()

    def __call__(self, step: int) -> Forest:
        """Return batch number `step`."""
        block, place = divmod(step, _BLOCK)
        if block != self._block:
            self._block, self._batches = block, self._draw_block(block)
        return self._batches[place]

    def _draw_block(self, block: int) -> list[Forest]:
        rows = make_rows(self._tokenizer, [self._state(block * self._rows + i) for i in range(self._rows)])
        rows.sort(key=lambda row: len(row.ids))
        lengths = np.cumsum([len(row.ids) for row in rows])
        edges = [0, *np.searchsorted(lengths, np.linspace(0, lengths[-1], _BLOCK + 1)[1:-1]), len(rows)]
        batches = [forest(rows[a:b], self._tokenizer.pad_token_id) for a, b in pairwise(edges)]
        return [batches[i] for i in generator(self._seed, 0, "forest order", block).permutation(_BLOCK)]


@dataclass(frozen=True)
class Row:
    """A state as tokens.

    Args:
        ids: The tokens.
        positions: The positions of the tokens.
        owner: The number of each token's branch; -1: the prefix.
        reads: The places that are read: column, label, hint and line of each.
        spoken: The columns of the tokens that the model should write.
        kind: "countdown" or "pocket".
    """

    ids: list[int]
    positions: list[int]
    owner: list[int]
    reads: list[tuple[int, bool, np.ndarray | None, int]]
    spoken: list[int]
    kind: str


def make_rows(tokenizer: Any, states: Sequence[State]) -> list[Row]:
    """Return states as tokens."""
    texts = [
        text
        for state in states
        for text in (state.prefix, *(line for branch in state.branches for line in branch.lines))
    ]
    ids, equals = (
        iter(tokenizer(texts, add_special_tokens=False)["input_ids"]),
        tokenizer.encode(" = ", add_special_tokens=False)[0],
    )
    return [_row(state, ids, tokenizer.bos_token_id, equals) for state in states]


def _row(state: State, ids: Any, bos: int, equals: int) -> Row:
    prefix = [bos, *next(ids)]
    row = Row([*prefix], list(range(len(prefix))), [-1] * len(prefix), [], [], state.kind)
    for number, branch in enumerate(state.branches):
        place = len(prefix)
        for k, (label, hint) in enumerate(zip(branch.labels, branch.hints, strict=True)):
            tokens = next(ids)
            if label:  # what is right is to be said: all of it, or, of a step that is one of many, its result
                first = 1 if state.kind == "pocket" else tokens.index(equals) + 1 if equals in tokens else len(tokens)
                row.spoken.extend(range(len(row.ids) + first, len(row.ids) + len(tokens)))
            row.ids.extend(tokens)
            row.positions.extend(range(place, place + len(tokens)))
            row.owner.extend([number] * len(tokens))
            place += len(tokens)
            if label is not None:
                row.reads.append((len(row.ids) - 1, label, hint, k))
    return row


def forest(rows: Sequence[Row], pad: int) -> Forest:
    """Return rows as one padded batch."""
    longest = max(len(row.ids) for row in rows)
    ids, positions = torch.full((len(rows), longest), pad), torch.zeros(len(rows), longest, dtype=torch.long)
    owners = torch.full((len(rows), longest), -2)
    for i, row in enumerate(rows):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        positions[i, : len(row.ids)] = torch.tensor(row.positions)
        owners[i, : len(row.ids)] = torch.tensor(row.owner)
    visible = (owners[:, None, :] == owners[:, :, None]) | (owners[:, None, :] == -1)
    visible &= torch.ones(longest, longest, dtype=torch.bool).tril()
    reads = [(i, *read) for i, row in enumerate(rows) for read in row.reads]
    groups = {key: n for n, key in enumerate(dict.fromkeys((read[0], read[4]) for read in reads))}
    spoken = [(i, column) for i, row in enumerate(rows) for column in row.spoken]
    hints = [read[3] for read in reads if read[3] is not None]
    return Forest(
        ids=ids,
        positions=positions,
        mask=torch.zeros(visible.shape).masked_fill_(~visible, float("-inf"))[:, None],
        at=(torch.tensor([read[0] for read in reads]), torch.tensor([read[1] for read in reads])),
        labels=torch.tensor([float(read[2]) for read in reads]),
        group=torch.tensor([groups[read[0], read[4]] for read in reads]),
        kind=torch.tensor([float(rows[read[0]].kind == "countdown") for read in reads]),
        hinted=torch.tensor([read[3] is not None for read in reads]),
        hints=torch.from_numpy(np.stack(hints)) if hints else torch.zeros(0, HINTS),
        spoken=(torch.tensor([i for i, _ in spoken]).long(), torch.tensor([column - 1 for _, column in spoken]).long()),
        next_tokens=torch.tensor([int(ids[i, column]) for i, column in spoken]).long(),
    )
