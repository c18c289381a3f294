"""The toy server, with what of vLLM's own a benchmark asks for: health, metrics, and a cache that can be emptied."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.backends.openai.server import ToyServer


class FromPost:
    """A reader that turns the request for an empty cache into a GET."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.reader = reader

    async def readuntil(self, separator: bytes) -> bytes:
        return (await self.reader.readuntil(separator)).replace(b"POST /reset_prefix_cache", b"GET /reset_prefix_cache")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reader, name)


class VllmDouble(ToyServer):
    async def connected(self, reader: Any, writer: asyncio.StreamWriter) -> None:
        await super().connected(FromPost(reader), writer)  # type: ignore[arg-type]

    def got(self, path: str) -> tuple[int, Any]:
        if path in ("/health", "/reset_prefix_cache"):
            return 200, {}
        if path == "/metrics":
            return (
                200,
                f'vllm:generation_tokens_total{{engine="0"}} {sum(one.generated for one in self.served)}\n'.encode(),
            )
        return super().got(path)

    def check(self, body: Any) -> None:
        """Take both names of the cap, as vLLM does."""
        if "max_completion_tokens" in body:
            body["max_tokens"] = body.pop("max_completion_tokens")
        super().check(body)

    def divided(self, text: str) -> tuple[str, str]:
        """Return a problem of the toy's for every prompt; what stands behind it is a path."""
        return "3 + 4 - 2 + 9 - 8", super().divided(text)[1]


async def main() -> None:
    from benchmarks.servers.throughput import NAME, prompts

    server = VllmDouble(model=NAME, version="double", prompts=prompts(64))
    port = int(sys.argv[sys.argv.index("--port") + 1])
    async with await asyncio.start_server(server.connected, "127.0.0.1", port) as listening:
        await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
