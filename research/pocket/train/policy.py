"""Stage "policy": a Llama learns to write worked solutions, and to notice and correct slips in them.

All three are learned together from the beginning, with slips that are made up (slips.py). Learned later, after a
finished policy, they are learned badly or cost solutions (measured). A linear head on the hidden states says of every
token whether the solution is still right. The process model begins with this head.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from research.pocket.train.examples import (
    EVEN_TOKENS,
    Batches,
    Example,
    Piece,
    add_solution,
    make_problem,
    worked_example,
)
from research.pocket.train.loop import Recipe, train
from research.pocket.train.network import Reader, mean_loss, new_policy, right_loss, save_reader, written_loss
from research.pocket.train.slips import careless_lines, pieces
from research.pocket.train.tokenizer import EOS, build
from tts.randomness import generator
from tts.tasks.arithmetic.pocket import AGAIN, NO, RESTART, YES

NOTICE = 0.3  # weight of the loss of the head
MOST_ATTEMPTS = 4
_AVERAGE = 75  # tokens of an example
_QUESTION, _REVISION = 0.38, 0.12  # shares of expressions and stories; the others, and countdowns, are worked solutions
_SLIPS = {"question": 1.0, "revision": 1.5}  # of one solution, on average


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Train a policy and save it, with its head, as OUT/base.

    Returns:
        The last losses and the seconds of the run.
    """
    recipe = Recipe(tokens=4096, minutes=minutes, matrix_rate=0.006, rate=2e-3, warmup=0.03, fall=2 / 3)
    tokenizer = build()
    model = Reader(new_policy(tokenizer, seed, device))
    batches = Batches(tokenizer, partial(mixed_example, seed), tokens=recipe.tokens, average=_AVERAGE, seed=seed)
    unseen = Batches(
        tokenizer, partial(worked_example, seed, split="validation"), tokens=4096, average=_AVERAGE, seed=seed
    )
    checked = [unseen(i) for i in range(4)]

    def loss_of(step: int) -> torch.Tensor:
        batch = batches(step)
        written, states = written_loss(model, batch)
        return written + NOTICE * right_loss(model, states, batch)

    result = train(
        model,
        loss_of,
        recipe,
        out / "stages" / "policy",
        held_out_loss=lambda: mean_loss(model, checked),
        identity={
            "stage": "policy",
            "seed": seed,
            "steps": recipe.steps,
            "tokens": recipe.tokens,
            "device": torch.device(device).type,
        },
    )
    save_reader(model, tokenizer, out / "base")
    return result


def mixed_example(seed: int, index: int) -> Example:
    """Return example number `index` of the policy's mixture.

    It is a worked solution, a careless one with a question after it, or careless attempts and a worked one.
    """
    problem = make_problem(seed, index, shares=EVEN_TOKENS)
    rng = generator(seed, 0, "slips", index)
    chosen = rng.random()
    if problem.task != "pocket" or chosen >= _QUESTION + _REVISION:
        return add_solution(problem)
    if chosen < _QUESTION:
        lines = careless_lines(problem, rng, _SLIPS["question"])
        if rng.random() < 0.5:
            lines = lines[: 1 + int(rng.integers(len(lines)))]
        better = any(line.written != line.wanted for line in lines)
        return Piece(problem.prompt), *pieces(lines), Piece(RESTART), Piece(YES if better else NO, written=True)
    attempts: list[Piece] = []
    for _ in range(1 + int(rng.integers(MOST_ATTEMPTS))):
        attempts += [*pieces(careless_lines(problem, rng, _SLIPS["revision"])), Piece(f"{AGAIN}\n")]
    return Piece(problem.prompt), *attempts, Piece(problem.worked, written=True, right=True), Piece(EOS, written=True)
