"""A look at servers that hang, never end, obey nothing, or repeat the key; and urls as people give them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.openai.saying import MODELS, Asked, Saying, delta, dripping, event, head, used, whole
from tests.backends.openai.server import ToyServer, serving
from tests.support.guard import LIMIT_S
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.errors import Key
from tts.backends.openai.http import roots
from tts.backends.openai.probe import probe_server
from tts.backends.openai.reaching import check_reachable
from tts.errors import ConfigError, EngineError, TTSError

Answer = Iterable[bytes] | AsyncIterator[bytes]
COUNTED = {
    "choices": [{"index": 0, "message": {"content": "Four, five"}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3},
}
STREAM = [head(), event(delta("Four,")), event(delta(" five", "stop")), event(used(5, 3))]
NONE = whole({"detail": "Not Found"}, 404)


def good(asked: Asked) -> Answer:
    """Answer as a server of plain chat that writes always the same."""
    if asked.path == "/v1/models":
        return whole(MODELS)
    if asked.path == "/v1/chat/completions":
        return STREAM if asked.body.get("stream") else whole(COUNTED)
    return NONE


def probed(
    say: Callable[[Asked], Answer], timeout_s: float = 2.0, key: Key | None = None, model: str = "toy"
) -> Capabilities:
    with serving(Saying(say)) as url:
        return probe_server(url, model, key or Key(), timeout_s=timeout_s)


# What hangs, or does not end ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("endless", [b": a comment\n\n", event(delta("x "))])
def test_a_stream_that_never_ends_is_no_stream(endless: bytes) -> None:
    def say(asked: Asked) -> Answer:
        if asked.body is not None and asked.body.get("stream"):
            return dripping(head(), end=endless, pause_s=0.001)
        return good(asked)

    found = probed(say, 0.3)  # then streams are listened to for longer than a busy machine is silent
    assert (found.mode, found.streams) == ("chat", False)
    assert probed(good).streams


def test_a_stream_that_is_silent_is_not_concluded_from() -> None:
    def say(asked: Asked) -> Answer:
        streams = asked.body is not None and asked.body.get("stream")
        return dripping(head(), event(delta("x")), pause_s=60) if streams else good(asked)

    with pytest.raises(EngineError, match="it ended no stream"):
        probed(say, 2.0)


def test_pages_that_never_end_are_not_read_to_their_end() -> None:
    def say(asked: Asked) -> Answer:
        if asked.path == "/version":
            return whole({"version": "0.32.0"})
        return (
            dripping(head("text/plain"), end=b"# a line\n", pause_s=0.001) if asked.path == "/metrics" else good(asked)
        )

    began = time.monotonic()
    assert probed(say, 0.2).seed_note.startswith("not tried")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("say", "cause"),
    [
        (lambda _: dripping(end=b"", pause_s=60), "takes connections but does not answer"),
        (lambda _: dripping(head("text/html"), pause_s=0.01), "a reply that does not end"),
        (lambda _: dripping(head("text/html"), pause_s=60), "a reply that does not end"),
        (lambda _: dripping(head("text/html"), end=b" " * (1 << 20), pause_s=0.0), "a reply that does not end"),
        (lambda _: dripping(head("text/html", 500), b"boom", pause_s=0.01), "cannot serve now: status 500: boom"),
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
    with pytest.raises(ConfigError, match=r"reached:.*connection.*0\.1"):
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
        with pytest.raises(ConfigError, match=r"reached:.*connection.*0\.1"):
            probe_server("http://somewhere.example:8000", "m", Key(), timeout_s=0.1)
        assert time.monotonic() - began < 10  # each address by itself would take 20 s
        for one in fill:
            one.close()


# What a server says ---------------------------------------------------------------------------------------------------

SECRET = "sk-of-nobody-0123456789abcdefghijklmnopqrstuvwxyz"


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply",
    [
        whole({"message": f"bad key {SECRET}"}),
        whole(f"{'x' * 40}{SECRET}".encode()),
        whole([f"{'x' * 60}{SECRET}"]),
        whole({"error": f"{'x' * 290}{SECRET}"}, 400),
        whole({"error": f"bad key {SECRET}"}, 401),
        [b"HTTP/1.1 " + SECRET.encode() + b"\r\n\r\n"],
    ],
)
def test_a_key_that_a_server_repeats_stands_in_no_error_of_a_look(reply: list[bytes]) -> None:
    with pytest.raises(TTSError) as caught:
        probed(lambda _: reply, key=Key(SECRET, "a test"))
    assert not any(part in str(caught.value) for part in (SECRET[:8], SECRET[-8:], "nobody"))


def test_an_error_inside_of_a_reply_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("tts.backends.openai.probe_client.time.sleep", waited.append)
    busy = [whole({"error": {"code": 429}}, 200, "Retry-After: 5")] * 2

    def say(asked: Asked) -> Answer:
        if asked.path in ("/v1/models", "/version", "/v1/tokenize", "/v1/completions"):
            return whole({"error": f"Unexpected endpoint {asked.path}"})
        if asked.path == "/models":
            return whole(MODELS)
        if asked.path != "/chat/completions":
            return NONE
        return busy.pop() if busy else good(Asked(asked.method, f"/v1{asked.path}", asked.headers, asked.body))

    found = probed(say)
    assert (found.mode, found.version, found.root.endswith("/v1")) == ("chat", "", False)
    assert waited == [5.0, 5.0]
    with pytest.raises(ConfigError, match=r"access:.*requires"):
        probed(lambda _: whole({"error": {"message": "who are you?", "code": "invalid_api_key"}}))


def test_a_server_that_stays_busy_is_not_concluded_from(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("tts.backends.openai.probe_client.time.sleep", waited.append)
    with pytest.raises(EngineError, match=r"while.*probed: RateLimited:.*429"):
        probed(lambda asked: good(asked) if asked.path == "/v1/models" else whole({"error": "later"}, 429))
    assert waited[:3] == [0.5, 2.0, 8.0]


def unlisted(chat: Callable[[Asked], Answer]) -> Callable[[Asked], Answer]:
    """Answer as a server that lists no models, and chats so."""
    return lambda asked: chat(asked) if asked.path == "/v1/chat/completions" else NONE


def test_a_model_that_no_list_names_is_found_by_a_chat() -> None:
    limited = unlisted(
        lambda asked: (
            whole({"error": "max_tokens is not supported"}, 400) if "max_tokens" in asked.body else good(asked)
        )
    )
    found = probed(limited)
    assert (found.model, found.served, found.mode, found.cap_name) == ("toy", (), "chat", "max_completion_tokens")
    with pytest.raises(ConfigError, match=r"access:.*sent"):
        probed(unlisted(lambda _: whole({"error": "who are you?"}, 401)))


@pytest.mark.parametrize(
    ("known", "same"),
    [({"served": ("toy",)}, False), ({"version": "1.0", "served": ("toy",)}, False), ({"served": ()}, True)],
)
def test_a_server_that_shows_neither_version_nor_list_is_the_same_only_where_it_showed_none(
    known: dict[str, Any], same: bool
) -> None:
    with serving(Saying(lambda _: NONE)) as url:
        assert (
            check_reachable(Capabilities(root=f"{url}/v1", model="toy", mode="chat", **known), url, Key(), 2.0) == same
        )


def test_a_key_stands_in_no_finding() -> None:
    def say(asked: Asked) -> Answer:
        if asked.path == "/version":
            return whole({"version": f"1 {asked.headers['authorization']}"})
        return whole({"data": [{"id": "toy"}, {"id": SECRET}]}) if asked.path == "/v1/models" else good(asked)

    found = probed(say, key=Key(SECRET, "a test"))
    assert (found.version, found.served) == ("1 Bearer ***", ("toy", "***"))
    assert SECRET not in repr(found) + str(found.lines())


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.sampled_from(["/v1/models", "/version", "/metrics", "/v1/chat/completions", "/v1/completions", "/tokenize"]),
    st.data(),
)
def test_no_garbage_makes_an_untyped_error(path: str, data: st.DataObject) -> None:
    garbage = st.sampled_from(
        [
            b"",
            b"{}",
            b"[]",
            b"5",
            b"null",
            b"\xff",
            b"[" * 5000,
            b'"\\ud83d"',
            b'{"data": [{}]}',
            b'{"data": [{"id": "\\ud83d"}]}',
            b'{"data": {"id": "toy"}}',
            b'{"data": [{"id": "toy", "max_model_len": 1e999}]}',
            b'{"tokens": [1, "a"]}',
            b'{"tokens": {}}',
            b'{"choices": []}',
            b'{"choices": [[]]}',
            b'{"version": {"a": [null]}}',
            b'{"error": {"code": 418}}',
            b'{"error": [5]}',
        ]
    )
    given_ = data.draw(garbage), data.draw(st.sampled_from([200, 200, 204, 299, 400, 401, 500]))
    try:
        found = probed(lambda asked: whole(*given_) if asked.path == path else good(asked), 2.0, model="")
    except TTSError as error:
        str(error).encode()
        return
    str(found.lines()).encode()


@pytest.mark.parametrize("depth", [300, 600, 900, 1200, 100_000])
def test_no_depth_of_nesting_makes_an_untyped_error(depth: int) -> None:
    deep = b'{"data": [{"id": "toy", "more": ' + b"[" * depth + b"]" * depth + b"}]}"
    try:
        told = str(probed(lambda asked: whole(deep) if asked.path == "/v1/models" else good(asked)).served)
    except ConfigError as error:
        told = str(error)
    assert told in ("('toy',)", "()") or "does not answer as an OpenAI-compatible server does" in told


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


def test_a_server_that_writes_always_the_same_obeys_no_filter_that_can_be_seen() -> None:
    found = probed(good)
    assert (found.filters, found.seeds, found.logprobs) == (False, False, False)
    assert dict(found.lines())["top_k, min_p"] == "not known: without them it writes the same; refused if asked for"
    with serving(ToyServer()) as url:
        assert dict(probe_server(url, "toy", Key()).lines())["top_k, min_p"] == "obeyed"


# Urls -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [" http://a:1", "http://a:1\n", "\thttp://a:1/ ", "http://a:1//", "http://a:1/v1/"])
def test_what_stands_around_a_url_is_no_part_of_it(url: str) -> None:
    assert roots(url)[0] == "http://a:1/v1"


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("127.0.0.1:8000", "did you mean http://127.0.0.1:8000?"),
        ("localhost:8000/v1", "did you mean http://localhost:8000/v1?"),
        ("api.example.org/v1", "did you mean http://api.example.org/v1?"),
        ("toy", "for example http://localhost:8000"),
        ("http://a?", "for example http://localhost:8000"),
        ("http://a/v1#", "for example http://localhost:8000"),
        ("http://a b", "for example http://localhost:8000"),
        ("http://exam\tple", "for example http://localhost:8000"),
        ("http://a:0", "for example http://localhost:8000"),
        ("http://[::1", "for example http://localhost:8000"),
        ("http://\u2603.example", "for example http://localhost:8000"),
        ("http://\x00", "for example http://localhost:8000"),
    ],
)
def test_what_is_no_url_has_a_hint(url: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=r"http://.*https://.*host") as caught:
        roots(url)
    assert caught.value.hint == hint
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@[::1",
        "me:hunter2@host:80",
        "http:/me:hunter2@host",
        "http://a?key=hunter2",
        "http://a#hunter2",
    ],
)
def test_a_secret_in_a_url_is_not_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        roots(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://a..b", "http://" + "a" * 300, "http://-x-", "http://%zz/"])
def test_a_host_that_cannot_be_is_one_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def nowhere(host: Any, *args: Any, **more: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        name.encode("idna")  # as the real one does
        if name != "127.0.0.1":
            raise socket.gaierror(-2, "Name or service not known")
        return real(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    with pytest.raises(ConfigError, match="cannot be reached"):
        probe_server(url, "toy", Key())


@pytest.mark.parametrize("behind", ["/v1/chat/completions", "/v1/completions/", "/v1/models"])
def test_the_url_of_an_endpoint_is_answered_with_that_of_the_api(behind: str) -> None:
    with serving(ToyServer()) as url, pytest.raises(ConfigError) as caught:
        probe_server(url + behind, "toy", Key())
    assert caught.value.hint == f"give the url of its API, for example {url}/v1"
