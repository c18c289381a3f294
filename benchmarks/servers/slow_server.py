"""A server that streams completions at a set pace, as an unloaded GPU would.

    python -m benchmarks.servers.slow_server TOKENS GAP_S

The server counts how many completions it writes at once.

Out: {"port": ...} first, and {"most": ..., "written": ...} for every line in.
"""

from __future__ import annotations

import asyncio
import json
import sys


def chunk(event: object) -> bytes:
    data = b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


class Slow:
    def __init__(self, tokens: int, gap_s: float) -> None:
        self.now = self.most = self.written = 0
        self._gap_s = gap_s
        self._head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        self._tokens = [
            chunk({"choices": [{"index": 0, "text": f" {i}", "finish_reason": "length" if i + 1 == tokens else None}]})
            for i in range(tokens)
        ]
        used = {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": 8 + tokens}
        self._end = chunk({"choices": [], "usage": used}) + chunk(b"[DONE]") + b"0\r\n\r\n"

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                self.now += 1
                self.most = max(self.most, self.now)
                writer.write(self._head)
                for token in self._tokens:
                    await asyncio.sleep(self._gap_s)
                    self.written += 1
                    writer.write(token)
                writer.write(self._end)
                self.now -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def main() -> None:
    slow = Slow(int(sys.argv[1]), float(sys.argv[2]))
    server = await asyncio.start_server(slow.serve_connection, "127.0.0.1", 0, backlog=2048)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps({"most": slow.most, "written": slow.written}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
