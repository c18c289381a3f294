"""The evaluation's command from end to end, on a small random pair that knows nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

pytest.importorskip("research.pocket", reason="research is no part of the wheel")

from research.pocket.evaluate import __main__ as command
from research.pocket.evaluate.drawing import Drawing, Plan
from research.pocket.evaluate.pair import load, pair_record
from research.pocket.evaluate.pools import Pool
from research.pocket.evaluate.problems import draw_sets
from research.pocket.evaluate.run import Sizes
from tests.support.runs import change_setup, make_run, solve_runs
from tts.backends.base import Sampling
from tts.budget.budget import Budget
from tts.errors import ConfigError
from tts.types import Solution


@pytest.fixture(scope="session")
def candidate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small random policy, process model and heads, laid out as the trainer does."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("numba")
    from safetensors.torch import save_file

    from research.pocket.train.tokenizer import build

    folder, tokenizer, random = tmp_path_factory.mktemp("pair"), build(), torch.Generator().manual_seed(0)
    shape = {
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
    }
    for name in ("policy", "process"):
        ids = {
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
        }
        config = transformers.LlamaConfig(
            vocab_size=len(tokenizer),
            head_dim=64,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            **shape,
            **ids,
        )
        model = transformers.LlamaForCausalLM(config)
        for weight in model.parameters():
            weight.data = torch.randn(weight.shape, generator=random) * 0.3
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    (folder / "heads").mkdir()
    for name in ("probe", "process"):
        save_file(
            {"weight": torch.randn(64, generator=random), "bias": torch.zeros(1)},
            folder / "heads" / f"{name}.safetensors",
        )
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    few = ["--problems", 1, "--samples", 2, "--fresh", 1, "--split", "validation", "--quick"]
    assert command.main([str(each) for each in (*few, *arguments)]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Sizes(
        problems=1,
        samples=2,
        deep=0,
        deep_samples=2,
        others=1,
        max_tokens=24,
    )
    monkeypatch.setattr("research.pocket.evaluate.run.QUICK", small)


def test_the_command_measures_a_candidate(candidate: Path, small: None, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--policy", candidate / "policy", "--process", candidate / "process")
    first, second = (json.loads(run(capsys, *options, "--json")) for _ in range(2))
    assert first == second
    assert set(first["tables"]) == {"accuracy", "accuracy_others", "final_answer", "drawn"}
    verifiers = [row["verifier"] for row in first["tables"]["final_answer"]["rows"]]
    assert verifiers == ["process model", "probe", "self-evaluation"]
    assert [row["pass_1"]["value"] for row in first["tables"]["accuracy"]["rows"]] == [0] * 10
    drawn = first["tables"]["drawn"]["rows"]
    assert [row["problems"] for row in drawn] == [10, 13]
    assert (first["split"], first["seed"], first["problems"]["seed"]) == ("validation", 0, 1)
    assert "| operations | problems | greedy | pass@1 |" in run(capsys, *options, "--markdown")
    assert "Accuracy by number of operations" in run(capsys, *options)


def test_what_a_candidate_lacks_is_left_out(
    candidate: Path, small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = json.loads(run(capsys, "--policy", candidate / "policy", "--json"))["tables"]
    probed = json.loads(run(capsys, "--policy", candidate / "policy", "--heads", candidate / "heads", "--json"))[
        "tables"
    ]
    for found, expected in ((alone, ["self-evaluation"]), (probed, ["probe", "self-evaluation"])):
        assert [row["verifier"] for row in found["final_answer"]["rows"]] == expected
    assert alone["accuracy"]["rows"][0]["pass_1"] == probed["accuracy"]["rows"][0]["pass_1"]
    assert (
        json.loads(run(capsys, "--policy", candidate / "policy", "--heads", tmp_path, "--json"))["tables"].keys()
        == alone.keys()
    )


def test_mistakes_are_told_before_anything_is_drawn(
    candidate: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, told in (
        (("--process", candidate), "without a policy"),
        (("--policy", tmp_path / "none"), "is no folder"),
        (
            ("--policy", candidate / "policy", "--process", candidate / "process", "--heads", tmp_path),
            "process.safetensors is missing",
        ),
        (("--policy", tmp_path), "could not be loaded"),
        (("--problems", 0), "problems is 0"),
        (("--samples", 0), "samples is 0"),
    ):
        assert told in run(capsys, *arguments, code=2)


def test_its_samples_are_those_of_a_search(candidate: Path) -> None:
    """The same stream, hence the same tokens: what is reported here is what a search with the seed meets."""
    backend = load(pair_record(candidate / "policy"))
    (found,) = draw_sets("validation", problems=1, others=0, seed=1).main[4:5]

    async def both() -> tuple[Pool, Solution]:
        try:
            (pool,) = await Drawing(backend=backend, seed=7, max_tokens=40).pools([(found, Plan(samples=3))])
            plan = "best_of_n(n=3) | majority"
            run = make_run(found.problem, Budget(samples=3), plan, backend, seed=7, task="pocket")
            run = change_setup(run, sampling=Sampling(temperature=0.8, max_tokens=40))
            (end,) = await solve_runs([run])
            return pool, end.solution
        finally:
            await backend.close()

    pool, solution = asyncio.run(both())
    texts = [candidate.trajectory.full_text for candidate in sorted(solution.candidates, key=lambda one: one.index)]
    assert len(set(texts)) == 3
    assert [attempt.text for attempt in pool.attempts] == texts


def test_sizes_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"deep_samples.*8,.*whole.*16"):
        Sizes(deep_samples=8)
    with pytest.raises(ConfigError, match=r"others is -1"):
        Sizes(others=-1)
