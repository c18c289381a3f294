"""What one look finds out, and what is said in one line where a server cannot be used."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.backends.openai.making import PROMPT, drawn, on
from tests.backends.openai.server import ToyServer, serving
from tests.support.runs import make_run, solve_runs
from tts.backends.base import Sample
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.errors import KEY_FILE_VARIABLE, KEY_VARIABLE, Key
from tts.backends.openai.probe import probe_server
from tts.budget.budget import Budget
from tts.cli.app import app
from tts.errors import CapabilityError, ConfigError
from tts.models.registry import ModelRecord
from tts.types import Solution

SECRET = "sk-of-nobody-4711"


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (KEY_VARIABLE, KEY_FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")


WHOLE = {
    "mode": "tokens", "streams": True, "usage": True, "cached": True, "logprobs": True, "seeds": True, "n": True,
    "stops": True, "filters": True, "tempers": True, "reasoning": False, "template": True, "context": None,
    "tops": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("lacks", "differs"),
    [
        ({}, {}),
        ({"ids": False}, {"mode": "continued chat"}),
        ({"ids": False, "continues": False}, {"mode": "chat", "stops": False}),
        ({"ids": False, "chat": False}, {"mode": "text", "template": False}),
        ({"completions": False, "reasoning": 3}, {"mode": "chat", "reasoning": True, "stops": False}),
        (
            {"usage": False, "cached": False, "logprobs": False, "n": False},
            {"usage": False, "cached": False, "logprobs": False, "n": False},
        ),
        ({"stops": False, "streams": False, "filters": False}, {"stops": False, "streams": False, "filters": False}),
        ({"seeds": False, "context": 512}, {"seeds": False, "context": 512}),
        (
            {"tempers": False},  # and nothing can be concluded of what shows at other temperatures alone
            {"tempers": False, "logprobs": False, "seeds": False, "filters": False, "stops": False},
        ),
        ({"ids": False, "cap_name": "max_completion_tokens"}, {"mode": "continued chat"}),
        ({"version": "0.32.0"}, {"seeds": False}),
        ({"tops": True}, {"tops": True}),
        ({"tops": True, "completions": False}, {"tops": True, "mode": "continued chat"}),
    ],
)
def test_what_a_server_lacks_is_found(lacks: dict[str, Any], differs: dict[str, Any]) -> None:
    with serving(ToyServer(**lacks)) as url:
        found = probe_server(url, "toy", Key())
    assert {name: getattr(found, name) for name in WHOLE} == WHOLE | differs
    assert found.cap_name == lacks.get("cap_name", "max_tokens")


def test_a_server_that_refuses_what_the_api_has_not_is_asked_for_nothing_else() -> None:
    server = ToyServer(ids=False, continues=False, strict=True)
    with serving(server) as url:
        backend = OpenAIBackend.from_record(ModelRecord(name="toy", backend="openai", url=url))
        server.bodies.clear()

        async def solution() -> Solution:
            [end] = await solve_runs([make_run(PROMPT, Budget(samples=4), "best_of_n | majority", backend)])
            await backend.close()
            return end.solution

        found = asyncio.run(solution())
    assert (found.error, found.failures) == (None, {})
    assert len(server.bodies) == 4
    assert not any({"top_k", "min_p", "stop", "return_token_ids"} & body.keys() for body in server.bodies)


def test_a_server_that_takes_one_temperature_and_no_row_without_limit_is_asked_for_neither() -> None:
    with serving(ToyServer(ids=False, continues=False, tempers=False, longest=1000)) as url:
        error, hint = told("--url", url, "--model", "toy", "--budget", "samples=3")
        assert "temperature is 0.8 and top_p is 1, but" in error
        assert hint == "hint: ask for temperature=1 and top_p=1"
        command = ["solve", PROMPT, "--url", url, "--model", "toy", "--budget", "samples=3", "--temperature", "1"]
        assert CliRunner().invoke(app, command).exit_code == 0


@pytest.mark.parametrize(
    ("version", "blocks", "risky"),
    [("0.32.0", 32, True), ("0.32.0", 128, True), ("0.32.0", 16, False), ("0.33.1", 128, False)],
)
def test_seeds_are_not_tried_where_they_may_end_the_server(version: str, blocks: int, risky: bool) -> None:
    page = f'vllm:cache_config_info{{mamba_block_size="None",block_size="{blocks}",engine="0"}} 1.0'
    server = ToyServer(version=version, metrics=page)
    with serving(server) as url:
        found = probe_server(url, "toy", Key())
    assert found.seeds == (not risky)
    assert any("seed" in body for body in server.bodies) == (not risky)


def test_a_mode_that_does_not_work_is_refused_with_those_that_do() -> None:
    with serving(ToyServer(ids=False, continues=False)) as url:
        with pytest.raises(CapabilityError, match="mode is 'tokens'") as refused:
            probe_server(url, "toy", Key(), "tokens")
        assert refused.value.hint == "it offers: text, chat"
        assert probe_server(url, "toy", Key(), "text").mode == "text"


def test_a_mode_that_there_is_not_is_refused_before_anything_is_sent() -> None:
    mode: Any = "songs"
    with pytest.raises(ConfigError, match=r"mode.*'songs',.*continued"):
        probe_server("http://127.0.0.1:9", "toy", Key(), mode)


def test_the_only_model_needs_no_name() -> None:
    with serving(ToyServer(model="the one")) as url:
        assert probe_server(f"{url}/v1/", "", Key()).model == "the one"


# Mistakes -------------------------------------------------------------------------------------------------------------


@contextmanager
def answering(reply: bytes | None, *, endless: bool = False) -> Iterator[str]:
    """A server that answers each connection with these bytes, or, for None, never; `endless`: and goes on with
    spaces.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                kept.append(connection)
                if reply is not None:
                    with suppress(OSError):  # the client may have gone
                        connection.recv(65536)
                        connection.sendall(reply)
                        while endless:
                            connection.sendall(b" " * 1000)
                            time.sleep(0.001)
                        connection.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for connection in kept:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # ends a wait for what it will not send
            thread.join()
            for connection in kept:
                connection.close()


def told(*arguments: str) -> list[str]:
    """Return the lines that `tts solve` writes where nothing may be spent."""
    result = CliRunner().invoke(app, ["solve", PROMPT, *arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return [line for line in result.stderr.splitlines() if not line.startswith(("note: probed ", "note: probing "))]


def page(content: bytes, kind: bytes = b"text/html") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (kind, len(content), content)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (page(b"<html>hello</html>"), "does not answer as an OpenAI-compatible server does"),
        (page(b'{"data": [1, 2]}', b"application/json"), "does not answer as an OpenAI-compatible server does"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "cannot be reached"),
        (page(b"{}").replace(b"Content-Type", b"Content-Encoding: gzip\r\nContent-Type"), "its encoding is broken"),
        (
            b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
            "does not answer as an OpenAI-compatible",
        ),
    ],
)
def test_another_kind_of_server_is_refused_in_one_line_with_a_hint(reply: bytes, says: str) -> None:
    with answering(reply) as url:
        error, hint = told("--url", url, "--model", "toy")
    assert error.startswith(f"error: {url} ")
    assert says in error
    assert hint.startswith("hint: ")


def test_nobody_there_and_a_server_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    error, hint = told("--url", f"http://127.0.0.1:{free}", "--model", "toy")
    assert re.match(rf"error: http://127\.0\.0\.1:{free} cannot be reached: ", error)
    assert hint == "hint: start the server, or correct the url (host, port, http or https)"
    with answering(None) as url, pytest.raises(ConfigError, match=r"connections.*answer"):
        probe_server(url, "toy", Key(), timeout_s=0.2)


def test_of_hundreds_of_models_some_are_named_and_the_nearest_is_hinted_at() -> None:
    names = tuple(f"org/model-{i}" for i in range(300))
    with serving(ToyServer(model=names[0], others=names[1:])) as url:
        error, hint = told("--url", url, "--model", "org/model-2777")
    assert error.endswith("org/model-10, org/model-11 and 288 others")
    assert (
        hint
        == "hint: for example --model org/model-277; a name of your own: tts models add NAME --url URL --served-as "
        "org/model-277"
    )


def test_of_a_gateway_the_model_without_a_search_is_hinted_at() -> None:
    with serving(ToyServer(model="toy", others=("toy:single", "toy:vote"))) as url:
        error, hint = told("--url", url)
    assert error == f"error: the model is not named, but {url} serves toy, toy:single, toy:vote"
    assert hint.startswith("hint: for example --model toy:single; ")


def test_a_reply_without_an_end_is_not_waited_for() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\n\r\n"
    with answering(head, endless=True) as url, pytest.raises(ConfigError, match="reply"):
        probe_server(url, "toy", Key(), timeout_s=0.3)


def test_a_model_that_is_not_served_names_those_that_are() -> None:
    with serving(ToyServer(model="org/served")) as url:
        error, hint = told("--url", url, "--model", "org/other")
    assert error == f"error: the model is org/other, but {url} serves org/served"
    assert (
        hint == "hint: for example --model org/served; a name of your own: tts models add NAME --url URL --served-as "
        "org/served"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:8000", "must be http:// or https:// with a host"),
        ("ftp://host", "must be http:// or https:// with a host"),
        ("http://", "must be http:// or https:// with a host"),
        ("http://host:port", "must be http:// or https:// with a host"),
        ("http://host/?key=1", "neither query nor fragment"),
        ("http://me:secret@host", "would be written to results"),
    ],
)
def test_what_is_no_url_is_refused(url: str, says: str) -> None:
    error, hint = told("--url", url, "--model", "toy")
    assert says in error
    assert "secret" not in error + hint


@pytest.mark.parametrize("strategy", ["answer_convergence", "early_pruning", "deepconf_online"])
def test_a_method_that_goes_on_with_what_it_began_is_refused_with_what_works(strategy: str) -> None:
    server = ToyServer(ids=False, continues=False)
    with serving(server) as url:
        error, hint = told("--url", url, "--model", "toy", "--strategy", strategy, "--verifier", "confidence")
    assert server.bodies
    assert not any(PROMPT in str(body) for body in server.bodies)  # the look alone has asked
    assert "needs the capability 'steps', which the backend 'openai' lacks" in error
    assert "best_of_n, self_consistency and other methods of whole solutions work there" in hint


@pytest.mark.slow
def test_a_prompt_that_passes_the_context_is_refused_here_or_there_and_costs_nothing() -> None:
    long = " + ".join("1" * 40)
    for lacks, code, says in (
        ({}, 2, "the prompt renders to 79 tokens, but the model's context of 30 must hold it and an answer"),
        ({"ids": False}, 1, "every row failed: NoRoom: status 400: This model's maximum context length is 30 tokens"),
    ):
        with serving(ToyServer(context=30, **lacks)) as url:
            result = CliRunner().invoke(app, ["solve", long, "--url", url, "--model", "toy"])
        assert result.exit_code == code
        assert says in result.stderr
        assert "tokens out      │ 0 " in result.stdout or not result.stdout


@pytest.mark.slow
def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl, which makes a certificate, is not installed")
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = ToyServer()
    with serving(server, certificate=(certificate, key)) as url:
        for written in (url, url.replace("https", "HTTPS")):
            error, hint = told("--url", written, "--model", "toy")
            assert "has a certificate that cannot be trusted" in error
            assert hint == "hint: name its authority's file in the environment variable SSL_CERT_FILE"
        [sample] = asyncio.run(drawn_and_closed(url))  # as when the certificate changes later
    assert (sample.finish, sample.num_tokens, sample.error.partition(":")[0]) == ("error", 0, "CertificateError")
    assert server.headers == []


async def drawn_and_closed(url: str) -> list[Sample]:
    backend = on(url, mode="text")
    try:
        return await drawn(backend, 1)
    finally:
        await backend.close()


# The key --------------------------------------------------------------------------------------------------------------


def test_the_key_is_sent_and_stands_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (held := tmp_path / "key").write_text(f"{SECRET}\n")
    trace = tmp_path / "trace.json"
    server = ToyServer(key=SECRET)
    with serving(server) as url:
        command = [
            "solve",
            PROMPT,
            "--url",
            url,
            "--model",
            "toy",
            "--budget",
            "samples=3",
            "--json",
            "--trace",
            str(trace),
        ]
        for name, value in ((KEY_VARIABLE, SECRET), (KEY_FILE_VARIABLE, str(held))):
            monkeypatch.setenv(name, value)
            result = CliRunner().invoke(app, command)
            assert result.exit_code == 0
            monkeypatch.delenv(name)
            assert SECRET not in result.output + trace.read_text() + caplog.text
        backend = OpenAIBackend.from_record(ModelRecord(name="toy", backend="openai", url=url), key_file=str(held))
    assert server.headers[-1]["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in repr(backend) + repr(vars(backend)) + backend.identity


def test_a_key_that_is_missing_or_wrong_is_told_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(ToyServer(key="another")) as url:
        error, hint = told("--url", url, "--model", "toy")
        assert "it requires a key, and none was sent" in error
        assert KEY_VARIABLE in hint
        monkeypatch.setenv(KEY_VARIABLE, SECRET)
        error, hint = told("--url", url, "--model", "toy")
        assert f"the key in the variable {KEY_VARIABLE} was refused" in error
        assert "Incorrect API key provided: Bearer ***" in error
        assert SECRET not in error + hint


def test_a_key_that_is_wanted_only_where_something_is_written_is_told() -> None:
    with serving(ToyServer(key="another", shows_models=True)) as url:
        error, hint = told("--url", url, "--model", "toy")
    assert "it requires a key, and none was sent" in error
    assert KEY_VARIABLE in hint


@pytest.mark.parametrize(
    ("given", "says"), [("two words", "has characters that no key has"), ("ключ", "has characters that no key has")]
)
def test_what_cannot_be_a_key_is_refused(
    given: str, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, given)
    with pytest.raises(ConfigError, match=says) as refused:
        Key.find()
    assert given not in str(refused.value)
    with pytest.raises(ConfigError, match=r"read:.*file"):
        Key.find(file=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="variable OF_NOBODY"):
        Key.find(variable="OF_NOBODY")


# The doctor -----------------------------------------------------------------------------------------------------------


def test_the_doctor_prints_the_findings_and_what_works() -> None:
    with serving(ToyServer(ids=False, continues=False, context=512)) as url:
        result = CliRunner().invoke(app, ["doctor", "--url", url])
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for part in (
        "plain chat: whole solutions only",
        "512 tokens",
        "best_of_n",
        "beam (steps)",
        f"{url}/v1",
        "served: toy",
    ):
        assert part in text
    result = CliRunner().invoke(app, ["doctor", "--model", "toy"])
    assert result.exit_code == 2
    assert "which no server runs, and only servers are probed" in result.stderr
