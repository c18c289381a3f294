"""The examples that the models learn from: problems of the train split with solutions, as tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from research.pocket.train.tokenizer import EOS
from tts.randomness import generator
from tts.tasks.arithmetic import countdown
from tts.tasks.arithmetic.expression import text
from tts.tasks.arithmetic.generator import MOST_OPERATIONS, Difficulty, Split, draw
from tts.tasks.arithmetic.pocket import ANSWER

IGNORED = -100  # a label that no loss counts
# share of each kind of problem: (worded, digits); what is left is countdown
_KINDS = {(False, 1): 0.16, (False, 2): 0.40, (True, 1): 0.12, (True, 2): 0.20}
# shares of each number of operations: every number of them with the same share of the tokens, or of the problems
EVEN_TOKENS = 1 / np.arange(1, MOST_OPERATIONS + 1) / np.sum(1 / np.arange(1, MOST_OPERATIONS + 1))
EVEN_PROBLEMS = np.full(MOST_OPERATIONS, 1 / MOST_OPERATIONS)
_COUNTDOWN_NUMBERS = (2, 3, 4)
_BLOCK = 16  # batches that are drawn together and cut by length


@dataclass(frozen=True)
class Asked:
    """A problem of the mixture.

    Args:
        prompt: The prompt of the policy.
        worked: The worked solution, which the end of sequence follows.
        task: The task that finds and checks an answer.
        answer: The right answer.
    """

    prompt: str
    worked: str
    task: str
    answer: str


@dataclass(frozen=True)
class Piece:
    """A part of a sequence, in whole tokens.

    Args:
        text: The text.
        written: Whether the model is to write the part.
        right: Whether the solution is right as far as each token of the part; None: not judged.
    """

    text: str
    written: bool = field(default=False, kw_only=True)
    right: bool | None = field(default=None, kw_only=True)


Example = tuple[Piece, ...]  # a sequence, behind the begin of sequence


@dataclass(frozen=True)
class Batch:
    """Sequences of similar length, padded at the end.

    Args:
        ids: The tokens, [rows, tokens].
        labels: The tokens that the model is to write, [rows, tokens]; `IGNORED` elsewhere.
        right: Whether the solution is right, 0 or 1, [rows, tokens]; below 0: not judged.
    """

    ids: torch.Tensor
    labels: torch.Tensor
    right: torch.Tensor


def solution_text(found: Sequence[object], answer: int) -> str:
    """Return steps, one a line, and the answer line."""
    return "".join(f"{step}\n" for step in found) + f"{ANSWER}{answer}\n"


def make_problem(seed: int, index: int, split: Split = "train", shares: NDArray[np.float64] = EVEN_PROBLEMS) -> Asked:
    """Return problem number `index` of the mixture.

    Args:
        seed: The seed of the mixture.
        index: The number of the problem.
        split: The split.
        shares: The share of each number of operations.
    """
    rng = generator(seed, 0, "mixture", split, index)
    chosen = rng.random()
    for (worded, digits), share in _KINDS.items():
        chosen -= share
        if chosen < 0:
            operations = 1 + int(rng.choice(MOST_OPERATIONS, p=shares))
            difficulty = Difficulty(operations=operations, digits=digits, worded=worded)
            drawn = draw(difficulty, split, seed, index)
            return Asked(f"{drawn.text}\n", solution_text(drawn.steps, drawn.answer), "pocket", str(drawn.answer))
    problem = countdown.draw(_COUNTDOWN_NUMBERS[rng.integers(len(_COUNTDOWN_NUMBERS))], split, seed, index)
    assert problem.solution is not None, "what is drawn has a solution"
    return Asked(f"{problem.text}\n", solution_text(problem.steps, problem.target), "countdown", text(problem.solution))


def worked_example(seed: int, index: int, split: Split = "train") -> Example:
    """Return problem number `index` of the mixture with its worked solution."""
    return add_solution(make_problem(seed, index, split, EVEN_TOKENS))


def add_solution(problem: Asked) -> Example:
    """Return a problem with its worked solution, and the end of sequence."""
    return Piece(problem.prompt), Piece(problem.worked, written=True, right=True), Piece(EOS, written=True)


class Batches:
    """Batches by number: a block of them is drawn, sorted by length and cut, so that little is padding.

    Args:
        tokenizer: The tokenizer.
        example: The function that makes example number `index`.
        tokens: The tokens of a batch, about.
        average: The tokens of an example, about.
        seed: The seed of the order.
    """

    def __init__(
        self, tokenizer: Any, example: Callable[[int], Example], *, tokens: int, average: int, seed: int
    ) -> None:
        self._tokenizer = tokenizer
        self._example = example
        self._rows = max(1, tokens // average) * _BLOCK
        self._seed = seed
        self._block = -1
        self._batches: list[Batch] = []

    def __call__(self, step: int) -> Batch:
        """Return batch number `step`."""
        block, place = divmod(step, _BLOCK)
        if block != self._block:
            self._block, self._batches = block, self._draw_block(block)
        return self._batches[place]

    def _draw_block(self, block: int) -> list[Batch]:
        examples = [self._example(block * self._rows + i) for i in range(self._rows)]
        rows = sorted(tokenize(self._tokenizer, examples), key=lambda row: row.shape[1])
        lengths = np.cumsum([row.shape[1] for row in rows])
        edges = [0, *np.searchsorted(lengths, np.linspace(0, lengths[-1], _BLOCK + 1)[1:-1]), len(rows)]
        batches = [pad_rows(rows[a:b], self._tokenizer.pad_token_id) for a, b in pairwise(edges)]
        order = generator(self._seed, 0, "order", block).permutation(_BLOCK)
        return [batches[i] for i in order]


def tokenize(tokenizer: Any, examples: Sequence[Example]) -> list[torch.Tensor]:
    """Return the ids, labels and rights of each example, [3, tokens]."""
    texts = [piece.text for example in examples for piece in example]
    ids = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    rows = []
    for example in examples:
        columns = [(tokenizer.bos_token_id, IGNORED, -1)]
        for piece in example:
            right = -1 if piece.right is None else int(piece.right)
            columns += [(token, token if piece.written else IGNORED, right) for token in next(ids)]
        rows.append(torch.tensor(columns).T)
    return rows


def pad_rows(rows: Sequence[torch.Tensor], pad: int, length: int | None = None) -> Batch:
    """Return rows of `tokenize` as a batch.

    Args:
        rows: The rows.
        pad: The padding token.
        length: The length of the batch's rows; None: that of the longest row.
    """
    shape = len(rows), max((row.shape[1] for row in rows), default=0) if length is None else length
    batch = Batch(torch.full(shape, pad), torch.full(shape, IGNORED), torch.full(shape, -1.0))
    for i, row in enumerate(rows):
        for part, values in zip((batch.ids, batch.labels, batch.right), row, strict=True):
            part[i, : row.shape[1]] = values
    return batch
