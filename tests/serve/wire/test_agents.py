"""The coding agents of both vendors, unchanged from npm, edit a file through `tts serve`: by Messages and by Responses.

`TTS_AGENTS_FOLDER` names the folder into which `make test-clients` installs them. The model behind the gateway is a
script with tools; the agents begin without any settings.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("jsonschema", reason="the extra serve is not installed")
pytest.importorskip("yaml", reason="the extra serve is not installed")

from tests.serve.wire.started import started
from tests.serve.wire.upstream import Upstream, call, serving_script

PROMPT = "Fix the sum in sum.py."
TOKENS = 20_000
AGENT_S = 300


def agent(name: str) -> str:
    """Return the path of an agent's program."""
    folder = os.environ.get("TTS_AGENTS_FOLDER")
    if folder is None:
        pytest.skip("TTS_AGENTS_FOLDER names no folder with the agents")
    return str(Path(folder) / "node_modules" / ".bin" / name)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "sum.py").write_text("def add(a, b):\n    return a - b\n")
    return folder


def run(command: list[str], repository: Path, **variables: str) -> str:
    """Run an agent in the repository, with an empty home; returns what it printed."""
    home = repository.parent / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), **variables}
    done = subprocess.run(
        command,
        cwd=repository,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=AGENT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def config(upstream: Upstream) -> dict[str, Any]:
    model = {"model": "scripted", "url": [upstream.url], "strategy": "best_of_n(n=2) | majority", "budget": TOKENS}
    return {"models": {"scripted": model}, "limits": {"tokens": TOKENS}}


def results(body: dict[str, Any]) -> list[Any]:
    return [turn for turn in body["messages"] if turn["role"] == "tool"]


@pytest.mark.slow
def test_the_agent_of_messages_edits_a_file(tmp_path, repository):
    """It sends `max_tokens: 32000`, which is clipped to `limits.tokens`."""
    program, file = agent("claude"), str(repository / "sum.py")

    def script(body: dict[str, Any]) -> dict[str, Any]:
        if "tools" not in body:
            return {"content": "Fix the sum"}
        steps = [
            call("Read", {"file_path": file}),
            call("Edit", {"file_path": file, "old_string": "a - b", "new_string": "a + b"}, 1),
            {"content": "The sum is right now."},
        ]
        return steps[min(2, len(results(body)))]

    with serving_script(script) as upstream, started(tmp_path, config(upstream)) as url:
        command = [program, "-p", PROMPT, "--allowedTools", "Read,Edit", "--output-format", "json"]
        told = run(
            command,
            repository,
            ANTHROPIC_BASE_URL=url,
            ANTHROPIC_AUTH_TOKEN="any-key",
            ANTHROPIC_MODEL="scripted",
            ANTHROPIC_DEFAULT_HAIKU_MODEL="scripted",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        )
    assert (repository / "sum.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert json.loads(told)["result"] == "The sum is right now."
    check_native(upstream)


@pytest.mark.slow
def test_the_agent_of_responses_edits_a_file(tmp_path, repository):
    """It sends a hosted tool by default, which is left out, and functions in a namespace, which are kept."""
    program = agent("codex")

    def script(body: dict[str, Any]) -> dict[str, Any]:
        done = {"content": "The sum is right now."}
        return done if results(body) else call("exec_command", {"cmd": "sed -i 's/a - b/a + b/' sum.py"})

    with serving_script(script) as upstream, started(tmp_path, config(upstream)) as url:
        provider = f'{{name="gateway", base_url="{url}/v1", env_key="GATEWAY_KEY", wire_api="responses"}}'
        command = [
            program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "scripted",
            "-c", 'model_provider="gateway"', "-c", f"model_providers.gateway={provider}", PROMPT,
        ]  # fmt: skip
        told = run(command, repository, GATEWAY_KEY="any-key")
    assert (repository / "sum.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert "The sum is right now." in told
    names = check_native(upstream)
    assert "spawn_agent" in names  # of a namespace
    assert "web_search" not in names


def check_native(upstream: Upstream) -> set[str]:
    """Check that tools and their results reached the model natively, for every candidate; returns the tools' names."""
    asked = [body for body in upstream.bodies if len(body.get("tools", ())) > 1]
    assert asked
    assert not any("<tool_call>" in str(turn["content"]) for body in asked for turn in body["messages"])
    done = [body for body in asked if results(body)]
    assert done
    for body in done:
        made = {one["id"] for turn in body["messages"] for one in turn.get("tool_calls") or ()}
        assert made == {turn["tool_call_id"] for turn in results(body)}
    return {tool["function"]["name"] for tool in asked[0]["tools"]}
