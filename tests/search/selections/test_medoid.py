"""The medoid on vectors that are given, by words, and by an embeddings endpoint."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tts
from tests.contracts.verifier_contract import Do
from tests.support.candidates import ScoredSearch, candidates
from tests.support.repeats import repeats
from tests.support.runs import make_run, solve_and_show
from tts.backends.function import FunctionBackend
from tts.backends.toy.backend import ToyBackend
from tts.errors import ConfigError, EngineError
from tts.search.algorithms.embedding_endpoint import Endpoint
from tts.search.selections.medoid import Medoid, sum_similarities

CLUSTERS = {"a": 0.0, "b": 0.1, "between": 0.7, "c": 1.3, "d": 1.35, "e": 1.4}
TEXTS = ["the cat sat on the mat", "the cat sat on a mat", "a cat sat on the mat", "stock prices fell sharply today"]


class Directions:
    """Vectors by text."""

    def __init__(self, angles: dict[str, float]) -> None:
        self._angles = angles

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return np.array([[np.cos(self._angles[t]), np.sin(self._angles[t])] for t in texts])


def chosen(
    selection: Medoid, angles: dict[str, float], answers: Sequence[str] = (), embedder: Any = None
) -> tts.Selected:
    of = candidates(list(answers or angles))
    search = ScoredSearch({}, of)
    search.scoring.embedder = embedder or Directions(angles)
    return asyncio.run(selection.select(of, search))  # type: ignore[arg-type]


def solve(selection: str, texts: Sequence[str] = TEXTS) -> tts.Solution:
    """Return the solution of a model that writes these texts in turn."""
    left = [*texts]
    model = FunctionBackend(lambda ask: tts.Answer(left.pop(0), tokens=6))
    return tts.solve("Write.", {"samples": len(texts)}, backend=model, strategy=f"best_of_n(n=4) | {selection}")


def by_endpoint(url: str) -> str:
    return f"medoid(embedder=\"endpoint(url='{url}', model='m')\")"


def test_the_one_in_the_middle_wins() -> None:
    selected = chosen(Medoid(), {"left": -0.4, "middle": 0.1, "right": 0.4, "far": 2.9})
    assert selected.answers == ("middle",)
    expected = np.clip([np.cos(0.5), 1, np.cos(0.3), np.cos(2.8)], 0, 1).mean()
    assert selected.confidence == pytest.approx(expected)
    assert [c.answer for c in selected.ranked] == ["middle", "right", "left", "far"]


def test_with_a_threshold_it_is_the_middle_of_the_largest_cluster() -> None:
    assert chosen(Medoid(threshold=0.05), CLUSTERS).answers == ("d",)
    assert chosen(Medoid(), CLUSTERS).answers != ("d",)


def test_by_words_it_says_so() -> None:
    solution = solve("medoid")
    assert solution.answer == TEXTS[2]  # nearest to the others by its trigrams
    assert 0.25 < solution.confidence < 1
    assert any("compared words, not meaning" in line for line in solution.warnings)
    assert not any("votes on free text" in line for line in solution.warnings)


class Handler(BaseHTTPRequestHandler):
    """Vectors of the letters a and b; what is asked is kept."""

    asked: list[Any]
    status = 200

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, self.headers.get("Authorization"), body))
        data = [
            {"index": i, "embedding": [1.0 + text.count("a"), text.count("b")]} for i, text in enumerate(body["input"])
        ]
        told = (
            {"data": data[::-1], "usage": {"prompt_tokens": 7 * len(data)}}
            if self.status == 200
            else {"error": {"message": "no such model"}}
        )
        content = json.dumps(told).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        del format, args


@pytest.fixture
def server() -> Iterator[tuple[str, type[Handler]]]:
    handler = type("Here", (Handler,), {"asked": []})
    served = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}", handler
    served.shutdown()
    served.server_close()


def test_an_endpoint_is_asked_once_and_its_tokens_are_booked(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = server
    monkeypatch.setenv("TTS_EMBEDDINGS_KEY", "secret-of-the-embedder")
    solution = solve(by_endpoint(url), ["aaa", "aab", "bbb", "ab"])
    [(path, key, body)] = handler.asked
    assert (path, key, body["model"]) == ("/v1/embeddings", "Bearer secret-of-the-embedder", "m")
    assert solution.answer == "ab"
    [call] = [c for c in solution.trace.calls if c.kind == "embed"]
    assert call.usage.prompt_tokens == 28
    assert solution.usage.prompt_tokens >= 28
    assert not any("compared words" in line for line in solution.warnings)


def test_an_endpoint_that_fails_leaves_words_and_says_why(server: Any) -> None:
    url, handler = server
    handler.status = 404
    solution = solve(by_endpoint(url))
    assert solution.answer == TEXTS[2]  # nearest to the others by its trigrams
    assert solution.error is None
    assert any("no such model" in line and "compared words" in line for line in solution.warnings)


def test_a_budget_in_dollars_refuses_an_endpoint_before_anything_is_spent(server: Any) -> None:
    url, handler = server
    record = tts.models.registry.ModelRecord(name="toy", backend="toy", task="arithmetic", usd_in=1, usd_out=1)
    with pytest.raises(ConfigError, match=r"embedder .*them"):
        tts.solve("1 + 2", {"usd": 1}, model=record, strategy=f"best_of_n(n=2) | {by_endpoint(url)}")
    assert handler.asked == []


def test_so_is_an_endpoint_that_a_strategy_asks(server: Any) -> None:
    url, handler = server

    async def check(search: tts.Search) -> None:
        with pytest.raises(ConfigError, match=r"embedder .*them"):
            await search.embed(["a"], Endpoint(url=url, model="m"))

    end = solve_and_show(make_run("1 + 2", tts.Budget(flops=10**6), Do(check=check), ToyBackend()))
    assert (end.solution.error, handler.asked) == (None, [])


def test_vectors_that_are_none_are_an_error(server: Any) -> None:
    url, _ = server
    with pytest.raises(ConfigError, match="url is "):
        Endpoint(url="localhost", model="m")
    with pytest.raises(EngineError, match="ConnectionFailed"):
        asyncio.run(Endpoint(url="http://127.0.0.1:9", model="m").embed(["a"]))
    vectors = asyncio.run(Endpoint(url=f"{url}/v1/embeddings", model="m").embed(["a", "b", ""]))
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 0])


@repeats(400, 4000, "unit")
def test_texts_that_are_equal_are_compared_once(unit: int) -> None:
    """40,000 candidates need no 40,000 x 40,000 similarities."""

    class Asked(Directions):
        texts: Sequence[str] = ()

        async def embed(self, texts: Sequence[str]) -> NDArray[np.float64]:
            self.texts = texts
            return await super().embed(texts)

    angles = {"left": -0.4, "middle": 0.1, "right": 0.4}
    answers, embedder = ["left"] * 3 * unit + ["right"] * 4 * unit + ["middle"] * 3 * unit, Asked(angles)
    selected = chosen(Medoid(), angles, answers, embedder)
    assert embedder.texts == ["left", "right", "middle"]
    assert selected.answers == ("middle",)
    assert selected.confidence == pytest.approx((12 * np.cos(0.5) + 16 * np.cos(0.3) + 12) / 40, abs=1e-8)


def test_sums_of_similarities_do_not_depend_on_how_many_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(23, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    kinds, counts = rng.integers(0, 6, 23), rng.integers(0, 4, 23)
    similar = np.where(np.equal.outer(kinds, kinds), 1.0, np.clip(vectors @ vectors.T, 0, 1))
    for at_once in (1, 50, 10_000):
        monkeypatch.setattr("tts.search.selections.medoid._MOST_SIMILARITIES", at_once)
        assert sum_similarities(vectors, kinds, counts) == pytest.approx(similar @ counts)


@pytest.mark.slow
def test_a_threshold_takes_equal_texts_among_many_as_one() -> None:
    answers = ["a", "b", "a"] + ["between"] + ["c", "d", "e"] * 1_000
    selected = chosen(Medoid(threshold=0.05), CLUSTERS, answers)
    assert selected.answers == ("d",)
    assert selected.confidence == pytest.approx(1_000 * (1 + 2 * np.cos(0.05)) / 3_004, abs=1e-8)


@pytest.mark.slow
def test_a_replay_compares_many_texts() -> None:
    answers = [f"{i} words of an answer" for i in range(2_100)]
    pool = tts.Pool.from_rows([{"problem": "p", "answer": answers, "correct": [True] * len(answers)}], task="text")
    (curve,) = pool.replay(["best_of_n | medoid(threshold=0.4)"], [len(answers)], first=True)
    assert curve.curve.accuracy[0].value == 1.0
