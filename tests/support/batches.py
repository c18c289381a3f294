"""A server with the API for files and batches in front of a live one, which answers their requests.

The requests are real HTTP on this machine. The server counts the requests that it executes, since those are paid. Its
ids have characters that a path must quote. A test may act at events. The events "uploaded", "created", "polled" and
"fetched" come before the reply is sent, so that a client that dies there does not get the reply.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx

from tests.support.guard import LIMIT_S

_OVER = ("completed", "failed", "expired", "cancelled")


@dataclass
class Batch:
    """A batch on the server."""

    id: str
    input: str
    endpoint: str
    metadata: Any
    created_at: int
    lines: list[dict[str, Any]]
    status: str = "validating"
    at: int = 0  # lines that have been executed
    output: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    polls: int = 0
    why: Any = None


@dataclass(kw_only=True)
class BatchServer:
    """What the server does, and what it recorded.

    Args:
        live: The url of the server that answers.
        at_once: Requests that are executed between two polls.
        expires: Polls after which a batch expires; None: none does.
        fault: The status of a request in place of its execution, by its number from 0; 0: none.
        fails: Why batches fail as a whole; None: they do not.
        strange: Lines that the file of errors has beside those of its requests.
        event: Called with the name of an event.
        page: The most batches of a page of the list.
    """

    live: str
    at_once: int = 1_000_000
    expires: int | None = None
    fault: Callable[[int], int] = lambda _number: 0
    fails: Any = None
    strange: list[Any] = field(default_factory=list)
    event: Callable[[str], None] = lambda _name: None
    download: Callable[[bytes, int], bytes] = lambda content, _number: content
    page: int = 2
    has_batches: bool = True
    files: dict[str, bytes] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    paid: Counter[str] = field(default_factory=Counter)  # executed requests, by custom_id
    events: Counter[str] = field(default_factory=Counter)
    keys: list[str] = field(default_factory=list)  # of each call of the API for batches

    def __post_init__(self) -> None:
        self.ids, self.numbers, self.lock = itertools.count(1), itertools.count(), threading.RLock()
        self.client = httpx.Client(timeout=LIMIT_S)

    def note(self, name: str) -> None:
        self.events[name] += 1
        self.event(name)

    def reply(self, method: str, path: str, query: Any, headers: Any, content: bytes) -> tuple[int, bytes, str]:
        parts = [unquote(part) for part in path.split("/")[1:]]
        if parts[:2] not in (["v1", "files"], ["v1", "batches"]) or not self.has_batches:
            told = self.client.request(
                method, self.live + path, content=content, headers={"Content-Type": "application/json"}
            )
            return told.status_code, told.content, told.headers["Content-Type"]
        self.keys.append(headers.get("Authorization", ""))
        with self.lock:
            status, found = self.reply_batches(method, parts[1:], query, headers, content)
        return status, found if isinstance(found, bytes) else json.dumps(found).encode(), "application/json"

    def reply_batches(self, method: str, parts: list[str], query: Any, headers: Any, content: bytes) -> tuple[int, Any]:
        match method, parts:
            case "POST", ["files"]:
                name = f"file/in?{next(self.ids)}"
                boundary = headers["Content-Type"].partition("boundary=")[2].encode()
                fields = content.split(b"--" + boundary)
                assert any(b'name="purpose"' in one and one.rstrip().endswith(b"batch") for one in fields)
                [file] = [one for one in fields if b'name="file"' in one]
                self.files[name] = file.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
                self.note("uploaded")
                return 200, {"id": name, "object": "file", "bytes": len(self.files[name]), "purpose": "batch"}
            case "GET", ["files", name, "content"]:
                self.note("fetched")
                if name not in self.files:
                    return 404, {"error": {"message": "No such File object"}}
                return 200, self.download(self.files[name], self.events["fetched"])
            case "POST", ["batches"]:
                posted = json.loads(content)
                assert posted["completion_window"] == "24h"
                lines = [json.loads(line) for line in self.files[posted["input_file_id"]].splitlines()]
                number = next(self.ids)
                batch = Batch(
                    f"batch/{number}?a#b",
                    posted["input_file_id"],
                    posted["endpoint"],
                    posted["metadata"],
                    2**31 + number,
                    lines,
                )
                self.batches.append(batch)
                self.note("created")
                return 200, self.batch_json(batch)
            case "GET", ["batches"]:
                newest = self.batches[::-1]
                begin = next((i + 1 for i, one in enumerate(newest) if one.id == query.get("after", [""])[0]), 0)
                page = newest[begin : begin + self.page]
                more = begin + len(page) < len(newest)
                return 200, {"object": "list", "data": [self.batch_json(one) for one in page], "has_more": more}
            case "GET", ["batches", name]:
                [batch] = [one for one in self.batches if one.id == name] or [None]
                if batch is None:
                    return 404, {"error": {"message": f"No batch found with id {name!r}"}}
                self.advance(batch)
                self.note("polled")
                return 200, self.batch_json(batch)
            case "POST", ["batches", name, "cancel"]:
                [batch] = [one for one in self.batches if one.id == name]
                batch.status = "cancelling"
                return 200, self.batch_json(batch)
            case _:
                return 404, {"error": {"message": "Not Found"}}

    def batch_json(self, batch: Batch) -> dict[str, Any]:
        body = {
            "id": batch.id,
            "object": "batch",
            "endpoint": batch.endpoint,
            "status": batch.status,
            "metadata": batch.metadata,
        }
        body |= {"input_file_id": batch.input, "created_at": batch.created_at, "errors": batch.why}
        body |= {
            "request_counts": {"total": len(batch.lines), "completed": len(batch.output), "failed": len(batch.errors)}
        }
        if batch.status in _OVER:
            for name, lines in (("output", batch.output), ("error", batch.errors)):
                if lines:
                    file = f"file/{name}?{batch.id}"
                    self.files[file] = b"".join(
                        one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in lines
                    )
                    body[f"{name}_file_id"] = file
        return body

    def advance(self, batch: Batch) -> None:
        batch.polls += 1
        if batch.status in _OVER:
            return
        if self.fails is not None:
            batch.status, batch.why = "failed", self.fails
            return
        ends = {"cancelling": "cancelled"}.get(batch.status) or (
            "expired" if self.expires is not None and batch.polls > self.expires else ""
        )
        if not ends:
            batch.status = "in_progress"
            for line in batch.lines[batch.at : batch.at + self.at_once]:
                self.execute(batch, line)
            batch.at = min(len(batch.lines), batch.at + self.at_once)
            ends = "completed" if batch.at == len(batch.lines) else ""
        for line in batch.lines[batch.at :] if ends in ("expired", "cancelled") else ():
            error = {"code": f"batch_{ends}", "message": "it was not executed"}
            batch.errors.append({"id": "x", "custom_id": line["custom_id"], "response": None, "error": error})
        if ends:
            batch.status = ends
            batch.errors += self.strange

    def execute(self, batch: Batch, line: Any) -> None:
        assert line["method"] == "POST"
        assert line["url"] == batch.endpoint
        status = self.fault(next(self.numbers))
        if status:
            body = {"error": {"message": "as it was told", "type": "invalid_request_error"}}
        else:
            told = self.client.post(self.live + line["url"], json=line["body"])
            status, body = told.status_code, told.json()
            self.paid[line["custom_id"]] += status == 200
        response = {"status_code": status, "request_id": "r", "body": body}
        (batch.output if status == 200 else batch.errors).append(
            {"id": "x", "custom_id": line["custom_id"], "response": response, "error": None}
        )


@contextmanager
def serving_batches(server: BatchServer) -> Generator[str]:
    """Serve on this machine alone; gives the url."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def answer(self) -> None:
            parts = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                status, told, kind = server.reply(
                    self.command, parts.path, parse_qs(parts.query), self.headers, content
                )
            except ConnectionError:  # as an event that breaks the connection
                self.close_connection = True
                return
            except Exception as failure:  # noqa: BLE001 - shown to the client, whose test fails by it
                status, told, kind = 418, json.dumps({"error": {"message": repr(failure)}}).encode(), "application/json"
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 2048

        def handle_error(self, request: Any, client_address: Any) -> None:  # a client that was killed
            pass

    listening = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_address[1]}"
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()
        server.client.close()
