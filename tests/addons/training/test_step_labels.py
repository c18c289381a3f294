"""Labels of steps by rollouts, on a language whose every probability is known."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tts
from tests.backends.openai.server import ToyServer, serving
from tests.support.repeats import repeats
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.errors import ConfigError
from tts_addons.training.step_labels import LabelledPath

SLIPS = ToyLanguage(accuracy=0.6, slips=((1, 1.0),))  # no slip makes up for another


def solver(language: ToyLanguage = SLIPS) -> tts.Solver:
    return tts.Solver(ToyBackend(language), task="arithmetic", sampling=tts.Sampling(temperature=1.0))


def found(made: tts.Solver, n: int = 6, seed: int = 0, text: str = "3 + 4 - 2") -> tts.Solution:
    problem = tts.Problem(text, answer=str(eval(text)), id=f"{text} {seed}")
    return made.solve(problem, tts.Budget(samples=n), strategy=f"best_of_n(n={n})", seed=seed)


def right_lines(path: LabelledPath) -> int:
    """Return how many first lines are right."""
    lines = [line.strip() for line in path.steps if "=" in line]
    verdicts = [eval(left) == int(right) for left, right in (line.split("=") for line in lines)]
    return next((i for i, right in enumerate(verdicts) if not right), len(path.steps))


@pytest.mark.slow
@repeats(60, 600)
def test_soft_labels_are_the_chance_to_end_right(runs: int) -> None:
    shares = list[float]()
    with solver() as made:
        for seed in range(runs):
            labels = tts.label_steps(found(made, 1, seed), tts.Budget(samples=100), solver=made, k=4, seed=seed)
            (path,) = labels.paths
            if right_lines(path) >= 1:
                assert path.soft[0] is not None
                shares.append(path.soft[0])
            else:
                assert path.soft[0] == 0.0
            assert path.hard == tuple(share is not None and share > 0 for share in path.soft)
    # one step is left, which is right with probability .6
    assert np.mean(shares) == pytest.approx(0.6, abs=4 * math.sqrt(0.24 / 4 / len(shares)))


@pytest.mark.slow
def test_a_binary_search_finds_the_first_error_with_fewer_rollouts() -> None:
    text, errors = "3 + 4 - 2 + 9 - 1 + 5 - 3 + 8 - 2", 0
    with solver(ToyLanguage(accuracy=0.85, slips=((1, 1.0),))) as made:
        for seed in range(6):
            solution = found(made, 4, seed, text)
            many = tts.Budget(samples=5000)
            searched = tts.label_steps(solution, many, solver=made, k=40, method="first_error", seed=1)
            each = tts.label_steps(solution, many, solver=made, k=40, seed=1)
            assert searched.rollouts < each.rollouts
            for path, same in zip(searched.paths, each.paths, strict=True):
                first = right_lines(path)
                errors += not path.right
                assert path.hard == same.hard == tuple(i < first for i in range(len(path.steps)))
    assert errors > 5


def test_shared_prefixes_are_rolled_out_once() -> None:
    with solver() as made:
        solution = found(made, 8)
        labels = tts.label_steps(solution, tts.Budget(samples=1000), solver=made, k=3)
    prefixes = {path.steps[:count] for path in labels.paths for count in range(1, len(path.steps))}
    assert labels.rollouts == 3 * len(prefixes) < 3 * sum(len(path.steps) - 1 for path in labels.paths)


def test_a_budget_is_kept_and_what_it_did_not_reach_is_unknown() -> None:
    with solver() as made:
        solution = found(made, 6)
        for tokens in (40, 80, 160):
            labels = tts.label_steps(solution, tokens, solver=made, k=4)
            assert labels.usage.tokens <= tokens
            assert labels.stopped_by == (
                "budget: tokens" if any(None in path.soft for path in labels.paths) else "done"
            )
            assert tokens > 40 or None in labels.paths[0].soft
            for path in labels.paths:
                assert path.soft[-1] == float(path.right)
                assert all((soft is None) == (hard is None) for soft, hard in zip(path.soft, path.hard, strict=True))
        whole = tts.label_steps(solution, 5000, solver=made, k=4)
        again = tts.label_steps(solution, 5000, solver=made, k=4)
    assert whole.paths == again.paths
    assert None not in {share for path in whole.paths for share in path.soft}


def test_labels_are_rows_for_a_trainer_of_process_models(tmp_path: Path) -> None:
    with solver() as made:
        labels = tts.label_steps(found(made, 6), 5000, solver=made, k=4)
    written = labels.export(tmp_path / "rows.jsonl")
    rows: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert written.rows == len(rows) == len(labels.paths)
    for row, path in zip(rows, labels.paths, strict=True):
        assert row["completions"] == [step.rstrip() for step in path.steps]
        assert row["labels"] == list(path.hard)
        assert row["soft_labels"] == list(path.soft)
    assert f"| rollouts | {labels.rollouts} |" in (tmp_path / "rows.md").read_text()


def test_the_labels_of_several_problems_go_into_one_file(tmp_path: Path) -> None:
    with solver() as made:
        labels = [tts.label_steps(found(made, 2, text=text), 500, solver=made, k=2) for text in ("3 + 4", "9 - 5 + 1")]
    assert labels[0].export(tmp_path / "rows.jsonl", *labels[1:]).searches == 2
    prompts = [json.loads(line)["prompt"] for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert prompts == ["3 + 4"] * 2 + ["9 - 5 + 1"] * 2
    assert f"| rollouts | {sum(one.rollouts for one in labels)} |" in (tmp_path / "rows.md").read_text()


def test_a_gap_of_a_binary_search_has_its_hard_label_in_the_file(tmp_path: Path) -> None:
    with solver() as made:
        labels = tts.label_steps(found(made, 6), 5000, solver=made, k=4, method="first_error")
    labels.export(tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert None in {soft for path in labels.paths for soft in path.soft}
    for row, path in zip(rows, labels.paths, strict=True):
        filled = [hard if soft is None else soft for soft, hard in zip(path.soft, path.hard, strict=True)]
        assert (row["soft_labels"], row["labels"]) == (filled, list(path.hard))
    assert "or 1 or 0 as the hard label where" in (tmp_path / "rows.md").read_text()


def test_what_cannot_be_labelled_is_refused_before_the_spend() -> None:
    with solver() as made:
        solution = found(made, 2)
        for given, told in (({"k": 0}, "k is 0, but must be"), ({"method": "both"}, "method is 'both', but must be")):
            with pytest.raises(ConfigError, match=told):
                tts.label_steps(solution, 400, solver=made, **given)
        with pytest.raises(ConfigError, match=r"no path .*\(stopped by: budget: tokens\).*larger budget"):
            tts.label_steps(solution, 10, solver=made).export("none.jsonl")
        unknown = made.solve("3 + 4 - 2", 400, strategy="single")
        with pytest.raises(ConfigError, match=r"rollouts.*judged"):
            tts.label_steps(unknown, 400, solver=made)
    with (
        serving(ToyServer(completions=False, continues=False)) as url,
        tts.Solver("toy", url=url) as chat,
        pytest.raises(tts.CapabilityError, match="label_steps needs a model that continues a given text, but"),
    ):
        tts.label_steps(solution, 400, solver=chat)
