"""A gateway with the toy: in this process, or behind a real socket where a real client asks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from starlette.testclient import TestClient

from tests.support.guard import LIMIT_S
from tts_addons.gateway.app import create_app
from tts_addons.gateway.config import gateway_config
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.server import GatewayServer, uvicorn_config

VOTE = "best_of_n(n=8) | majority"
TOY: dict[str, Any] = {
    "models": {"toy": {"strategy": VOTE, "budget": 2000, "presets": {"single": {"strategy": "single"}}}}
}
QUESTION = [{"role": "user", "content": "3 + 4 - 2"}]


def function_models(*names: str, strategy: str = "single", **more: Any) -> dict[str, Any]:
    """Return the models of `parts`, by their names."""
    return {name: {"backend": f"tests.addons.gateway.parts:{name}", "strategy": strategy, **more} for name in names}


def formed(schema: Any, **more: Any) -> dict[str, Any]:
    """Return the fields that ask for an answer of a JSON schema."""
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}}


def said(content: Any) -> dict[str, Any]:
    """Return the messages of one turn of the user."""
    return {"messages": [{"role": "user", "content": content}]}


def question(text: str, **fields: Any) -> dict[str, dict[str, Any]]:
    """Return a request of each API, by its path, that asks a question."""
    bodies = {
        "chat/completions": said(text),
        "responses": {"input": text},
        "messages": {**said(text), "max_tokens": 200},
    }
    return {f"/v1/{path}": {**body, **fields} for path, body in bodies.items()}


def bearer(name: str) -> dict[str, str]:
    """Return the headers of a client of `write_keys`."""
    return {"authorization": f"Bearer key-of-{name}-0123456789"}


def write_keys(folder: Path, *names: str) -> str:
    """Write a file with a key of each client; returns its path."""
    path = folder / "keys.txt"
    path.write_text("".join(f"{name} key-of-{name}-0123456789\n" for name in names))
    return str(path)


def http_scope(path: str, **more: Any) -> dict[str, Any]:
    """Return the scope of a JSON request, as a server gives it to an application."""
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": b"", "query_string": b"", "headers": headers}
    scope |= {"scheme": "http", "http_version": "1.1", "root_path": "", "server": ("127.0.0.1", 80)}
    return {**scope, "client": ("127.0.0.1", 1), **more}


@contextmanager
def serving(port: int = 0, **settings: Any) -> Iterator[GatewayServer]:
    """Serve at a port, 0: a free one; gives the server (see `url_of`)."""
    app = create_app(gateway_config({**TOY, **settings}))
    server = GatewayServer(uvicorn_config(app, port))
    started = threading.Event()
    startup = server.startup

    async def begin(sockets: Any = None) -> None:
        await startup(sockets)
        server.loop = asyncio.get_running_loop()  # pyright: ignore[reportAttributeAccessIssue]
        started.set()

    server.startup = begin  # pyright: ignore[reportAttributeAccessIssue]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert started.wait(LIMIT_S)
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(LIMIT_S)
        assert not thread.is_alive()


def url_of(server: GatewayServer) -> str:
    """The base url that a client of the API is given."""
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"


def ask(client: TestClient, headers: Any = None, **fields: Any) -> Any:
    """Ask for a chat completion."""
    return client.post("/v1/chat/completions", json={"model": "toy", "messages": QUESTION, **fields}, headers=headers)


def chunks(reply: Any) -> list[Any]:
    """Return the chunks of a stream that has been read."""
    return [json.loads(line.removeprefix("data: ")) for line in reply.text.splitlines() if line.startswith("data: {")]


def refused(reply: Any, status: int, param: str | None, code: str) -> str:
    """Check that a reply is an error in OpenAI's form; returns its message."""
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["code"]) == (param, code)
    assert "\n" not in error["message"]
    return error["message"]


def scored(choice: Any, skipped: int) -> tuple[float, bool]:
    """Read a choice as clients of log-likelihood tasks do: the sum behind the context, without the last token, and
    whether it is greedy.
    """
    values, tops = (choice["logprobs"][name][skipped:-1] for name in ("token_logprobs", "top_logprobs"))
    return sum(values), all(value == max(top.values()) for value, top in zip(values, tops, strict=True))


def spent_tokens(gateway: Gateway, client: str = "anyone") -> int:
    """Return the tokens that a client has spent of its own account in this period."""
    return gateway.books.spending(gateway.accounts.paying_account(client)).get("tokens", 0)
