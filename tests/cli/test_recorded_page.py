"""The commands and the code of docs/how-to/recorded.md run as they stand there."""

from __future__ import annotations

import json
import re
import shlex
import zipfile
from pathlib import Path

import pytest

from tests.experiments.trials import diff, trajectory, trial

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "recorded.md"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the page names, small."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"problem": p, "prompt": "2 + 2?", "reference": "4", "text": [f"#### {4 + (i * p) % 3}" for i in range(8)]}
        for p in range(3)
    ]
    Path("samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = {
        "doc_id": 0,
        "doc": {},
        "target": "4",
        "arguments": {},
        "resps": [["#### 4"]],
        "filtered_resps": ["4"],
        "filter": "strict-match",
    }
    Path("samples_gsm8k_2026-01-02T03-04-05.678.jsonl").write_text(
        json.dumps({**line, "metrics": ["exact_match"], "exact_match": 1.0})
    )
    programs = [
        "def f(x):\n    return x + 1",
        "def f(x):\n    return 1 + x",
        "def f(x):\n    return x",
        "def f(x):\n    return 2",
    ]
    tested = {
        "problem": "p",
        "tests": "assert f(1) == 2\nassert f(5) == 6",
        "written_tests": ["assert f(1) == 2", "assert f(2) == 3"],
    }
    Path("programs.jsonl").write_text(json.dumps({**tested, "text": programs}))
    trial(Path("jobs/2026-01-02__03-04-05"), "dates__a")
    trajectory(Path("runs/dates/dates.traj.json"), diff("new"), instance_id="dates")
    Path("logs").mkdir()
    sample = {"id": 1, "epoch": 1, "input": "2 + 2?", "target": "4", "scores": {"match": {"value": "C"}}}
    output = {"choices": [{"message": {"content": "4"}, "stop_reason": "stop"}], "completion": "4"}
    with zipfile.ZipFile("logs/sums.eval", "w") as archive:
        archive.writestr("header.json", json.dumps({"version": 2, "eval": {"task": "sums", "model": "m"}}))
        archive.writestr("samples/1_epoch_1.json", json.dumps({**sample, "output": output}))


def read_page() -> str:
    if not PAGE.is_file():
        pytest.skip("the documents are no part of the wheel")
    return PAGE.read_text(encoding="utf-8")


def test_every_command_of_the_page_runs(tts, files):
    from tts_addons.code.sandbox import why_not

    commands = re.findall(r"^(tts .+)$", read_page(), re.MULTILINE)
    assert len(commands) == 11
    if why_not():
        commands = [command for command in commands if "programs" not in command]
    for command in commands:
        done = tts(*shlex.split(command)[1:])
        assert done.exit_code == 0, f"{command}: {done.output}"


def test_the_code_of_the_page_runs(files, capsys):
    (code,) = re.findall(r"```python\n(.+?)```", read_page(), re.DOTALL)
    exec(compile(code, "recorded.md", "exec"), {})
    out = capsys.readouterr().out
    assert "3 samples of 1 problems, 3 each" in out
    assert "best_of_n | best" in out
