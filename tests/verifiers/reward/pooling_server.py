"""A server that answers as vLLM's /pooling and /classify do, with what a tiny model really computes; and ways to answer
wrongly.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Outputs = Callable[[Sequence[int]], list[list[float]]]  # token ids -> a row of outputs a token
Change = Callable[[dict[str, Any]], Any]  # what becomes of a reply


class Pooling:
    """What the server is to answer.

    Args:
        outputs: rows of a text, before any activation. steps: the token whose rows alone are returned (vLLM's STEP
            pooling); None: all.
        change: of each good reply. status: of the replies to the first requests; 0 closes the connection without a
            word, and less than 0 says that it is compressed, which it is not.
        sleeps: seconds before each reply. key: that it wants; a refusal repeats what it was sent.
    """

    def __init__(
        self,
        outputs: Outputs,
        *,
        steps: int | None = None,
        change: Change = lambda reply: reply,
        status: Sequence[int] = (),
        sleeps: float = 0.0,
        key: str = "",
    ) -> None:
        self.outputs = outputs
        self.steps = steps
        self.change = change
        self.status = list(status)
        self.sleeps = sleeps
        self.key = key
        self.requests: list[dict[str, Any]] = []
        self.over = threading.Event()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        self.requests.append({"path": path, **body})
        self.over.wait(self.sleeps)
        if self.status:
            status = self.status.pop(0)
            return status, json.dumps({"error": {"message": "as it was told", "type": "X", "code": status}}).encode()
        assert body["use_activation"] is False
        data = []
        for index, ids in enumerate(body["input"]):
            rows = self.outputs(ids)
            if path == "/classify":
                data.append({"index": index, "label": None, "probs": rows[-1], "num_classes": len(rows[-1])})
            else:
                assert body["task"] == "token_classify"
                kept = [row for row, token in zip(rows, ids, strict=True) if self.steps in (None, token)]
                data.append({"index": index, "object": "pooling", "data": kept})
        tokens = sum(map(len, body["input"]))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0, "prompt_tokens_details": None}
        reply = self.change(
            {
                "id": "pool-1",
                "object": "list",
                "created": int(time.time()),
                "model": body["model"],
                "data": data,
                "usage": usage,
            }
        )
        return 200, reply if isinstance(reply, bytes) else json.dumps(reply).encode()


@contextmanager
def serving(pooling: Pooling) -> Iterator[str]:
    """Serve on this machine alone; gives the url."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            sent = self.headers.get("Authorization", "")
            if pooling.key and sent != f"Bearer {pooling.key}":
                status, content = 401, json.dumps({"error": f"Unauthorized: {sent}"}).encode()
            else:
                status, content = pooling.answer(self.path, body)
            if not status:
                self.close_connection = True
                return
            self.send_response(abs(status))
            if status < 0:
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        pooling.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
