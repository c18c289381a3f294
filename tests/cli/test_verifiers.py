from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.verifiers.reward.published import PROBLEM, STEPS, TOKENIZERS
from tts.verifiers.reward import record as reward_record
from tts.verifiers.reward.renderer import SolutionRenderer

SOLUTION = "\n\n".join(STEPS)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    TOKENIZERS["math-shepherd"]().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "mistral"}')
    return str(tmp_path / "model")


@pytest.mark.parametrize("name", ["math-shepherd", "rlhflow-mistral", "qwen2.5-math-prm-7b", "skywork-o1-prm-1.5b"])
def test_check_prints_template_every_token_and_the_positions_read(tts, tmp_path: Path, monkeypatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    tokenizer = TOKENIZERS[name]()
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    result = tts("verifiers", "check", name, "--weights", str(tmp_path), "--problem", PROBLEM, "--text", SOLUTION)
    assert result.exit_code == 0, result.stderr
    record = reward_record.load(name)
    solution = SolutionRenderer(record, tokenizer).render(PROBLEM, STEPS)
    lines = result.stdout.splitlines()
    shown = [line for line in lines if line.startswith(("problem:", "steps:", "        "))]
    tokens = [
        token
        for line in shown
        for token in line.partition(":")[2 if ":" in line[:8] else 0].partition(" <- ")[0].split()
    ]
    assert tokens == tokenizer.convert_ids_to_tokens(list(solution.ids))
    assert [line.partition(" <- ")[2] for line in shown if " <- " in line] == [
        f"step {i + 1}, position {at}" for i, at in enumerate(solution.at)
    ]
    assert f"{len(solution.ids)} tokens, {solution.prompt} of them the problem's" in result.stdout


@pytest.mark.slow
def test_check_says_why_a_step_is_not_read(tts, folder: str, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    result = tts("verifiers", "check", "math-shepherd", "--weights", folder, "--text", "one\n\ntwo ки\n\nthree")
    assert result.exit_code == 0
    assert "its text holds 'ки'" in result.stdout
    assert "comes after a step that is not shown" in result.stdout
    nothing = tts("verifiers", "check", "math-shepherd", "--weights", folder, "--text", "ки")
    assert "nothing is shown to the model" in nothing.stdout


def test_check_reads_a_record_of_the_users_own_and_texts_from_files(tts, folder: str, tmp_path: Path) -> None:
    record = Path(reward_record.__file__).parent / "records" / "math-shepherd.yaml"
    own, solution = tmp_path / "own.yaml", tmp_path / "solution.txt"
    own.write_text(record.read_text(encoding="utf-8").replace("name: math-shepherd", "name: own"), encoding="utf-8")
    solution.write_text(SOLUTION + "\n")
    result = tts("verifiers", "check", str(own), "--weights", folder, "--text", f"@{solution}")
    assert result.exit_code == 0
    assert "own" in result.stdout
    assert "<- step 3" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["math-shephard"], "reward model is 'math-shephard', but no reward model has that name"),
        (["qwen2.5-math-prm-7b"], "but the tokenizer has no chat template"),
        (["math-shepherd", "--weights", "/nowhere/at/all"], "there is no such folder"),
        (["math-shepherd", "--task", "mathh"], "but no task has that name"),
    ],
)
def test_what_does_not_fit_is_one_line_and_a_hint(tts, folder: str, arguments: list[str], error: str) -> None:
    result = tts(
        "verifiers",
        "check",
        *(["--weights", folder] if "--weights" not in arguments else []),
        *arguments,
        "--text",
        "x",
    )
    assert result.exit_code == 2
    assert error in result.stderr.splitlines()[0]
    assert result.stderr.splitlines()[1].startswith("hint: ")
    assert result.stdout == ""
