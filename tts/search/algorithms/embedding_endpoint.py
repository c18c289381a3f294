"""Texts to vectors by an embeddings endpoint of the OpenAI API."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts.backends.openai.errors import Key, ServerError
from tts.backends.openai.http import HttpClient, Timeouts, roots
from tts.checks import check_text
from tts.errors import EngineError

KEY_VARIABLE = "TTS_EMBEDDINGS_KEY"  # a separate variable: the key of the policy's server is not sent to other servers
_BATCH = 256  # texts in one request
_TIMEOUTS = Timeouts(concurrency=4, tries=3, connect_s=5.0, first_s=60.0, call_s=120.0, longest_wait_s=10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A server that returns vectors of texts.

    Such servers are vLLM, llama.cpp, TEI, Ollama, and hosted services with that API.

    Args:
        url: The url of the server, with or without /v1. The environment variable TTS_EMBEDDINGS_KEY has its key, if it
            needs one.
        model: The model's name on the server.

    Raises:
        ConfigError: the url is none, or holds a secret.

    Cost: the texts' tokens, which are input: recorded as prompt tokens, limited by `seconds` alone. Budgets in `usd`
    and `flops` refuse it.
    """

    url: str
    model: str

    def __post_init__(self) -> None:
        check_text("model", self.model)
        check_text("url", self.url)
        roots(self.url)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """See `Embedder.embed`."""
        return (await self.embed_and_count(texts))[0]

    async def embed_and_count(self, texts: Sequence[str]) -> tuple[NDArray[np.float64], int | None]:
        """See `CountedEmbedder.embed_and_count`.

        Raises:
            EngineError: the server cannot be reached, refuses the request, or sends no vectors.
        """
        key = Key.find(KEY_VARIABLE) if os.environ.get(KEY_VARIABLE) else Key()
        root = roots(self.url.strip().rstrip("/").removesuffix("/embeddings"))[0]
        http = HttpClient(root, key, _TIMEOUTS)
        vectors: list[list[float]] = []
        tokens: int | None = 0
        try:
            for start in range(0, len(texts), _BATCH):
                batch = [text or " " for text in texts[start : start + _BATCH]]
                body = {"model": self.model, "input": batch, "encoding_format": "float"}
                reply = await http.request_json("/embeddings", body, position=start)
                vectors += self._vectors(reply, len(batch))
                usage = reply.get("usage")
                batch_tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
                if type(batch_tokens) is not int or batch_tokens < 0:
                    tokens = None  # a batch without a count makes the sum unknown
                elif tokens is not None:
                    tokens += batch_tokens
        except ServerError as failure:
            raise EngineError(
                f"the embeddings endpoint {root} failed: {failure.kind}: {failure.cause}",
                hint=f"check url and model; {KEY_VARIABLE} has its key",
            ) from None
        finally:
            await http.close()
        units = np.array(vectors, dtype=np.float64).reshape(len(texts), -1) if vectors else np.zeros((0, 1))
        units[[not text.strip() for text in texts]] = 0.0
        norms = np.linalg.norm(units, axis=1, keepdims=True)
        return np.divide(units, norms, out=units, where=norms > 0), tokens

    def _vectors(self, reply: Any, count: int) -> list[list[float]]:
        """Return the vectors of a reply, in the order of the texts.

        Raises:
            ServerError: the reply has not one finite vector, of equal length, for each of `count` texts.
        """
        data: Any = reply.get("data")
        try:
            entries = sorted((int(entry.get("index", place)), entry["embedding"]) for place, entry in enumerate(data))
            vectors = [[float(value) for value in vector] for _index, vector in entries]
        except (TypeError, ValueError, KeyError, AttributeError):
            vectors = []
        has_one_length = len({len(vector) for vector in vectors}) == 1
        if len(vectors) != count or not has_one_length or not np.isfinite(vectors).all():
            raise ServerError(
                "BadReply", f"{len(vectors)} vectors for {count} texts, where each text needs one of equal length"
            )
        return vectors
