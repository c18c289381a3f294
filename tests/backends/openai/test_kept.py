"""A server is probed once: what it can do is kept on disk, declared by a record, or assumed; and servers that list no
models.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tts
from tests.backends.openai.making import PROMPT
from tests.backends.openai.saying import Asked, Saying, whole
from tests.backends.openai.server import ToyServer, serving
from tests.backends.openai.test_look import good
from tts.backends.openai import kept_capabilities
from tts.backends.openai.access import ServerAccess
from tts.backends.openai.kept_capabilities import KeptCapabilities
from tts.cli.app import app
from tts.errors import ConfigError
from tts.models import registry
from tts.models.record import ModelRecord
from tts.solver.solver import Solver


def len_of(_problem: tts.Problem, text: str) -> float:
    return 1 / (1 + len(text))


def asked(server: ToyServer, url: str, **settings: Any) -> int:
    """Return the requests of a solver that is made, as a process makes one."""
    before = len(server.headers)
    Solver(registry.resolve("toy", url, settings), task="arithmetic").close()
    return len(server.headers) - before


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        (ModelRecord(name="m", backend="openai"), "the backend 'openai' calls a server, but the model 'm' has no url"),
        (
            ModelRecord(name="m", backend="openai", url="http://a", options={"probe": "often"}),
            "probe is 'often', but must be kept, new, never",
        ),
    ],
)
def test_a_record_that_does_not_say_how_its_server_is_reached_is_refused(record: ModelRecord, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        ServerAccess.of(record)


@pytest.mark.slow
def test_only_the_first_solver_probes() -> None:
    server = ToyServer()
    with serving(server) as url:
        assert asked(server, url) > 10
        assert asked(server, url) == 1  # is it still there?
        first = ServerAccess.of(registry.resolve("toy", url)).capabilities()
        assert first == ServerAccess.of(registry.resolve("toy", url)).probe_anew()
        assert asked(server, url, probe="new") > 10
        assert asked(server, url, mode="text") > 10  # another question


def test_the_only_model_is_probed_once_whether_it_is_named_or_not() -> None:
    server = ToyServer()
    with serving(server) as url:
        ServerAccess.of(registry.resolve("", url)).probe_anew()
        assert asked(server, url) == 1, "its name was learnt by the probe without one"
    other = ToyServer()
    with serving(other) as url:
        assert asked(other, url) > 10
        before = len(other.headers)
        ServerAccess.of(registry.resolve("", url)).capabilities()
        assert len(other.headers) - before == 2, "the list of models, and whether it is still there"


def test_whole_numbers_stay_whole_on_disk() -> None:
    """A server that checks its parameters refuses top_k = 0.0."""
    with serving(ToyServer()) as url:
        access = ServerAccess.of(registry.resolve("toy", url))
        found = access.probe_anew()
        kept = access.kept.read()
    assert found.neutral
    assert kept is not None
    assert [(name, value, type(value)) for name, value in kept.neutral] == [
        (name, value, type(value)) for name, value in found.neutral
    ]


def test_another_version_is_probed_again() -> None:
    server = ToyServer(version="1.0")
    with serving(server) as url:
        assert asked(server, url) > 10
        assert asked(server, url) == 1
        server.version = "1.1"
        assert asked(server, url) > 10
        assert asked(server, url) == 1


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"context": 512}, {"owner": "another engine"}])
def test_without_a_version_another_context_or_owner_is_another_server(change: dict[str, Any]) -> None:
    server = ToyServer(context=1024, owner="an engine")
    with serving(server) as url:
        assert asked(server, url) > 10
        assert asked(server, url) == 1
        for name, value in change.items():
            setattr(server, name, value)
        assert asked(server, url) > 10
        assert asked(server, url) == 1


def test_a_model_that_is_served_no_more_is_told_at_once() -> None:
    server = ToyServer()
    with serving(server) as url:
        asked(server, url)
        server.model = "toys"
        with pytest.raises(ConfigError, match="serves toys") as caught:
            asked(server, url)
    assert "--model toys" in caught.value.hint


def test_a_server_that_is_gone_is_told_at_once() -> None:
    server = ToyServer()
    with serving(server) as url:
        asked(server, url)
    with pytest.raises(ConfigError, match="cannot be reached"):
        asked(server, url)


def test_what_is_older_than_a_week_is_probed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ToyServer()
    with serving(server) as url:
        asked(server, url)
        now = kept_capabilities.time.time()
        monkeypatch.setattr(kept_capabilities.time, "time", lambda: now + 6.9 * 86400)
        assert asked(server, url) == 1
        monkeypatch.setattr(kept_capabilities.time, "time", lambda: now + 7.1 * 86400)
        assert asked(server, url) > 10


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "{", "[]", '{"probed_at": 1}', '{"probed_at": "x", "capabilities": {}}'])
def test_a_damaged_file_is_probed_again(content: str) -> None:
    server = ToyServer()
    with serving(server) as url:
        asked(server, url)
        ServerAccess.of(registry.resolve("toy", url)).kept.path.write_text(content)
        assert asked(server, url) > 10
        assert asked(server, url) == 1


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(
    users_files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users_files.write_text("a file")
    server = ToyServer()
    with serving(server) as url:
        assert asked(server, url) > 10
        assert asked(server, url) > 10
    assert "cannot be kept" in caplog.text


def test_a_prompt_that_is_too_long_contradicts_nothing() -> None:
    server = ToyServer(ids=False, context=64)
    with serving(server) as url:
        record = registry.resolve("toy", url)
        with Solver(record, task="arithmetic") as solver, pytest.raises(tts.TTSError):
            solver.solve(" + ".join("1" * 90), tts.Budget(samples=1), strategy="best_of_n(n=1)")
        assert ServerAccess.of(record).kept.read() is not None


# Without a probe ------------------------------------------------------------------------------------------------------


def test_without_a_probe_plain_chat_is_used_and_nothing_else_is_asked() -> None:
    server = ToyServer(prompts=(PROMPT,))
    with serving(server) as url:
        result = CliRunner().invoke(
            app,
            [
                "solve",
                PROMPT,
                "--url",
                url,
                "--model",
                "toy",
                "--task",
                "arithmetic",
                "--budget",
                "samples=2",
                "--no-probe",
                "--json",
            ],
        )
    assert result.exit_code == 0, result.stderr
    assert len(json.loads(result.stdout)["candidates"]) == 2
    assert len(server.headers) == 2
    assert all("messages" in body and "stream" not in body for body in server.bodies)


def test_declared_capabilities_are_used_as_they_are() -> None:
    server = ToyServer(prompts=(PROMPT,))
    declared = {"mode": "continued chat", "streams": True, "usage": True, "neutral": {"top_k": 0}}
    with serving(server) as url:
        access = ServerAccess.of(registry.resolve("toy", url, {"capabilities": declared}))
        found = access.capabilities()
        assert server.headers == []
        assert (found.mode, found.neutral) == ("continued chat", (("top_k", 0),))
        assert (found.streams, found.usage, found.seeds) == (True, True, False)
        with Solver(registry.resolve("toy", url, {"capabilities": declared}), len_of, task="arithmetic") as solver:
            assert solver.solve(PROMPT, tts.Budget(samples=2), strategy="beam").candidates  # which continues paths
    assert all(body.get("stream") for body in server.bodies)


@pytest.mark.parametrize(
    ("declared", "cause"),
    [
        ({"strems": True}, "capability is 'strems', but no capability has that name"),
        ({"streams": "often"}, "the capability streams is 'often'"),
        ({"mode": "telepathy"}, "the capability mode is 'telepathy'"),
        ({"version": "1"}, "the capability version cannot be declared"),
    ],
)
def test_what_cannot_be_declared_is_named(declared: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerAccess.of(registry.resolve("toy", "http://127.0.0.1:9", {"capabilities": declared})).capabilities()
    assert cause in caught.value.cause


def test_what_a_probe_spent_is_printed_once() -> None:
    server = ToyServer(prompts=(PROMPT,))
    with serving(server) as url:
        command = ["solve", PROMPT, "--url", url, "--task", "arithmetic", "--budget", "samples=1"]
        first, second = CliRunner().invoke(app, command), CliRunner().invoke(app, command)
    [note] = [line for line in first.stderr.splitlines() if line.startswith("note: probed ")]
    assert "tokens reported" in note
    assert "charged to no problem" in note
    assert "note: probed" not in second.stderr
    assert logging.getLogger("tts.servers").handlers == []


# Servers that list no models ------------------------------------------------------------------------------------------

UNLISTED: list[tuple[int, Any]] = [
    (500, {"error": "the hub cannot be reached"}),  # transformers serve without internet
    (404, {"detail": "Not Found"}),
    (405, {"detail": "Method Not Allowed"}),
    (200, b"<html>a page</html>"),
    (200, {"object": "list"}),
]


@pytest.mark.parametrize("reply", UNLISTED)
def test_a_named_model_needs_no_list(reply: tuple[int, Any]) -> None:
    server = ToyServer(prompts=(PROMPT,), list_reply=reply)
    with serving(server) as url:
        with Solver("toy", url=url, task="arithmetic") as solver:
            assert solver.solve(PROMPT, tts.Budget(samples=2)).candidates
        with pytest.raises(tts.TTSError):  # which one?
            Solver(url=url, task="arithmetic")


def test_a_gateway_whose_chat_is_at_the_url_itself_is_found() -> None:
    def say(request: Asked) -> Any:
        if request.path != "/deployments/x/chat/completions":
            return whole({"error": {"message": "Resource not found", "code": "404"}}, 404)
        return good(Asked(request.method, "/v1/chat/completions", request.headers, request.body))

    with serving(Saying(say)) as url:
        found = ServerAccess.of(registry.resolve("toy", f"{url}/deployments/x")).capabilities()
    assert (found.root, found.mode, found.served) == (f"{url}/deployments/x", "chat", ())
    assert dict(found.lines())["model"] == "toy (served: no list of models)"


@pytest.mark.parametrize(
    "say", [lambda _: whole(b"<html>a proxy's page</html>"), lambda _: whole({"detail": "Not Found"}, 404)]
)
def test_a_page_of_a_proxy_is_no_server(say: Callable[[Asked], Any]) -> None:
    with serving(Saying(say)) as url:
        result = CliRunner().invoke(app, ["solve", PROMPT, "--url", url, "--model", "toy"])
    assert result.exit_code == 2
    error, hint = result.stderr.splitlines()
    assert "does not answer as an OpenAI-compatible server does" in error
    assert hint.startswith("hint: give the url of its API")


def test_a_server_without_a_list_that_wants_a_key_says_so() -> None:
    with (
        serving(ToyServer(key="sk-abcdefghijkl", list_reply=None)) as url,
        pytest.raises(ConfigError, match="requires a key"),
    ):
        ServerAccess.of(registry.resolve("toy", url)).capabilities()


def test_the_file_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-of-nobody-0123456789"
    monkeypatch.setenv("TTS_API_KEY", key)
    with serving(ToyServer(key=key)) as url:
        access = ServerAccess.of(registry.resolve("toy", url))
        access.capabilities()
        assert key not in access.kept.path.read_text()
        assert KeptCapabilities.of(url, "toy", "auto").path == access.kept.path
