"""The text of a search of one sample is in its stream while the model writes it, on each API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from tests.addons.gateway.asking import serving, url_of
from tests.addons.gateway.wire.frames import read, read_stream
from tests.addons.gateway.wire.upstream import serving_script
from tests.support.guard import LIMIT_S

MESSAGE = {"reasoning_content": "One should greet back, and ask.", "content": "Hello! How are you </th"}


def pieces(path: str, line: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces of thought and text in a line of a stream, and its error, if there is one."""
    event: dict[str, Any] = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else {}
    if event.get("error"):
        yield "error", event["error"].get("code") or event["error"]["message"]
    elif path == "chat/completions":
        delta = (event.get("choices") or [{"delta": {}}])[0]["delta"]
        yield from (
            (kind, delta[name])
            for kind, name in (("thought", "reasoning_content"), ("text", "content"))
            if delta.get(name)
        )
    elif path == "messages" and event.get("type") == "content_block_delta":
        delta = event["delta"]
        yield from ((kind, delta[name]) for kind, name in (("thought", "thinking"), ("text", "text")) if name in delta)
    elif path == "responses" and event.get("type", "").endswith(
        (".output_text.delta", ".reasoning_summary_text.delta")
    ):
        yield "text" if "output_text" in event["type"] else "thought", event["delta"]


def body(path: str, **more: Any) -> dict[str, Any]:
    """Return a request for a stream."""
    turn: dict[str, Any] = (
        {"input": "hello"} if path == "responses" else {"messages": [{"role": "user", "content": "hello"}]}
    )
    return {"model": "scripted", "stream": True, "max_tokens": 200, **turn, **more}


PATHS = ("chat/completions", "responses", "messages")


def stream(path: str, message: dict[str, Any], frees: int, **more: Any) -> tuple[Any, list[tuple[str, str]], list[str]]:
    """Return a whole reply, and the pieces and lines of a stream; the model goes on as its pieces arrive.

    Args:
        path: The path of an API.
        message: What the model writes.
        frees: How many pieces the model writes for each one that has arrived.
        more: Further fields of the request.
    """
    goes_on, holds = threading.Semaphore(0), threading.Event()

    def between() -> None:
        if holds.is_set():
            assert goes_on.acquire(timeout=LIMIT_S)

    seen, lines = list[tuple[str, str]](), list[str]()
    with serving_script(lambda _: message, between) as upstream:
        models = {"scripted": {"model": "scripted", "url": upstream.url, "strategy": "single"}}
        with serving(models=models) as server, httpx.Client(timeout=LIMIT_S) as http:
            url = f"{url_of(server)}/{path}"
            # which probes the server, and learns nothing of the text
            whole = http.post(url, json=body(path, stream=False))
            assert whole.status_code == 200
            holds.set()
            with http.stream("POST", url, json=body(path, **more)) as reply:
                for line in reply.iter_lines():
                    lines.append(line)
                    for piece in pieces(path, line):
                        seen.append(piece)
                        goes_on.release(frees)
    return whole, seen, lines


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("message", [MESSAGE, {"content": MESSAGE["content"]}], ids=["with a thought", "text alone"])
def test_each_half_is_sent_before_the_model_writes_the_next(path, message):
    with_usage: Any = {"stream_options": {"include_usage": True}} if path == "chat/completions" else {}
    whole, seen, lines = stream(path, message, 1, **with_usage)
    written = {kind: "".join(text for one, text in seen if one == kind) for kind in ("thought", "text", "error")}
    assert written == {"thought": message.get("reasoning_content", ""), "text": message["content"], "error": ""}
    assert len([kind for kind, _ in seen if kind == "text"]) >= 2
    # as the vendors' own models check it
    found = read_stream(path.partition("/")[0], SimpleNamespace(text="\n".join(lines)))
    whole_found = read(path.partition("/")[0], whole)
    assert (found.text, found.finish, found.usage) == (whole_found.text, whole_found.finish, whole_found.usage)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_a_model_that_thinks_twice_keeps_its_stream(path):
    """Text that was sent before the second thought stays, and the response follows it."""
    content = "<think>First 5?</think>Let me check again. <think>Or 3?</think>The answer is 4."
    _whole, seen, _lines = stream(path, {"content": content}, 20)  # text was sent before the second thought begins
    written = {kind: "".join(text for one, text in seen if one == kind) for kind in ("text", "error")}
    assert [kind for kind, _ in seen].count("text") >= 2
    assert written["error"] == ""
    assert written["text"].endswith("The answer is 4.")
    assert "First" not in written["text"]
    assert "Or 3" not in written["text"]
