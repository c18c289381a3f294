"""A small process model from exported rows, measured beside the shipped one.

    python -m research.pocket.exported FILE --out FOLDER [--minutes 1] [--seed 0] [--problems 100] [--samples 4]

FILE has rows of `tts export --form trl-prm`. The model begins as `pocket` with a head of zeros, and learns the soft
labels at the ends of steps by cross-entropy. The prompts of one row in ten are held out. The model ends as it was
where the held-out loss was lowest, and is written to FOLDER. Both models then score the steps of samples of the
validation split. An exact verdict says whether a line is right and the target can still be reached. The last line of a
sample is left out. The command prints the AUC of each model with its 95 % interval over problems. A minute is a fixed
number of steps, about a minute of two free cores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

import tts
from research.pocket.train.loop import Recipe, train
from research.pocket.train.network import Reader, load, mixed_precision, save_reader
from research.pocket.train.reach import judge_prefixes
from tts.errors import ConfigError
from tts.experiments.datasets import countdown
from tts.models import registry
from tts.randomness import generator
from tts.statistics.discrimination import clustered_auc
from tts.tasks.arithmetic.countdown import read
from tts_addons.training.records import search_rows

ROWS = 96  # of a batch
HELD_OUT = 10  # one prompt in so many


@dataclass(frozen=True)
class Labelled:
    """A text in steps, with the soft label of each step."""

    prompt: str
    steps: tuple[str, ...]
    labels: tuple[float, ...]


def read_rows(path: Path) -> list[Labelled]:
    """Return the rows of a file of the form trl-prm.

    Raises:
        ConfigError: The file lacks a column of the form, or has no row.
    """
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    wanted = ("prompt", "completions", "soft_labels")
    if not lines or any(name not in line for line in lines for name in wanted):
        raise ConfigError(
            f"{path} must have rows with {', '.join(wanted)}, but has not",
            hint="write it by tts export --form trl-prm --out FILE.jsonl",
        )
    return [Labelled(line["prompt"], tuple(line["completions"]), tuple(line["soft_labels"])) for line in lines]


def batch_of(tokenizer: Any, rows: Sequence[Labelled]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the ids of rows [rows, tokens], the places where steps end, and the labels there.

    A place is (row, column).
    """
    ids, places, labels = list[list[int]](), list[tuple[int, int]](), list[float]()
    for number, row in enumerate(rows):
        tokens = list(tokenizer(row.prompt)["input_ids"])
        for step, label in zip(row.steps, row.labels, strict=True):
            tokens += tokenizer.encode(step.rstrip("\n") + "\n", add_special_tokens=False)
            places.append((number, len(tokens) - 1))
            labels.append(label)
        ids.append(tokens)
    width = max(map(len, ids))
    padded = torch.tensor([one + [tokenizer.pad_token_id] * (width - len(one)) for one in ids])
    return padded, torch.tensor(places), torch.tensor(labels)


def logits_of(model: Reader, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the log-odds at some places."""
    with mixed_precision(model.trunk.device):
        states = model.trunk.model(input_ids=ids, use_cache=False).last_hidden_state
    return model.head(states[places[:, 0], places[:, 1]])[:, 0].float()


def loss_of(model: Reader, tokenizer: Any, rows: Sequence[Labelled]) -> torch.Tensor:
    """Return the cross-entropy of the soft labels of rows."""
    ids, places, labels = batch_of(tokenizer, rows)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits_of(model, ids, places), labels)


def fit(path: Path, out: Path, minutes: float, seed: int) -> tuple[Reader, Any]:
    """Train a process model on a file, write it to a folder, and return it with its tokenizer."""
    source = registry.locate(registry.resolve("pocket"))
    assert source is not None, "pocket is in the package"
    tokenizer, rows = PreTrainedTokenizerFast.from_pretrained(source), read_rows(path)
    model, prompts = Reader(load(source)), sorted({row.prompt for row in rows})
    held = set(prompts[::HELD_OUT])
    held_out, training = [row for row in rows if row.prompt in held], [row for row in rows if row.prompt not in held]
    if not training:
        raise ConfigError(
            f"{path} has the prompt {prompts[0]!r} alone, but training holds one out", hint="export more problems"
        )

    def drawn_loss(step: int) -> torch.Tensor:
        places = generator(seed, 0, "exported", step).integers(len(training), size=ROWS)
        return loss_of(model, tokenizer, [training[place] for place in places])

    @torch.no_grad()
    def held_out_loss() -> float:
        model.eval()
        return float(
            np.mean([float(loss_of(model, tokenizer, held_out[i : i + ROWS])) for i in range(0, len(held_out), ROWS)])
        )

    recipe = Recipe(tokens=4096, minutes=minutes, matrix_rate=0.002, rate=5e-4, decay=0.9)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    identity = {"stage": "exported", "seed": seed, "steps": recipe.steps, "rows": digest}
    train(model, drawn_loss, recipe, out / "stages", held_out_loss=held_out_loss, identity=identity, keep_best=True)
    save_reader(model, tokenizer, out)
    return model.eval(), tokenizer


@torch.no_grad()
def measure(model: Reader, tokenizer: Any, problems: int, samples: int) -> Iterator[str]:
    """Yield the rows of both models: how well each tells right steps from wrong ones."""
    problem_list = countdown.load(limit=problems, split="validation", numbers=(3, 4))
    ours, shipped, truth, clusters = list[float](), list[float](), list[bool](), list[int]()
    with tts.Solver("pocket", task="countdown", temperature=1.0) as solver:
        task = solver.prepare(problem_list[0], 100, strategy="single").setup.task
        for number, solution in enumerate(
            solver.solve_many(problem_list, each=tts.Budget(samples=samples), strategy="best_of_n | weighted")
        ):
            prompt, parsed = task.prompt(problem_list[number]), read(problem_list[number].text)
            assert parsed is not None
            assert solution.trace is not None
            for sample in {one.steps: one for one in search_rows(solution.trace, task).samples if one.values}.values():
                if len(sample.steps) < 2:
                    continue
                row = Labelled(str(prompt), sample.steps, sample.values)
                ids, places, _ = batch_of(tokenizer, [row])
                ours += logits_of(model, ids, places)[:-1].tolist()
                shipped += sample.values[:-1]
                truth += judge_prefixes(parsed, [step.strip() for step in sample.steps])[:-1]
                clusters += [number] * (len(sample.steps) - 1)
    yield "| process model | steps | right | AUC |"
    yield "| :-- | --: | --: | :-- |"
    for name, scores in (("from the exported file", ours), ("shipped with the package", shipped)):
        auc = clustered_auc(scores, truth, clusters, rng=np.random.default_rng(0))
        yield f"| {name} | {len(truth):,} | {np.mean(truth):.2f} | {auc.value:.3f} [{auc.low:.3f}, {auc.high:.3f}] |"


def main() -> None:
    """Train, and print the AUC of both models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", type=int, default=100, help="of the measurement")
    parser.add_argument("--samples", type=int, default=4, help="of each of them")
    options = parser.parse_args()
    try:
        model, tokenizer = fit(options.file, options.out, options.minutes, options.seed)
        for line in measure(model, tokenizer, options.problems, options.samples):
            print(line)
    except ConfigError as failure:
        raise SystemExit(str(failure)) from None


if __name__ == "__main__":
    main()
