"""Coding agents, unchanged, call a scripted model within the leases of their rows.

`TTS_HARNESSES_DIR` names the folder into which `make test-harnesses` installs them.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("jsonschema", reason="the extra serve is not installed")
pytest.importorskip("yaml", reason="the extra serve is not installed")

import tts
from tests.addons.agents.agents import make_repository, plant
from tests.addons.agents.models import Scripted, check_ledger
from tts_addons.gateway.access import Keys

PROGRAMS = {"mini-swe-agent": "mini", "aider": "aider", "claude-code": "claude", "codex": "codex"}
TESTS = f"tests(command='{sys.executable} -B -c \"from add import add; assert add(2, 2) == 4\"')"
MARK = "I change it."
MEND, SPOIL, GO_ON = "sed -i s/-/+/ add.py", "sed -i s/-/*2+/ add.py", "echo 1 >> more"
PLANTED = "planted"
_TOOLS = {"mini-swe-agent": ("bash", "command"), "claude-code": ("Bash", "command"), "codex": ("exec_command", "cmd")}


@pytest.fixture(params=PROGRAMS)
def harness(request, monkeypatch) -> str:
    """The name of a harness whose program is on PATH."""
    folder = os.environ.get("TTS_HARNESSES_DIR")
    if folder is None:
        pytest.skip("TTS_HARNESSES_DIR names no folder with coding agents")
    places = [Path(folder) / request.param / "bin", Path(folder) / "node" / "node_modules" / ".bin"]
    if not any((place / PROGRAMS[request.param]).exists() for place in places):
        pytest.skip(f"{request.param} is not installed in TTS_HARNESSES_DIR")
    monkeypatch.setenv("PATH", os.pathsep.join([*map(str, places), os.environ["PATH"]]))
    return request.param


@pytest.fixture
def repo(tmp_path):
    return make_repository(tmp_path / "repo")


def change(harness: str, command: str) -> str:
    """Return what the model writes to have a command run; for the one that runs none, the file after it."""
    if harness in _TOOLS:
        name, argument = _TOOLS[harness]
        return f"{MARK}\n<tool_call>\n{json.dumps({'name': name, 'arguments': {argument: command}})}\n</tool_call>"
    sign = {MEND: "+", SPOIL: "*2+"}[command]
    return f"{MARK}\n\nadd.py\n```\ndef add(a, b):\n    return a {sign} b\n```\n"


def script(harness: str, command: str) -> Scripted:
    """Return a model that makes a change in its first call, and ends in the next."""
    end = "The sum is changed."
    if harness == "mini-swe-agent":
        end = change(harness, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
    return Scripted(lambda prompt: end if MARK in prompt else change(harness, command))


def run_away(harness: str) -> Scripted:
    """Return a model that never ends; of the agent that calls it once, it writes more than any lease pays."""
    endless = "word " * 5000
    return Scripted(lambda _: change(harness, GO_ON) if harness in _TOOLS else endless)


def solve(harness: str, repo: Path, model: Scripted, account: tts.Account) -> tts.Solution:
    with tts.Workspace(repo, agent=harness, model=model) as workspace:
        return tts.solve(
            "Fix the sum in add.py", account, backend=workspace, verifier=TESTS, strategy="best_of_n(n=1) | best"
        )


@pytest.mark.slow
@pytest.mark.parametrize(("command", "score"), [(MEND, 1.0), (SPOIL, 0.0)])
def test_it_changes_a_file_and_the_ledger_is_what_the_model_counts(harness, repo, command, score):
    model, account = script(harness, command), tts.Account(tts.Budget(samples=1, usd=10))
    found = solve(harness, repo, model, account)
    (candidate,) = found.candidates
    assert candidate.trajectory.status == "finished", candidate.trajectory.full_text
    assert candidate.scores["main"] == score
    assert [line for line in str(found.answer).splitlines() if line.startswith("+++ ")] == ["+++ b/add.py"]
    assert 1 <= len(model.calls) <= 4
    check_ledger(found, model)


@pytest.mark.slow
def test_a_runaway_is_stopped_by_its_lease_within_one_call(harness, repo):
    model, account = run_away(harness), tts.Account(tts.Budget(samples=1, generated_tokens=40))
    found = solve(harness, repo, model, account)
    (candidate,) = found.candidates
    assert candidate.trajectory.status == "truncated", candidate.trajectory.full_text
    assert account.spent["generated_tokens"] == 40 == model.counters.generated_tokens
    check_ledger(found, model)
    if harness in _TOOLS:
        assert "+1" in str(found.answer).splitlines()


@pytest.mark.slow
def test_planted_keys_are_used_by_no_call(harness, repo, tmp_path, monkeypatch):
    keys = "OPENAI_API_KEY ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN WORKSPACE_KEY CODEX_API_KEY AIDER_OPENAI_API_KEY"
    home, sent, client = plant(monkeypatch, tmp_path, *keys.split()), list[str](), Keys.client
    for name, text in {
        ".netrc": f"machine 127.0.0.1 login a password {PLANTED}\n",
        ".env": f"OPENAI_API_KEY={PLANTED}\n",
        ".aider.conf.yml": f"openai-api-key: {PLANTED}\n",
        ".config/mini-swe-agent/.env": f"OPENAI_API_KEY={PLANTED}\n",
        ".claude/settings.json": json.dumps({"env": {"ANTHROPIC_AUTH_TOKEN": PLANTED}}),
        ".codex/auth.json": json.dumps({"OPENAI_API_KEY": PLANTED}),
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    monkeypatch.setattr(
        Keys, "client", lambda keys, authorization: sent.append(authorization) or client(keys, authorization)
    )
    model = script(harness, MEND)
    found = solve(harness, repo, model, tts.Account(tts.Budget(samples=1)))
    assert found.candidates[0].scores["main"] == 1
    assert len(sent) >= len(model.calls) >= 1
    # one agent looks first, without a key, whether the url can be reached
    assert len({one for one in sent if one is not None}) == 1
    assert PLANTED not in str(sent)


def test_a_harness_that_is_not_installed_is_named_with_its_cure(repo, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(
        tts.ConfigError,
        match=r"agent.*'aider',.*program 'aider'",
    ):
        tts.Workspace(repo, agent="aider", model="toy")
