"""A trace through JSON and back: scores that are not known stay not known, wherever they stand."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runs import make_run, solve
from tests.trace.test_trace import NAN, node, same, trace
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.trace.trace import Trace
from tts.types import Problem
from tts.verifiers.function import FunctionVerifier

known = st.floats(-1e300, 1e300)
scores = st.dictionaries(st.text(max_size=5), st.lists(known | st.just(NAN), max_size=4).map(tuple), max_size=3)
texts = st.text(st.characters(), max_size=20)  # lone surrogates among them


@settings(deadline=None)
@given(st.lists(st.tuples(scores, texts, st.none() | known), max_size=6), known | st.just(NAN), texts)
def test_any_trace_comes_back_equal(
    parts: list[tuple[dict[str, tuple[float, ...]], str, float | None]], confidence: float, text: str
) -> None:
    nodes = tuple(
        node(i, i - 1 if i else None, scores=of, text=word, answer=word, weight=weight)
        for i, (of, word, weight) in enumerate(parts)
    )
    before = trace(nodes=nodes, confidence=confidence, problem=text, answer=None)
    encoded = before.to_json().encode()
    json.loads(encoded, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    after = Trace.from_json(encoded.decode())
    assert same(before, after)
    assert after.to_json() == before.to_json()
    assert after.canonical() == before.canonical()


def sometimes(problem: Problem, text: str) -> float:
    return NAN if "7" in text else 0.25


@pytest.mark.parametrize("each_step", [False, True])
def test_the_trace_of_a_search_with_unknown_scores_comes_back(each_step: bool) -> None:
    def by_step(problem: Problem, text: str) -> list[float]:
        return [sometimes(problem, line) for line in text.splitlines()]

    verifier = FunctionVerifier(by_step if each_step else sometimes)
    backend = ToyBackend(ToyLanguage(accuracy=0.5, mute=0.2))
    before = solve(
        make_run("3 + 4 - 2", Budget(tokens=2000), "best_of_n(n=12) | weighted", backend, verifiers={"main": verifier})
    ).trace
    found = [score for one in before.nodes for of in one.scores.values() for score in of]
    assert any(map(math.isnan, found))
    assert not all(map(math.isnan, found))
    after = Trace.from_json(before.to_json())
    assert after.to_dict() == before.to_dict()
    assert after.canonical() == before.canonical()
    assert all(same(a, b) for a, b in zip(before.nodes, after.nodes, strict=True))
    assert after.calls == before.calls
    assert after.usage == before.usage
    assert after.to_html() == before.to_html()


def test_notes_of_verifiers_are_kept_and_others_are_left_out() -> None:
    noted = trace(nodes=(node(0, None), node(1, 0, notes={"main": "one test fails"})))
    assert "notes" not in noted.to_dict()["nodes"][0]
    assert Trace.from_json(noted.to_json()).nodes[1].notes == {"main": "one test fails"}
