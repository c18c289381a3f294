"""Texts to vectors, for clustering: the default needs no model and no download."""

from __future__ import annotations

import functools
import importlib
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tts._core.threads import run_in_thread
from tts.checks import check_int, check_text
from tts.errors import ConfigError, missing_extra


class Embedder(Protocol):
    """Turns texts into vectors of one length."""

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return unit vectors [texts, dimensions] (zeros for an empty text)."""
        ...


@runtime_checkable
class CountedEmbedder(Protocol):
    """An embedder that reports the tokens that it reads, because a server computes the vectors."""

    async def embed_and_count(self, texts: Sequence[str]) -> tuple[NDArray[np.float64], int | None]:
        """Return the vectors of `Embedder.embed`, and the number of tokens that were read.

        The number is None where the server does not report it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedNgrams:
    """Counts of hashed character n-grams, normalised: near-copies are near, meaning is not seen.

    Args:
        size: Characters in an n-gram.
        dimensions: The dimensions of the vectors.
    """

    size: int = 3
    dimensions: int = 256

    def __post_init__(self) -> None:
        check_int("size", self.size, 1)
        check_int("dimensions", self.dimensions, 1)

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """See `Embedder.embed`."""
        return self.vectors(texts)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the unit vectors of texts, [texts, dimensions]; zeros for an empty text."""
        vectors = np.zeros((len(texts), self.dimensions))
        for row, text in enumerate(texts):
            words = " ".join(text.split())
            padded = f" {words} " if words else ""
            ngrams = [padded[start : start + self.size] for start in range(len(padded) - self.size + 1)]
            hashed = [zlib.crc32(ngram.encode()) % self.dimensions for ngram in ngrams]
            vectors[row] = np.bincount(np.array(hashed, np.int64), minlength=self.dimensions)
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.divide(vectors, norms, out=vectors, where=norms > 0)


NGRAMS = HashedNgrams()  # the embedder where none was given


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    """A model of sentences, on the machine's own processors, loaded once.

    Texts that mean the same are near each other.

    Args:
        model: A name of a sentence-transformers model, or a local folder.

    Raises:
        MissingDependency: sentence-transformers is not installed.
        ConfigError: there is no such model (raised at the first use).
    """

    model: str = "all-MiniLM-L6-v2"

    def __post_init__(self) -> None:
        check_text("model", self.model)
        if find_spec("sentence_transformers") is None:
            raise missing_extra("sentence-transformers", "embeddings", "the embedder 'sentences'")

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """See `Embedder.embed`."""
        return await run_in_thread(
            lambda: np.array(_sentences(self.model).encode(list(texts), normalize_embeddings=True), dtype=np.float64)
        )


def refuse_unpriced(embedder: Embedder | CountedEmbedder, units: Collection[str]) -> None:
    """Raise ConfigError where flops or dollars are limited, but the embedder's part of them is unknown.

    The size and the price of an embedder on a server are not known.
    """
    limited = [unit for unit in ("flops", "usd") if unit in units]
    if limited and isinstance(embedder, CountedEmbedder):
        raise ConfigError(
            f"the budget limits {' and '.join(limited)}, but what the embedder {embedder} costs in them is not known",
            hint="take the embedder 'sentences' or 'ngrams', or a budget in other units",
        )


@functools.cache
def _sentences(model: str) -> Any:
    """Return a model of sentence-transformers, which is loaded once.

    Raises:
        ConfigError: there is no such model.
    """
    sentence_transformers = importlib.import_module("sentence_transformers")
    try:
        return sentence_transformers.SentenceTransformer(model, device="cpu")
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"model is {model!r}, but must be one that sentence-transformers can load: {reason}",
            hint="name one that is installed or can be downloaded, or a local folder",
        ) from None
