"""Who may ask: hosts, web pages, bodies, keys."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.addons.gateway.asking import TOY, TestClient, ask, bearer, create_app, refused
from tests.addons.gateway.wire.started import server
from tests.support.guard import LIMIT_S
from tts.errors import ConfigError
from tts_addons.gateway.access import LOCAL, Access, Keys, read_keys
from tts_addons.gateway.config import gateway_config
from tts_addons.gateway.server import serve

KEY, OTHER = "key-of-anna-0123456789", "key-of-bert-0123456789"


@pytest.fixture
def keys(tmp_path) -> Path:
    path = tmp_path / "keys.txt"
    path.write_text(f"# clients\nanna {KEY}\nbert {OTHER}\n")
    return path


FOREIGN = ["evil.example", "evil.example:8400", "127.0.0.1.evil.example", "", "localhost.evil.example"]


@pytest.mark.parametrize("host", [*FOREIGN, "localhost", "127.0.0.1:8400", "[::1]:8400", "LOCALHOST:1"])
def test_this_machine_is_served_and_a_foreign_host_is_refused(client, host):
    reply = ask(client(), {"host": host})
    if host in FOREIGN:
        refused(reply, 403, None, "foreign_host")
    else:
        assert reply.status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1"])
def test_a_foreign_page_is_refused(client, origin):
    gateway = client()
    refused(ask(gateway, {"origin": origin}), 403, None, "foreign_origin")
    refused(gateway.get("/v1/models", headers={"origin": origin}), 403, None, "foreign_origin")
    reply = gateway.options("/v1/chat/completions", headers={"origin": origin, "access-control-request-method": "POST"})
    assert "access-control-allow-origin" not in reply.headers


def test_the_servers_own_page_and_those_of_the_operator_are_served(client):
    gateway = client(origins=["https://chat.example.org"])
    assert ask(gateway, {"origin": "http://127.0.0.1"}).status_code == 200
    reply = ask(gateway, {"origin": "https://chat.example.org"})
    assert reply.headers["access-control-allow-origin"] == "https://chat.example.org"


KINDS = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "")
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "headers", [*({"content-type": kind} for kind in KINDS), {**JSON, "content-encoding": "gzip"}], ids=str
)
def test_a_body_that_a_form_could_send_or_that_is_compressed_is_refused(client, headers):
    reply = client().post("/v1/chat/completions", content=b'{"model": "toy"}', headers=headers)
    refused(reply, 415, None, "unsupported_media_type")


@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer", "Bearer wrong-key-0123456789", f"Basic {KEY}", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}"],
)
def test_without_a_key_nothing_is_served_but_health(client, keys, authorization):
    gateway = client(keys=str(keys))
    headers = {} if authorization is None else {"authorization": authorization}
    refused(ask(gateway, headers), 401, None, "invalid_api_key")
    refused(gateway.get("/v1/models", headers=headers), 401, None, "invalid_api_key")
    assert gateway.get("/health", headers=headers).json() == {"status": "ok"}


def test_a_key_opens_and_stands_nowhere(client, keys, caplog):
    gateway = client(keys=str(keys))
    with caplog.at_level(logging.DEBUG):
        reply = ask(gateway, bearer("anna"))
        wrong = ask(gateway, {"authorization": "Bearer secret-but-wrong-key"})
    assert reply.status_code == 200
    assert KEY not in reply.text + str(reply.headers)
    assert "secret-but-wrong" not in wrong.text
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("tts")]
    assert ours
    assert not any(KEY in line or "secret-but-wrong" in line for line in ours)


def test_keys_that_are_not_valid_are_refused_without_being_shown(tmp_path):
    path = tmp_path / "keys.txt"
    for text in ("anna", "anna short", f"anna {KEY}\nanna {OTHER}", f"anna {KEY}\nbert {KEY}", "# none\n"):
        path.write_text(text)
        with pytest.raises(ConfigError) as refusal:
            read_keys(str(path))
        assert KEY not in str(refusal.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys(str(tmp_path / "absent"))


def test_an_address_that_others_reach_needs_keys():
    with pytest.raises(ConfigError, match="there are no keys"):
        serve(gateway_config({"models": {"toy": {}}}), "0.0.0.0", 0)


def test_a_client_cannot_spend_more_than_its_share(client, keys):
    gateway = client(keys=str(keys), limits={"client_tokens": 700})
    anna, bert = bearer("anna"), bearer("bert")
    spent = ask(gateway, anna, tts={"budget": 600}).json()["tts"]["usage"]["generated_tokens"]
    reply = ask(gateway, anna, tts={"budget": 700})
    message = refused(reply, 429, "tts.budget.tokens", "insufficient_quota")
    assert f"{700 - spent} are left" in message
    told = [reply.headers[f"x-ratelimit-{name}-tokens"] for name in ("limit", "remaining")]
    assert told == ["700", str(700 - spent)]
    assert ask(gateway, anna, tts={"budget": 700 - spent}).status_code == 200
    assert ask(gateway, bert, tts={"budget": 700}).status_code == 200


def test_a_reply_that_has_begun_is_not_begun_again_by_an_error():
    sent: list[Any] = []

    async def breaks(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise OSError("the disk is full")

    async def send(message: Any) -> None:
        sent.append(message)

    statuses: list[int] = []
    access = Access(breaks, keys=lambda: Keys({}), hosts=LOCAL, origins=(), count=statuses.append)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    with pytest.raises(OSError, match="the disk is full"):
        asyncio.run(access(scope, None, send))  # type: ignore[arg-type]
    assert [message["type"] for message in sent] == ["http.response.start"]
    assert statuses == [200]


def test_a_preflight_is_answered_with_what_it_asks_and_replies_show_their_headers(client):
    gateway, origin = client(origins=["https://chat.example.org"]), {"origin": "https://chat.example.org"}
    asked = "authorization,content-type,traceparent,x-stainless-os,x-stainless-retry-count"
    preflight = {**origin, "access-control-request-method": "POST", "access-control-request-headers": asked}
    reply = gateway.options("/v1/chat/completions", headers=preflight)
    assert (reply.status_code, reply.headers["access-control-allow-headers"]) == (200, asked)
    shown = {name.strip() for name in ask(gateway, origin).headers["access-control-expose-headers"].split(",")}
    assert shown >= {"x-request-id", "retry-after"}
    assert "access-control-expose-headers" not in ask(gateway).headers


@pytest.mark.parametrize(("listens", "host", "status"), [
    ("0.0.0.0", "192.168.1.20:8400", 200), ("::", "[fd00::5]:8400", 200), ("0.0.0.0", "evil.example", 403),
    ("0.0.0.0", "192.168.1.20.evil.example", 403), ("127.0.0.1", "192.168.1.20:8400", 403),
])  # fmt: skip
def test_a_server_at_every_address_is_reached_by_each(keys, listens, host, status):
    app = create_app(gateway_config({**TOY, "keys": str(keys)}), hosts=[listens])
    with TestClient(app, base_url="http://127.0.0.1") as gateway:
        assert ask(gateway, {"host": host, "authorization": f"Bearer {KEY}"}).status_code == status


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/nothing"])
def test_each_error_has_the_number_of_its_request(client, path):
    gateway = client()
    replies = [gateway.post(path, json={"model": "nobody"}) for _ in range(2)]
    numbers = [one.headers["x-request-id"] for one in replies]
    assert all(one.status_code in (400, 404) for one in replies)
    assert len({*numbers}) == 2
    assert all(numbers)
    if path == "/v1/messages":
        assert (
            [one.json()["request_id"] for one in replies] == [one.headers["request-id"] for one in replies] == numbers
        )


def test_replies_and_streams_have_the_number_of_their_search(client):
    gateway = client()
    body = {"model": "toy", "max_tokens": 50, "messages": [{"role": "user", "content": "3 + 4 - 2"}]}
    whole = gateway.post("/v1/messages", json=body)
    assert whole.headers["request-id"] == whole.headers["x-request-id"] == whole.json()["tts"]["search"]
    streamed = gateway.post("/v1/messages", json={**body, "stream": True})
    assert streamed.headers["request-id"] == streamed.headers["x-request-id"]
    assert f"msg_{streamed.headers['request-id']}" in streamed.text
    assert gateway.get("/health").headers["x-request-id"]


def test_the_access_log_has_a_line_a_request_and_no_key(client, keys, caplog):
    gateway = client(keys=str(keys))
    with caplog.at_level(logging.INFO, "tts.serve.access"):
        whole = ask(gateway, bearer("anna"))
        ask(gateway, {"authorization": "Bearer secret-but-wrong-key"})
        gateway.get("/v1/models?api_key=in-the-query", headers={"x-api-key": KEY})
    lines = [record.getMessage() for record in caplog.records if record.name == "tts.serve.access"]
    number = whole.headers["x-request-id"]
    assert re.fullmatch(rf'\S+ anna "POST /v1/chat/completions" 200 \d+\.\d{{3}} s {number}', lines[0])
    assert re.fullmatch(r'\S+ - "POST /v1/chat/completions" 401 \d+\.\d{3} s req_\S+', lines[1])
    assert re.fullmatch(r'\S+ anna "GET /v1/models" 200 \d+\.\d{3} s req_\S+', lines[2])
    assert not any(word in line for line in lines for word in (KEY, "secret-but-wrong", "in-the-query"))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_the_access_log_of_a_started_server_goes_to_standard_error(tmp_path, workers):
    config = {"models": {"toy": {}}, "store": str(tmp_path / "store.sqlite")}
    with server(tmp_path, config, "--workers", str(workers), "--access-log") as found:
        number = httpx.get(f"{found.url}/v1/models", timeout=LIMIT_S).headers["x-request-id"]
        until = time.monotonic() + LIMIT_S
        while number not in found.log.read_text() and time.monotonic() < until:
            time.sleep(0.01)
    (line,) = [line for line in found.log.read_text().splitlines() if number in line]
    assert re.fullmatch(rf'[\d :,-]+ 127\.0\.0\.1 anyone "GET /v1/models" 200 \d+\.\d{{3}} s {number}', line)
