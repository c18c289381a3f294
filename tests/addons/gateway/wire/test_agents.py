"""The coding agents of both vendors, unchanged from npm, through `tts serve`: by Messages and by Responses.

`TTS_AGENTS_FOLDER` names the folder into which `make test-clients` installs them. The model behind the gateway is a
script with tools; the agents begin without any settings.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("jsonschema", reason="the extra serve is not installed")
pytest.importorskip("yaml", reason="the extra serve is not installed")

import httpx

from tests.addons.gateway.wire.started import started
from tests.addons.gateway.wire.upstream import Refusal, Upstream, call, check_template, serving_script

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


def run(command: list[str], repository: Path, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run an agent in the repository, with a home of its own; it must end with an exit code."""
    home = repository.parent / "home"
    home.mkdir(exist_ok=True)
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
    assert done.returncode == code, done.stdout + done.stderr
    return done


def claude(url: str, repository: Path, *arguments: str) -> str:
    """Run the agent of Messages; returns its result."""
    done = run(
        [agent("claude"), "-p", *arguments, "--allowedTools", "Read,Edit", "--output-format", "json"],
        repository,
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_AUTH_TOKEN="any-key",
        ANTHROPIC_MODEL="scripted",
        ANTHROPIC_DEFAULT_HAIKU_MODEL="scripted",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )
    return json.loads(done.stdout)["result"]


def codex(url: str, repository: Path, *arguments: str, model: str = "scripted", code: int = 0) -> str:
    """Run the agent of Responses; returns what it printed."""
    provider = f'{{name="gateway", base_url="{url}/v1", env_key="GATEWAY_KEY", wire_api="responses"}}'
    command = [
        agent("codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", model,
        "-c", 'model_provider="gateway"', "-c", f"model_providers.gateway={provider}", *arguments,
    ]  # fmt: skip
    done = run(command, repository, code, GATEWAY_KEY="any-key")
    return done.stdout + done.stderr


AGENTS: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {  # how each runs, and how it resumes its last session
    "claude": (claude, ("--continue",)),
    "codex": (codex, ("resume", "--last")),
}


def config(upstream: Upstream, name: str = "scripted") -> dict[str, Any]:
    model = {"model": "scripted", "url": [upstream.url], "strategy": "best_of_n(n=2) | majority", "budget": TOKENS}
    return {"models": {name: model}, "limits": {"tokens": TOKENS}}


def results(body: dict[str, Any]) -> list[Any]:
    return [turn for turn in body["messages"] if turn["role"] == "tool"]


@pytest.mark.slow
def test_the_agent_of_messages_edits_a_file(tmp_path, repository):
    """It sends `max_tokens: 32000`, which is clipped, and system turns behind the user's, which a template refuses."""
    file = str(repository / "sum.py")

    def script(body: dict[str, Any]) -> dict[str, Any]:
        check_template(body)
        if "tools" not in body:
            return {"content": "Fix the sum"}
        steps = [
            call("Read", {"file_path": file}),
            call("Edit", {"file_path": file, "old_string": "a - b", "new_string": "a + b"}, 1),
            {"content": "The sum is right now."},
        ]
        return steps[min(2, len(results(body)))]

    with serving_script(script) as upstream, started(tmp_path, config(upstream)) as url:
        told = claude(url, repository, PROMPT)
    assert (repository / "sum.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert told == "The sum is right now."
    check_native(upstream)


SHELL = "sed -i 's/a - b/a + b/' sum.py"
PATCH = "*** Begin Patch\n*** Update File: sum.py\n@@\n-    return a - b\n+    return a + b\n*** End Patch"
# what the agent offers, by the name of the model: functions, a tool of free text, and tools in an item of the input
OFFERS: dict[str, tuple[dict[str, Any], str]] = {
    "scripted": (call("exec_command", {"cmd": SHELL}), "spawn_agent"),  # of a namespace
    "gpt-5.5": (call("apply_patch", {"input": PATCH}), "exec_command"),
    "gpt-6-luna": (call("exec", {"input": f'await tools.exec_command({{cmd: "{SHELL}"}})'}), "spawn_agent"),
}


@pytest.mark.slow
@pytest.mark.parametrize("model", OFFERS)
def test_the_agent_of_responses_edits_a_file(tmp_path, repository, model):
    """It sends a hosted tool by default, which is left out, and functions in a namespace, which are kept."""
    first, other_name = OFFERS[model]

    def script(body: dict[str, Any]) -> dict[str, Any]:
        check_template(body)
        return {"content": "The sum is right now."} if results(body) else {**first}

    with serving_script(script) as upstream, started(tmp_path, config(upstream, model)) as url:
        told = codex(url, repository, PROMPT, model=model)
    assert (repository / "sum.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert "The sum is right now." in told
    names = check_native(upstream)
    assert other_name in names
    assert "web_search" not in names


BLOB = "A1b2" * 200
CUT = '{"file_path": "su'
# what the model of another vendor left in a session of each agent
LEFT: dict[str, list[tuple[str, Any]]] = {
    "claude": [
        ("user", [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "It is 4."}}]),
        ("assistant", [
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "Oslo"}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [
                {"type": "web_search_result", "title": "Rain", "url": "u://x", "encrypted_content": BLOB}]}]),
        ("user", "more"),
        ("assistant", [{"type": "tool_use", "id": "cut", "name": "Read", "input": CUT}]),
        ("user", [{"type": "tool_result", "tool_use_id": "cut", "content": "cannot parse", "is_error": True}]),
        ("assistant", [{"type": "redacted_thinking", "data": BLOB}, {"type": "text", "text": "So."}]),
    ],
    "codex": [
        ("function_call", {"call_id": "cut", "name": "exec_command", "arguments": CUT}),
        ("function_call_output", {"call_id": "cut", "output": "cannot parse"}),
        ("web_search_call", {"status": "completed", "action": {"type": "search", "query": "Oslo"}}),
        ("custom_tool_call", {"call_id": "patch", "name": "apply_patch", "input": "*** Begin Patch"}),
        ("custom_tool_call_output", {"call_id": "patch", "output": "is done"}),
        ("tool_search_call", {"call_id": "t", "execution": "client", "arguments": {"query": "day"}}),
        ("tool_search_output", {"call_id": "t", "status": "completed", "execution": "client", "tools": [
            {"type": "function", "name": "day", "description": "", "parameters": {"type": "object"}}]}),
        ("compaction", {"encrypted_content": BLOB}),
        ("message", {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}),
    ],
}  # fmt: skip
LEFT_TEXTS = {"claude": ("It is 4.", "Oslo", "Rain"), "codex": ("Oslo", "*** Begin Patch", "is done", "Be brief.")}


def leave(name: str, home: Path) -> None:
    """Add what another vendor's model left to the stored session of an agent."""
    (file,) = home.glob(".claude/projects/*/*.jsonl" if name == "claude" else ".codex/sessions/**/*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for place, (kind, value) in enumerate(LEFT[name]):
        if name == "codex":
            payload = {"type": kind, **value}
            rows.append({**rows[-1], "ordinal": len(rows), "type": "response_item", "payload": payload})
            continue
        turns = [row for row in rows if row["type"] in ("user", "assistant")]
        like = next(row for row in reversed(turns) if row["type"] == kind)
        message = {**like["message"], "id": f"m{place}", "content": value}
        number = f"00000000-0000-4000-8000-{place:012}"
        rows.append({**like, "parentUuid": turns[-1]["uuid"], "uuid": number, "message": message})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_resumes_a_session_of_another_vendor(tmp_path, repository, name):
    """Its history has a call whose arguments were cut, and items that only their vendor reads."""
    go, resume = AGENTS[name]

    def script(body: dict[str, Any]) -> dict[str, Any]:
        check_template(body)
        return {"content": "Went on." if "Go on." in str(body["messages"]) else "Done."}

    with serving_script(script) as upstream, started(tmp_path, config(upstream)) as url:
        go(url, repository, PROMPT)
        leave(name, tmp_path / "home")
        assert "Went on." in go(url, repository, *resume, "Go on.")
    body = [body for body in upstream.bodies if "tools" in body][-1]
    sent = json.dumps(body["messages"])
    assert all(text in sent for text in LEFT_TEXTS[name])
    assert BLOB not in sent
    (made,) = [one for turn in body["messages"] for one in turn.get("tool_calls") or () if one["id"] == "cut"]
    assert made["function"]["arguments"] == "{}"
    assert "cannot parse" in next(turn["content"] for turn in results(body) if turn["tool_call_id"] == "cut")
    assert name == "claude" or "day" in {tool["function"]["name"] for tool in body["tools"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_shortens_a_history_above_the_context(tmp_path, repository, name):
    """That of Messages does so at once. That of Responses ends its turn, and does so at the next one."""
    go, resume = AGENTS[name]
    long = PROMPT if name == "claude" else "Read it all."

    def script(body: dict[str, Any]) -> dict[str, Any]:
        told = str(body["messages"])
        if long in told and "Go on." in told:
            raise Refusal(
                400, "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens."
            )
        return {"content": "Went on." if "Go on." in told else "Read it all."}

    with serving_script(script) as upstream, started(tmp_path, config(upstream)) as url:
        go(url, repository, PROMPT)
        go(url, repository, *resume, "And then?")
        if name == "codex":
            assert "ran out of room in the model's context window" in go(url, repository, *resume, "Go on.", code=1)
            assert 'end="failed"} 1\n' in httpx.get(f"{url}/metrics").text  # it does not ask once more
        assert "Went on." in go(url, repository, *resume, "Go on.")
        (refused,) = re.findall(r'end="failed"} (\d+)\n', httpx.get(f"{url}/metrics").text)
    assert 1 <= int(refused) <= (1 if name == "claude" else 12)  # it leaves out an item each time


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
