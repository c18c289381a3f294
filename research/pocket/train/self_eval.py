"""Stage "self-eval": the policy learns from its own texts to judge its solutions and to correct them.

The stage before has taught it solving, judging and correcting with made-up slips. Here its own slips come, from
several solutions of each of many problems that it was not trained on. Worked solutions of new problems stay part of
the mixture, so that it forgets nothing.

Self-evaluation: "Restart?" follows a solution, or a part of it cut at random. The answer is " no" if the solution
beats or ties another of its siblings, drawn at random, and " yes" otherwise. Here a solution is right or wrong, so
" yes" follows only a wrong solution with a right sibling.

Source: Manvi, Singh and Ermon 2024 (arXiv 2410.02725). Differs: right or wrong stands for the reward model that
compares pairs. One reading of a solution asks at several places at once (see `questions`). The sequences are the
same, at a fraction of the tokens.

Revision: up to four wrong attempts, then a right solution. The last attempt is the wrong one nearest to the solution
(difflib's ratio).

Source: Snell et al. 2024 (arXiv 2408.03314), section 6.1 and appendix. Differs: where no sample is right, the worked
solution stands in, so that hard problems are there too. Where no wrong attempt is drawn, and in one example of five of
the rest, the last attempt is right already, and is to be written again: at use nobody knows which attempts are wrong.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from research.pocket.train import slips
from research.pocket.train.examples import (
    EVEN_TOKENS,
    Asked,
    Batch,
    Batches,
    Example,
    Piece,
    add_solution,
    make_problem,
    pad_rows,
    tokenize,
    worked_example,
)
from research.pocket.train.loop import Recipe, train
from research.pocket.train.network import (
    Reader,
    fits_loss,
    load_reader,
    mean_loss,
    mixed_precision,
    right_loss,
    save_reader,
    written_loss,
)
from research.pocket.train.policy import MOST_ATTEMPTS, NOTICE
from research.pocket.train.sampling import Marker, Writer, make_in_chunks, weights_checksum
from research.pocket.train.tokenizer import EOS
from tts.randomness import generator
from tts.tasks.arithmetic.pocket import AGAIN, NO, RESTART, YES

SAMPLES = 8
TEMPERATURE = 0.8
_FIRST_INDEX = 10_000_000  # of problems, beyond those that the base was trained on
_PROBLEMS_PER_MINUTE = 1400
_QUESTIONS = 6  # asked of one solution
SLIPS = 1.0  # that are made up, of a solution, on average
_WORKED = 0.67  # share of worked solutions among what is practised
_TURNS = ("worked", "question", "revise", "worked", "question")  # what each step in turn is a batch of
_AVERAGE = {"worked": 55, "question": 90, "revise": 260}  # tokens of an example


@dataclass(frozen=True)
class Solved:
    """A problem, the solutions that the policy wrote, and which of them are right."""

    problem: Asked
    solutions: tuple[str, ...]
    right: tuple[bool, ...]


@dataclass(frozen=True)
class Questions:
    """Solutions with the question asked at several places of each.

    Args:
        ids: The tokens, [rows, tokens].
        positions: The positions of the tokens, [rows, tokens].
        mask: The attention mask, [rows, 1, tokens, tokens].
        at: The rows and the columns of the questions.
        wanted: The tokens of their answers.
        judged: The solutions alone, [rows, tokens].
    """

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    at: tuple[torch.Tensor, torch.Tensor]
    wanted: torch.Tensor
    judged: Batch


def run(out: Path, *, minutes: float, seed: int, device: str) -> dict[str, float]:
    """Draw samples from OUT/base, train on, and save the policy as OUT/policy.

    A quarter of the minutes is drawing.
    """
    recipe = Recipe(tokens=4096, minutes=minutes * 0.75, matrix_rate=0.002, rate=7e-4, decay=0.9)
    problems = max(64, round(minutes * 0.25 * _PROBLEMS_PER_MINUTE))
    solved = samples(out, problems, seed, device)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(out / "base")
    model = load_reader(out / "base", device)
    kept, unseen = solved[len(solved) // 16 :], solved[: len(solved) // 16]
    drawn = {
        "worked": Batches(
            tokenizer, partial(practice, seed + 1), tokens=recipe.tokens, average=_AVERAGE["worked"], seed=seed
        ),
        "revise": Batches(
            tokenizer, partial(revision, kept, seed), tokens=recipe.tokens, average=_AVERAGE["revise"], seed=seed
        ),
    }
    rows = recipe.tokens // (_AVERAGE["question"] + _QUESTIONS)

    def loss_of(step: int) -> torch.Tensor:
        turn, number = _TURNS[step % len(_TURNS)], step // len(_TURNS) * 2 + (step % len(_TURNS) > 2)
        if turn == "question":
            return question_loss(model, questions(tokenizer, kept, rows, seed, number))
        batch = drawn[turn](number if turn == "worked" else step // len(_TURNS))
        written, states = written_loss(model, batch)
        if turn == "revise":
            return written
        return written + NOTICE * (right_loss(model, states, batch) + fits_loss(model, states, batch))

    checked = [questions(tokenizer, unseen, rows, seed + 1, i) for i in range(4)]
    unseen_worked = Batches(
        tokenizer, partial(worked_example, seed, split="validation"), tokens=4096, average=_AVERAGE["worked"], seed=seed
    )
    checked_worked = [unseen_worked(i) for i in range(4)]

    def held_out_loss() -> float:
        model.eval()
        with torch.no_grad():
            return mean_loss(model, checked_worked) + sum(question_loss(model, one).item() for one in checked) / len(
                checked
            )

    identity = {"stage": "self-eval", "seed": seed, "steps": recipe.steps, "device": torch.device(device).type}
    identity |= {"policy": weights_checksum(out / "base"), "problems": problems}
    found = train(model, loss_of, recipe, out / "stages" / "self_eval", held_out_loss=held_out_loss, identity=identity)
    save_reader(model, tokenizer, out / "policy")
    return found


def practice(seed: int, index: int) -> Example:
    """Return example number `index`: a worked solution, or one of three with slips that are made up."""
    problem, rng = make_problem(seed, index, shares=EVEN_TOKENS), generator(seed, 0, "practice", index)
    if problem.task != "pocket" or rng.random() < _WORKED:
        return add_solution(problem)
    return Piece(problem.prompt), *slips.pieces(slips.careless_lines(problem, rng, SLIPS))


def samples(out: Path, problems: int, seed: int, device: str) -> list[Solved]:
    """Return the base policy's solutions of problems of the train split.

    They are drawn once and kept in OUT/stages/self_eval/samples.jsonl.
    """
    marker, identity = (
        Marker(),
        {"seed": seed, "samples": SAMPLES, "temperature": TEMPERATURE, "policy": weights_checksum(out / "base")},
    )
    with Writer(out / "base", temperature=TEMPERATURE, seed=seed, device=device) as writer:

        def make(numbers: range) -> list[Any]:
            given = [make_problem(seed, _FIRST_INDEX + i) for i in numbers]
            texts = writer.continue_prompts([one.prompt for one in given], SAMPLES)
            return [
                asdict(Solved(one, tuple(drawn), tuple(marker.is_right(one, text) for text in drawn)))
                for one, drawn in zip(given, texts, strict=True)
            ]

        found = make_in_chunks(out / "stages" / "self_eval" / "samples.jsonl", problems, make, identity)
    return [Solved(Asked(**one["problem"]), tuple(one["solutions"]), tuple(one["right"])) for one in found]


def questions(tokenizer: Any, solved: Sequence[Solved], rows: int, seed: int, number: int) -> Questions:
    """Return batch number `number`: one solution of each of `rows` problems, with questions.

    Each solution is asked about as a whole and at random places. Each question sees only itself and the solution up to
    its
    place, and stands at the position after that. So it sees exactly what the policy sees when the solution was cut
    there.
    """
    rng = generator(seed, 0, "questions", number)
    chosen = [solved[i] for i in rng.integers(len(solved), size=rows)]
    mine = [int(rng.integers(len(one.solutions))) for one in chosen]
    drawn = tokenize(
        tokenizer, [slips.solution_pieces(one.problem, one.solutions[i]) for one, i in zip(chosen, mine, strict=True)]
    )
    prompts = [len(ids) for ids in tokenizer([one.problem.prompt for one in chosen])["input_ids"]]
    longest = max(row.shape[1] for row in drawn) + _QUESTIONS
    batch = pad_rows(drawn, tokenizer.pad_token_id, longest)
    asking, yes, no = (tokenizer.encode(word, add_special_tokens=False)[0] for word in (RESTART, YES, NO))
    ids = batch.ids.clone()
    positions = torch.arange(longest).repeat(rows, 1)
    visible = torch.ones(longest, longest, dtype=torch.bool).tril().repeat(rows, 1, 1)
    answers = torch.empty(rows, _QUESTIONS, dtype=torch.long)
    columns = torch.empty(rows, _QUESTIONS, dtype=torch.long)
    for row, (one, i, prompt) in enumerate(zip(chosen, mine, prompts, strict=True)):
        end = drawn[row].shape[1]
        places = np.sort(rng.integers(prompt, end + 1, size=_QUESTIONS))
        places[-1] = end
        columns[row] = torch.arange(end, end + _QUESTIONS)
        ids[row, end : end + _QUESTIONS] = asking
        positions[row, end : end + _QUESTIONS] = torch.from_numpy(places)
        visible[row, end:] = False
        for column, place in zip(range(end, end + _QUESTIONS), places.tolist(), strict=True):
            visible[row, column, :place] = True
            visible[row, column, column] = True
        visible[row, end + _QUESTIONS :, 0] = True  # padding must see something
        siblings = [j for j in range(len(one.right)) if j != i]
        rivals = [one.right[siblings[k]] for k in rng.integers(len(siblings), size=_QUESTIONS)]
        answers[row] = torch.tensor([yes if rival and not one.right[i] else no for rival in rivals])
    mask = torch.zeros(visible.shape).masked_fill_(~visible, float("-inf"))[:, None]
    at = torch.arange(rows).repeat_interleave(_QUESTIONS), columns.flatten()
    return Questions(ids, positions, mask, at, answers.flatten(), batch)


def question_loss(model: Reader, batch: Questions) -> torch.Tensor:
    """Return the mean loss of the questions' answers, in nats, and a part of the loss of noticing slips."""
    device = model.trunk.device
    with mixed_precision(device):
        exact = not torch.is_autocast_enabled(device.type)
        states = model.trunk.model(
            input_ids=batch.ids.to(device),
            position_ids=batch.positions.to(device),
            attention_mask=batch.mask.to(device, torch.float32 if exact else torch.bfloat16),
            use_cache=False,
        ).last_hidden_state
        logits = model.trunk.lm_head(states[batch.at[0].to(device), batch.at[1].to(device)])
    noticed = right_loss(model, states, batch.judged) + fits_loss(model, states, batch.judged)
    return torch.nn.functional.cross_entropy(logits.float(), batch.wanted.to(device)) + NOTICE * noticed


def revision(solved: Sequence[Solved], seed: int, index: int) -> Example:
    """Return example number `index`: earlier attempts in the prompt, a right solution to be written."""
    rng = generator(seed, 0, "revision", index)
    one = solved[int(rng.integers(len(solved)))]
    right = [text for text, good in zip(one.solutions, one.right, strict=True) if good] or [one.problem.worked]
    wrong = [text for text, good in zip(one.solutions, one.right, strict=True) if not good and text.endswith("\n")]
    target = right[int(rng.integers(len(right)))]
    attempts = [wrong[i] for i in rng.permutation(len(wrong))[: rng.integers(MOST_ATTEMPTS + 1)]]
    attempts.sort(key=lambda text: difflib.SequenceMatcher(None, text, target, autojunk=False).ratio())
    if not attempts or rng.random() < 0.2:
        attempts = [*attempts[-MOST_ATTEMPTS + 1 :], target]
    earlier = "".join(f"{attempt}{AGAIN}\n" for attempt in attempts)
    return Piece(one.problem.prompt + earlier), Piece(target, written=True), Piece(EOS, written=True)
