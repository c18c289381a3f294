"""Computation that grows with the candidates: beside the event loop, within the time that is left, and with a plain
vote otherwise.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.guard import LIMIT_S
from tts.search.algorithms import embedding
from tts.search.selections import medoid, rpc
from tts.search.strategies.revision import ab_mcts
from tts.types import Candidate


def model(ask: Any) -> tts.Answer:
    return tts.Answer(f"{ask.seed}: the answer is \\boxed{{{ask.seed % 3000}}}.", tokens=9)


def few(ask: Any) -> tts.Answer:
    return tts.Answer(f"{ask.seed}: the answer is \\boxed{{{ask.seed % 3}}}.", tokens=9)


def wordy(words: int, ask: Any) -> tts.Answer:
    return tts.Answer(f"{ask.seed} word " * words, tokens=9)


def score(_: Any, text: str) -> float:
    return (sum(map(ord, text)) % 97 + 1) / 100


def solved(strategy: str, budget: tts.Budget) -> tts.Solution:
    return tts.solve("What?", budget, backend=model, verifier=score, task="math", strategy=strategy)


# where a function stands, by the strategy that calls it with many candidates
FUNCTIONS = {
    "best_of_n(n=300) | rpc": (rpc, "improbable"),
    "best_of_n(n=300) | medoid(embedder='ngrams')": (medoid, "sum_similarities"),
    "best_of_n(n=300) | medoid(embedder='ngrams', threshold=0.5)": (medoid, "clusters"),
    "ab_mcts(n=60, posterior='mixed')": (ab_mcts, "mixed_draws"),
}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", FUNCTIONS)
def test_what_grows_with_the_candidates_is_computed_beside_the_event_loop(monkeypatch, strategy):
    module, name = FUNCTIONS[strategy]
    kept, threads = getattr(module, name), set[str]()

    def watched(*args: Any) -> Any:
        threads.add(threading.current_thread().name)
        return kept(*args)

    monkeypatch.setattr(module, name, watched)
    monkeypatch.setattr(ab_mcts, "_LOOP_SOLUTIONS", 0)
    assert solved(strategy, tts.Budget(samples=300)).answer is not None
    assert threads == {"tts-function"}


@pytest.mark.slow  # seconds in which the samples are drawn on any machine
@pytest.mark.parametrize("strategy", [one for one in FUNCTIONS if one.startswith("best_of_n")])
def test_a_selection_that_the_time_ends_is_a_vote_with_a_warning(monkeypatch, strategy):
    module, name = FUNCTIONS[strategy]
    ended = threading.Event()
    monkeypatch.setattr(module, name, lambda *_: ended.wait(LIMIT_S))
    try:
        found = solved(strategy, tts.Budget(samples=300, seconds=8.0))
    finally:
        ended.set()
    assert found.answer is not None
    assert (found.stopped_by, found.reproducible) == ("budget: seconds", False)
    assert any("before it had chosen: the answer is that of a vote" in line for line in found.warnings)


def test_solutions_that_are_shown_are_found_without_comparing_all(monkeypatch):
    from tts_addons.zoo import semantic_entropy

    made = tts.solve("What?", tts.Budget(samples=9), backend=few, task="math", strategy="best_of_n | majority")
    candidates = sorted(made.candidates, key=lambda c: c.index)
    strategy = semantic_entropy.SemanticEntropy(shown=5)
    votes = {
        kind: [c for c in candidates if c.answer_class == kind]
        for kind in dict.fromkeys(c.answer_class for c in candidates)
    }
    firsts = [of_kind[0] for of_kind in sorted(votes.values(), key=len, reverse=True)]
    others = [c for c in candidates if not any(c is one for one in firsts)]

    def compared(_: Any, __: Any) -> bool:
        raise AssertionError("candidates were compared")

    monkeypatch.setattr(Candidate, "__eq__", compared)
    assert strategy._digest(candidates) == [c.trajectory.response for c in [*firsts, *others][:5]]


def test_long_texts_are_embedded_beside_the_event_loop(monkeypatch):
    threads, kept = list[str](), embedding.HashedNgrams.vectors

    def watched(self: Any, texts: Any) -> Any:
        threads.append(threading.current_thread().name)
        return kept(self, texts)

    monkeypatch.setattr(embedding.HashedNgrams, "vectors", watched)
    for words in (1, 5000):
        long = partial(wordy, words)
        tts.solve(
            "What?",
            tts.Budget(samples=2),
            backend=long,
            task="text",
            strategy="best_of_n(n=2) | medoid(embedder='ngrams')",
        )
    assert [name == "tts-function" for name in threads] == [False, True]


def test_a_subtree_is_alike_where_most_scores_are_equal_to_two_digits():
    assert ab_mcts._are_alike([0.501, 0.502, 0.5, 0.9])
    assert not ab_mcts._are_alike([0.5, 0.5, 0.9, 0.8])
    assert not ab_mcts._are_alike([0.5, 0.5, 0.5])
    assert not ab_mcts._are_alike(np.linspace(0, 1, 100).tolist())
