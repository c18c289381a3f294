"""A model on a server that has tools: its replies follow a script, over real HTTP on this machine.

It takes tools, JSON schemas and pictures by chats, whole and streamed, as its owner declares. It stands for the model
alone: the gateway in front of it, and the agents that use the gateway, are real.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Script = Callable[[dict[str, Any]], dict[str, Any]]
PICTURE_TOKENS = 100
PROBED = "Count from one to twenty"  # in the prompts of a probe
_NONE: Mapping[str, str] = {}


class Refusal(Exception):
    """What a script raises so that the server refuses a request.

    Args:
        status: The status of the reply.
        message: The message of the error.
        headers: Further headers.
    """

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers


@dataclass
class Upstream:
    """The server: where it is, and what it was asked.

    Args:
        url: The url.
        bodies: The bodies of all requests for chats.
    """

    url: str
    bodies: list[dict[str, Any]] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    """Answers by the script of its server."""

    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.send(200, {"object": "list", "data": [{"id": "scripted", "owned_by": self.server.owner}]})
        else:
            self.send(404, {"error": {"message": "no"}})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/chat/completions":
            self.send(404, {"error": {"message": "there is no such endpoint"}})
            return
        self.server.upstream.bodies.append(body)
        try:
            is_probe = PROBED in str(body["messages"]) and not {"tools", "response_format"} & body.keys()
            message = {"content": "six, seven, eight"} if is_probe else self.server.script(body)
        except Refusal as refusal:
            self.send(refusal.status, {"error": {"message": refusal.message}}, refusal.headers)
            return
        finish = message.pop("finish", "tool_calls" if message.get("tool_calls") else "stop")
        usage, several = used(body, message), (body.get("n") or 1) if self.server.several else 1
        usage["completion_tokens"] *= several
        if body.get("stream"):
            self.stream(message, finish, usage, several)
            return
        answer = {"message": {"role": "assistant", "content": None, **message}, "finish_reason": finish}
        self.send(200, {"choices": [{"index": index, **answer} for index in range(several)], "usage": usage})

    def stream(self, message: dict[str, Any], finish: str, usage: dict[str, int], several: int) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for index in range(several):
            for delta in deltas(message):
                self.event({"choices": [{"index": index, "delta": delta, "finish_reason": None}]})
                self.server.between()
            self.event({"choices": [{"index": index, "delta": {}, "finish_reason": finish}]})
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def send(self, status: int, value: Any, headers: Mapping[str, str] = _NONE) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        for name in headers:
            self.send_header(name.replace("_", "-"), headers[name])
        self.end_headers()
        self.wfile.write(content)

    def event(self, value: Any) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()


class _Server(ThreadingHTTPServer):
    """A server with its script."""

    daemon_threads = True
    request_queue_size = 128  # connections that wait on a busy machine: a shorter queue breaks them

    def __init__(
        self, upstream: Upstream, script: Script, between: Callable[[], None], *, several: bool, owner: str
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.script, self.between, self.several = upstream, script, between, several
        self.owner = owner


@contextmanager
def serving_script(
    script: Script, between: Callable[[], None] = lambda: None, *, several: bool = False, owner: str = "openai"
) -> Iterator[Upstream]:
    """Serve a model whose messages follow a script.

    Args:
        script: Makes a message from the body of a request.
        between: Called after each piece of a stream.
        several: Whether one call may ask for several answers, whose prompt counts once.
        owner: The owner of the model, by which the kind of server is recognised.
    """
    upstream = Upstream("")
    server = _Server(upstream, script, between, several=several, owner=owner)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    upstream.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def check_template(body: dict[str, Any]) -> None:
    """Refuse a history as a template does that takes one system turn, at the beginning, and turns in alternation."""
    roles = [turn["role"] for turn in body["messages"]]
    if "system" in roles[1:]:
        raise Refusal(400, "System message must be at the beginning.")
    if any(first == second and first != "tool" for first, second in itertools.pairwise(roles)):
        raise Refusal(400, "Conversation roles must alternate user/assistant.")
    for turn in body["messages"]:
        for one in turn.get("tool_calls", ()):
            assert isinstance(json.loads(one["function"]["arguments"]), dict)


def call(name: str, arguments: Any, number: int = 0) -> dict[str, Any]:
    """Return a message that calls a tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "content": None,
        "tool_calls": [{"index": 0, "id": f"up_{number}", "type": "function", "function": function}],
    }


def deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a message in pieces: each text and each call's arguments in two."""
    for name in ("reasoning_content", "content"):
        text = message.get(name) or ""
        for piece in (text[: len(text) // 2], text[len(text) // 2 :]) if text else ():
            yield {name: piece}
    for one in message.get("tool_calls", ()):
        name, told = one["function"]["name"], one["function"]["arguments"]
        yield {"tool_calls": [{**one, "function": {"name": name, "arguments": told[: len(told) // 2]}}]}
        yield {"tool_calls": [{"index": one["index"], "function": {"arguments": told[len(told) // 2 :]}}]}


def used(body: dict[str, Any], message: dict[str, Any]) -> dict[str, int]:
    """Return the tokens of a reply: four bytes each, and those of pictures."""
    texts, pictures = [], 0
    for turn in body["messages"]:
        content = turn["content"] or ""
        texts.append(content if isinstance(content, str) else "".join(part.get("text", "") for part in content))
        pictures += 0 if isinstance(content, str) else sum(part["type"] == "image_url" for part in content)
    prompt = len("".join(texts).encode()) // 4 + 1 + PICTURE_TOKENS * pictures
    completion = len(json.dumps(message)) // 4
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
