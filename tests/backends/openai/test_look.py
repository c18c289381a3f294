"""The first contact with a server: urls, lists of models, keys, and what is said where a server cannot be used."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import tts
from tests.backends.openai.making import PROMPT, drawn, on
from tests.backends.openai.saying import MODELS, Asked, Saying, delta, dripping, event, head, used, whole
from tests.backends.openai.server import ToyServer, serving
from tests.support.guard import LIMIT_S
from tts.backends.openai.access import ServerAccess
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.errors import KEY_FILE_VARIABLE, KEY_VARIABLE, Key
from tts.backends.openai.http import roots
from tts.backends.openai.probe import probe_server
from tts.cli.app import app
from tts.errors import ConfigError, EngineError, TTSError
from tts.models import registry
from tts.solver.solver import Solver

Answer = Iterable[bytes] | AsyncIterator[bytes]
SECRET = "sk-of-nobody-0123456789abcdefghijklmnopqrstuvwxyz"
COUNTED = {
    "choices": [{"index": 0, "message": {"content": "Four, five"}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3},
}
STREAM = [head(), *(event(delta(text)) for text in ("Four", ",", " five")), event(delta("", "stop")), event(used(5, 3))]
NONE = whole({"detail": "Not Found"}, 404)


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (KEY_VARIABLE, KEY_FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")


def good(asked: Asked) -> Answer:
    """Answer as a server of plain chat that writes always the same."""
    if asked.path == "/v1/models":
        return whole(MODELS)
    if asked.path == "/v1/chat/completions":
        return STREAM if asked.body.get("stream") else whole(COUNTED)
    return NONE


def listing(models: Answer, other: Answer) -> Callable[[Asked], Answer]:
    """Return what answers so for the list of models, and otherwise for all else."""
    return lambda asked: models if asked.path == "/v1/models" else other


def probed(
    say: Callable[[Asked], Answer], timeout_s: float = 2.0, key: Key | None = None, model: str = "toy"
) -> Capabilities:
    with serving(Saying(say)) as url:
        return probe_server(url, model, key or Key(), timeout_s=timeout_s)


def told(*arguments: str) -> list[str]:
    """Return the lines that `tts solve` writes where nothing may be spent."""
    result = CliRunner().invoke(app, ["solve", PROMPT, *arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    return [line for line in result.stderr.splitlines() if not line.startswith(("note: probed ", "note: probing "))]


# What hangs, or does not end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("endless", [b": a comment\n\n", event(delta("x "))])
def test_a_stream_that_never_ends_is_no_stream(endless: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts.backends.openai.probe._REPLY_S", 1.0)

    def say(asked: Asked) -> Answer:
        if asked.body is not None and asked.body.get("stream"):
            return dripping(head(), end=endless, pause_s=0.001)
        return good(asked)

    found = probed(say)
    assert (found.mode, found.streams) == ("chat", False)
    assert probed(good).streams


@pytest.mark.parametrize(
    ("say", "cause"),
    [
        (lambda _: dripping(end=b"", pause_s=60), "takes connections but does not answer"),
        (lambda _: dripping(head("text/html"), pause_s=0.01), "takes connections but does not answer"),
        (lambda _: dripping(head("text/html"), end=b" " * (1 << 20), pause_s=0.0), "does not"),
        (lambda _: dripping(head("text/html", 500), b"boom", pause_s=0.01), "does not answer|status 500: boom"),
    ],
)
def test_the_first_word_of_a_server_is_waited_for_by_the_clock(say: Callable[[Asked], Answer], cause: str) -> None:
    began = time.monotonic()
    with pytest.raises(TTSError, match=cause):
        probed(say, 0.3)
    assert time.monotonic() - began < 10  # one that waits for the server's end waits for a minute, or for ever


def test_a_name_that_nobody_resolves_and_addresses_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def hangs(*_args: Any, **_more: Any) -> Any:
        over.wait(LIMIT_S)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    with pytest.raises(ConfigError, match="cannot be reached"):
        probe_server("http://somewhere.example:8000", "m", Key(), timeout_s=0.1)
    over.set()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as hole:
        port = hole.getsockname()[1]
        fill = [socket.socket() for _ in range(4)]
        for one in fill:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))] * 200
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: addresses)
        began = time.monotonic()
        with pytest.raises(ConfigError, match="cannot be reached"):
            probe_server("http://somewhere.example:8000", "m", Key(), timeout_s=0.1)
        assert time.monotonic() - began < 10  # each address by itself would take 20 s
        for one in fill:
            one.close()


# Other servers, and servers that cannot serve -------------------------------------------------------------------------


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
    with serving(Saying(lambda _: [reply])) as url:
        error, hint = told("--url", url, "--model", "toy")
    assert error.startswith(f"error: {url} ")
    assert says in error
    assert hint.startswith("hint: ")


def test_nobody_there_is_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    error, hint = told("--url", f"http://127.0.0.1:{free}", "--model", "toy")
    assert error.startswith(f"error: http://127.0.0.1:{free} cannot be reached: ")
    assert hint == "hint: start the server, or correct the url (host, port, http or https)"


def test_an_error_inside_of_a_reply_is_one() -> None:
    busy = [whole({"error": {"code": 429}}, 200, "Retry-After: 0.01")] * 2

    def say(asked: Asked) -> Answer:
        if asked.path in ("/v1/models", "/v1/completions"):
            return whole({"error": f"Unexpected endpoint {asked.path}"})
        if asked.path == "/models":
            return whole(MODELS)
        if asked.path != "/chat/completions":
            return NONE
        return busy.pop() if busy else good(Asked(asked.method, f"/v1{asked.path}", asked.headers, asked.body))

    found = probed(say)
    assert (found.mode, found.root.endswith("/v1"), busy) == ("chat", False, [])
    with pytest.raises(ConfigError, match=r"access:.*requires"):
        probed(lambda _: whole({"error": {"message": "who are you?", "code": "invalid_api_key"}}))


@pytest.mark.parametrize(
    ("error", "kind", "num_requests"),
    [("later", "RateLimited", 5), ({"message": "pay first", "code": "insufficient_quota"}, "QuotaExceeded", 2)],
)
def test_a_server_that_stays_busy_is_not_concluded_from(error: Any, kind: str, num_requests: int) -> None:
    said: list[str] = []

    def say(asked: Asked) -> Answer:
        said.append(asked.path)
        return good(asked) if asked.path == "/v1/models" else whole({"error": error}, 429)

    with pytest.raises(EngineError, match=rf"while.*probed: {kind}:.*429"):
        probed(say)
    assert len(said) == num_requests


@pytest.mark.parametrize(
    ("say", "cause"),
    [
        # of two refusals, the one that says more is told
        (listing(NONE, whole({"error": {"message": "your plan has no access"}}, 403)), "your plan"),
        (
            listing(whole(MODELS), whole({"error": {"message": "the model is not loaded: out of memory"}}, 400)),
            r"model.*loaded:.*memory",
        ),
        (lambda asked: whole({"error": "who are you?"}, 401) if "chat" in asked.path else NONE, r"access:.*sent"),
    ],
)
def test_what_a_server_says_stands_in_the_refusal(say: Callable[[Asked], Answer], cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        probed(say)


@pytest.mark.parametrize(
    "url",
    ["http://a..b", "http://" + "a" * 300, "http://-x-", "http://%zz/"],
)
def test_a_host_that_cannot_be_is_one_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(host: Any, *_args: Any, **_more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        name.encode("idna")  # as the real one does
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    with pytest.raises(ConfigError, match="cannot be reached"):
        probe_server(url, "toy", Key())


@pytest.mark.parametrize("name", ["nowhere.pem", "empty.pem"])
def test_a_file_of_authorities_that_cannot_be_read_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / name))
    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE.*,.*certificates"):
        probe_server("https://127.0.0.1:9", "toy", Key())


def test_a_proxy_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "bad://x")
    with pytest.raises(ConfigError, match=r"proxy:.*scheme"):
        probe_server("http://server.example", "toy", Key())


@pytest.mark.slow
def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl, which makes a certificate, is not installed")
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = ToyServer()

    async def draw(url: str) -> Any:
        backend = on(url, mode="text")
        try:
            return await drawn(backend, 1)
        finally:
            await backend.close()

    with serving(server, certificate=(certificate, key)) as url:
        for written in (url, url.replace("https", "HTTPS")):
            error, hint = told("--url", written, "--model", "toy")
            assert "has a certificate that cannot be trusted" in error
            assert "SSL_CERT_FILE" in hint
        [sample] = asyncio.run(draw(url))  # as when the certificate changes later
    assert (sample.finish, sample.num_tokens, sample.error.partition(":")[0]) == ("error", 0, "CertificateError")
    assert server.headers == []


# Models ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("served", "model", "error", "hint"),
    [
        (("org/served",), "org/other", "the model is org/other, but URL serves org/served", "--model org/served; "),
        (
            tuple(f"org/model-{i}" for i in range(300)),
            "org/model-2777",
            "org/model-10, org/model-11 and 288 others",
            "--model org/model-277; a name of your own: tts models add NAME --url URL --served-as org/model-277",
        ),
        (  # of a gateway, the model without a search is hinted at
            ("toy", "toy:single", "toy:vote"),
            "",
            "the model is not named, but URL serves toy, toy:single, toy:vote",
            "--model toy:single; ",
        ),
    ],
)
def test_a_model_that_is_not_served_names_those_that_are(
    served: tuple[str, ...], model: str, error: str, hint: str
) -> None:
    with serving(ToyServer(model=served[0], others=served[1:])) as url:
        lines = told("--url", url, *(["--model", model] if model else []))
        assert lines[0].endswith(error.replace("URL", url))
        assert lines[1].startswith("hint: for example --model ")
        assert hint in lines[1]


def test_the_only_model_needs_no_name() -> None:
    with serving(ToyServer(model="the one")) as url:
        assert probe_server(f"{url}/v1/", "", Key()).model == "the one"
        assert ServerAccess.of(registry.resolve("", url)).only_model() == "the one"


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
        if "max_tokens" in request.body:
            return whole({"error": "max_tokens is not supported"}, 400)
        return good(Asked(request.method, "/v1/chat/completions", request.headers, request.body))

    with serving(Saying(say)) as url:
        found = probe_server(f"{url}/deployments/x", "toy", Key())
    assert (found.root, found.mode, found.served) == (f"{url}/deployments/x", "chat", ())
    assert found.cap_name == "max_completion_tokens"
    assert dict(found.lines())["model"] == "toy (served: no list of models)"


# Keys -----------------------------------------------------------------------------------------------------------------


def test_the_key_is_sent_and_stands_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (held := tmp_path / "key").write_text(f"{SECRET}\n")
    trace = tmp_path / "trace.json"
    server = ToyServer(key=SECRET)
    with serving(server) as url:
        command = ["solve", PROMPT, "--url", url, "--model", "toy", "--budget", "samples=3", "--json"]
        for name, value in ((KEY_VARIABLE, SECRET), (KEY_FILE_VARIABLE, str(held))):
            monkeypatch.setenv(name, value)
            result = CliRunner().invoke(app, [*command, "--trace", str(trace)])
            assert result.exit_code == 0
            monkeypatch.delenv(name)
            assert SECRET not in result.output + trace.read_text() + caplog.text
        backend = OpenAIBackend.from_record(registry.resolve("toy", url), key_file=str(held))
    assert server.headers[-1]["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in repr(backend) + repr(vars(backend)) + backend.identity


@pytest.mark.parametrize("lists", [False, True])
def test_a_key_that_is_missing_or_wrong_is_told_and_not_shown(lists: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(ToyServer(key="another", shows_models=lists)) as url:
        error, hint = told("--url", url, "--model", "toy")
        assert "it requires a key, and none was sent" in error
        assert KEY_VARIABLE in hint
        monkeypatch.setenv(KEY_VARIABLE, SECRET)
        error, hint = told("--url", url, "--model", "toy")
        assert f"the key in the variable {KEY_VARIABLE} was refused" in error
        assert "Incorrect API key provided: Bearer ***" in error
        assert SECRET not in error + hint


@pytest.mark.parametrize("given", ["two words", "ключ"])
def test_what_cannot_be_a_key_is_refused(given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(KEY_VARIABLE, given)
    with pytest.raises(ConfigError, match="has characters that no key has") as refused:
        Key.find()
    assert given not in str(refused.value)
    with pytest.raises(ConfigError, match=r"read:.*file"):
        Key.find(file=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="variable OF_NOBODY"):
        Key.find(variable="OF_NOBODY")


@pytest.mark.parametrize(
    "reply",
    [
        whole({"message": f"bad key {SECRET}"}),
        whole(f"{'x' * 40}{SECRET}".encode()),
        whole({"error": f"{'x' * 290}{SECRET}"}, 400),
        [b"HTTP/1.1 " + SECRET.encode() + b"\r\n\r\n"],
    ],
)
def test_a_key_that_a_server_repeats_stands_in_no_error_of_a_look(reply: list[bytes]) -> None:
    with pytest.raises(TTSError) as caught:
        probed(lambda _: reply, key=Key(SECRET, "a test"))
    assert not any(part in str(caught.value) for part in (SECRET[:8], SECRET[-8:], "nobody"))


def test_a_key_stands_in_no_finding() -> None:
    def say(asked: Asked) -> Answer:
        if asked.path == "/version":
            return whole({"version": f"1 {asked.headers['authorization']}"})
        listed = {"data": [{"id": "toy", "owned_by": "vllm"}, {"id": SECRET}]}
        return whole(listed) if asked.path == "/v1/models" else good(asked)

    found = probed(say, key=Key(SECRET, "a test"))
    assert (found.version, found.served) == ("1 Bearer ***", ("toy", "***"))
    assert SECRET not in repr(found) + str(found.lines())


# Garbage --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.sampled_from(["/v1/models", "/version", "/metrics", "/v1/chat/completions", "/v1/completions", "/tokenize"]),
    st.data(),
)
def test_no_garbage_makes_an_untyped_error(path: str, data: st.DataObject) -> None:
    garbage = st.sampled_from(
        [
            b"", b"{}", b"[]", b"5", b"null", b"\xff", b"[" * 5000, b'"\\ud83d"', b'{"data": [{}]}',
            b'{"data": [{"id": "\\ud83d"}]}', b'{"data": {"id": "toy"}}',
            b'{"data": [{"id": "toy", "max_model_len": 1e999, "owned_by": []}]}',
            b'{"data": [{"id": "toy", "owned_by": "vllm"}]}', b'{"tokens": [1, "a"]}', b'{"tokens": {}}',
            b'{"choices": []}', b'{"choices": [[]]}', b'{"version": {"a": [null]}}', b'{"error": {"code": 418}}',
            b'{"error": [5]}',
        ]
    )  # fmt: skip
    given_ = data.draw(garbage), data.draw(st.sampled_from([200, 200, 204, 299, 400, 401]))
    try:
        found = probed(lambda asked: whole(*given_) if asked.path == path else good(asked), 2.0, model="")
    except TTSError as error:
        str(error).encode()
        return
    str(found.lines()).encode()


@pytest.mark.parametrize("depth", [300, 900, 100_000])
def test_no_depth_of_nesting_makes_an_untyped_error(depth: int) -> None:
    deep = b'{"data": [{"id": "toy", "more": ' + b"[" * depth + b"]" * depth + b"}]}"
    try:
        said = str(probed(lambda asked: whole(deep) if asked.path == "/v1/models" else good(asked)).served)
    except ConfigError as error:
        said = str(error)
    assert said in ("('toy',)", "()") or "does not answer as an OpenAI-compatible server does" in said


# Urls -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [" http://a:1", "http://a:1\n", "\thttp://a:1/ ", "http://a:1//", "http://a:1/v1/"])
def test_what_stands_around_a_url_is_no_part_of_it(url: str) -> None:
    assert roots(url)[0] == "http://a:1/v1"
    assert roots("HTTPS://A.b:443/v1//") == ("https://a.b/v1",)
    assert roots(" http://A.b:8080/x/ ") == ("http://a.b:8080/x/v1", "http://a.b:8080/x")


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("127.0.0.1:8000", "did you mean http://127.0.0.1:8000?"),
        ("localhost:8000/v1", "did you mean http://localhost:8000/v1?"),
        ("api.example.org/v1", "did you mean http://api.example.org/v1?"),
        *[
            (wrong, "for example http://localhost:8000")
            for wrong in (
                "toy", "http://a?", "http://a/v1#", "http://a b", "http://exam\tple", "http://a:0", "http://[::1",
                "http://☃.example", "http://\x00", "ftp://host", "http://", "http://host:port",
            )
        ],
    ],
)  # fmt: skip
def test_what_is_no_url_has_a_hint(url: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=r"http://.*https://.*host") as caught:
        roots(url)
    assert caught.value.hint == hint
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@[::1", "me:hunter2@host:80", "http:/me:hunter2@host", "http://a?key=hunter2",
        "http://a#hunter2", "http://me:hunter2@host",
    ],
)  # fmt: skip
def test_a_secret_in_a_url_is_not_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        roots(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("behind", ["/v1/chat/completions", "/v1/completions/", "/v1/models"])
def test_the_url_of_an_endpoint_is_answered_with_that_of_the_api(behind: str) -> None:
    with serving(ToyServer()) as url, pytest.raises(ConfigError) as caught:
        probe_server(url + behind, "toy", Key())
    assert caught.value.hint == f"give the url of its API, for example {url}/v1"


# Before anything is spent ---------------------------------------------------------------------------------------------


def test_what_a_server_cannot_do_is_refused_before_anything_is_spent() -> None:
    server = ToyServer(ids=False, continues=False)
    with serving(server) as url:
        command = ("--url", url, "--model", "toy", "--verifier", "confidence")
        error, hint = told(*command, "--strategy", "answer_convergence")
        assert server.bodies
        assert not any(PROMPT in str(body) for body in server.bodies)  # the look alone has asked
    assert "needs the capability 'steps', which the backend 'openai' lacks" in error
    assert "best_of_n, self_consistency and other methods of whole solutions work there" in hint
    with serving(ToyServer(ids=False, continues=False, tempers=False, longest=1000)) as url:
        error, hint = told("--url", url, "--model", "toy", "--budget", "samples=3", "--temperature", "0.8")
        assert "temperature is 0.8, but" in error
        assert "temperature=1" in hint
        command = ["solve", PROMPT, "--url", url, "--model", "toy", "--budget", "samples=3"]
        assert CliRunner().invoke(app, [*command, "--temperature", "1"]).exit_code == 0
        unnamed = CliRunner().invoke(app, command)  # the server's own is taken, and said
        assert unnamed.exit_code == 0
        assert "no temperature is sent to toy" in " ".join(unnamed.output.split())


@pytest.mark.parametrize("named", [{"temperature": 0.5}, {"top_p": 0.5}])
def test_a_value_that_one_of_several_models_does_not_take_is_refused_before_the_others_are_paid(
    named: dict[str, Any],
) -> None:
    free, fixed = (ToyServer(ids=False, continues=False, tempers=takes) for takes in (True, False))
    with serving(free) as url, serving(fixed) as other:
        models = {"policy": registry.ModelRecord(name="toy", backend="openai", url=url)}
        models["other"] = registry.ModelRecord(name="toy", backend="openai", url=other)
        plan = "mixture_of_agents(writers=['policy', 'other'], aggregator='other')"
        solver = tts.Solver(models, strategy=plan, task="math", sampling=tts.Sampling(**named))
        with solver, pytest.raises(tts.CapabilityError, match=next(iter(named))):
            solver.solve(PROMPT, 2000)
    assert not any(PROMPT in str(body) for body in free.bodies)
