"""Medoid: the answer that is nearest to all others, by vectors of their texts.

The selection is for answers that no two samples write alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from tts.checks import Rule, check_text, number
from tts.errors import EngineError
from tts.registry import parse_call
from tts.search.algorithms.clustering import clusters
from tts.search.algorithms.embedding import Embedder, HashedNgrams
from tts.search.needs import Needs
from tts.search.parameters import Truncated
from tts.search.parts import EMBEDDERS, Selected, Selection
from tts.search.search import Search
from tts.search.selections._common import first_writing, no_answer, voters_of, with_weights
from tts.types import Candidate

# texts that are compared in the event loop; more are compared beside it, within the time that is left
_LOOP_TEXTS = 200
_MOST_SIMILARITIES = 4_000_000  # similarities in memory
_EQUAL = 9  # decimals to which similarities are compared: sums in another order differ in later ones


def _check_embedder(name: str, value: Any) -> None:
    """Raise ConfigError where an embedder has no such name, or a wrong parameter."""
    check_text(name, value)
    parse_call(EMBEDDERS, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Medoid(Selection):
    """Chooses the answer with the greatest mean similarity to the answers of all candidates.

    The similarity of two answers is the cosine of their vectors, at least 0. A candidate without an answer is similar
    to nothing. The confidence is the mean similarity of the chosen one, itself included. Where texts are equal or have
    nothing in common, that is its share of votes.

    Source: minimum Bayes risk (Kumar, Byrne, "Minimum Bayes-Risk Decoding for Statistical Machine Translation",
    HLT-NAACL 2004), UNVERIFIED (from memory), with the cosine as the gain and equal weights. With `threshold` ours: the
    medoid of the largest cluster.

    Args:
        embedder: Makes the vectors: "sentences", "endpoint(url='http://localhost:8000', model='…')", "ngrams", or
            another of the table; None: the solver's, else "ngrams", which compares words and not meaning, as the
            solution then warns.
        threshold: Mean cosine distance in [0, 2] up to which clusters are joined; None: all answers are one cluster.
        truncated: As in `Majority`.

    Cost: one vector for each answer that is written differently. Where an embedding server fails, words are compared,
        and the solution warns of it.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | medoid(embedder='ngrams')")
        >>> found.answer, round(found.confidence, 2), found.usage.verifier_calls
        ('14', 0.88, 0)
    """

    registered_as = "medoid"
    embedder: Annotated[str, Rule(_check_embedder)] | None = None
    threshold: Annotated[float, number(0, 2)] | None = None
    truncated: Truncated = "vote"

    def needs(self) -> Needs:
        """Return the needs: vectors of texts."""
        return Needs(vectors=self._embedder() or True)

    def _embedder(self) -> Embedder | None:
        """Return the embedder that is named; None: the solver's."""
        return None if self.embedder is None else parse_call(EMBEDDERS, self.embedder)

    async def select(self, candidates: Sequence[Candidate], search: Search) -> Selected:
        """Choose by mean similarity."""
        voters = voters_of(candidates, self.truncated)
        if not voters:
            return Selected((), tuple(with_weights(candidates, np.zeros(len(candidates)))), no_answer(candidates))
        answers = [candidates[i].answer or "" for i in voters]
        texts = {text: index for index, text in enumerate(dict.fromkeys(answers))}  # the different answers
        text_of = np.array([texts[answer] for answer in answers])  # [voters]: the index of the voter's text
        vectors = await self._vectors(list(texts), search)  # [texts, dimensions]
        members = np.arange(len(voters))
        if self.threshold is not None:
            labels = await _run(clusters, len(voters), search, vectors[text_of], self.threshold)
            members = _largest(labels)
        counts = np.bincount(text_of[members], minlength=len(texts))
        classes = np.zeros(len(texts), np.int64)
        classes[text_of] = [candidates[i].answer_class or 0 for i in voters]
        sums = await _run(sum_similarities, len(texts), search, vectors, classes, counts)
        mean_similarities = np.round(sums / len(candidates), _EQUAL)  # [texts]
        voter_weights = np.zeros(len(voters))
        voter_weights[members] = mean_similarities[text_of[members]]
        weights = np.zeros(len(candidates))
        weights[voters] = voter_weights
        judged = with_weights(candidates, weights)
        winner = judged[voters[int(np.argmax(voter_weights))]]
        may_win = set(voters)
        order = sorted(
            range(len(judged)),
            key=lambda i: (judged[i].answer_class != winner.answer_class, i not in may_win, -judged[i].weight, i),
        )
        ranked = tuple(judged[i] for i in order)
        return Selected((first_writing(winner, candidates),), ranked, min(1.0, winner.weight))

    async def _vectors(self, texts: Sequence[str], search: Search) -> NDArray[np.float64]:
        """Return a unit vector of each text; warn where words are compared."""
        embedder = self._embedder() or search.scoring.embedder
        try:
            vectors = await search.embed(texts, embedder)
        except EngineError as failure:
            search.notes.warn(f"{failure.cause}; the selection {self} compared words, not meaning", timed=True)
            return await search.embed(texts, HashedNgrams())
        if isinstance(embedder, HashedNgrams) and len(set(texts)) > 1:
            search.notes.warn(
                f"the selection {self} compared words, not meaning: name a model of sentences, "
                "medoid(embedder='sentences'), "
                "or an embeddings endpoint"
            )
        return vectors


def sum_similarities(
    vectors: NDArray[np.float64], kinds: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the summed similarity of each text to all answers. Answers of one class have similarity 1.

    Args:
        vectors: The vectors of the texts, [texts, dimensions], of length 1.
        kinds: The class of each text [texts].
        counts: The number of answers with each text [texts].
    """
    sums = np.zeros(len(vectors))
    block_size = max(1, _MOST_SIMILARITIES // max(1, len(vectors)))
    for start in range(0, len(vectors), block_size):
        block = slice(start, start + block_size)
        similarities = np.clip(vectors[block] @ vectors.T, 0.0, 1.0)  # [block, texts]
        similarities[kinds[block, None] == kinds] = 1.0
        sums[block] = similarities @ counts
    return sums


async def _run(fn: Callable[..., NDArray[Any]], size: int, search: Search, *args: NDArray[Any] | float) -> NDArray[Any]:
    """Return the result of a function of `size` texts: beside the event loop if there are many texts."""
    return fn(*args) if size <= _LOOP_TEXTS else await search.run(fn, *args)


def _largest(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the members of the largest cluster; among equal sizes, of the first cluster."""
    return np.flatnonzero(labels == np.bincount(labels).argmax())
