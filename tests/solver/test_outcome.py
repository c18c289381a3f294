"""Parts that return what they must not: refused before anything is spent where that shows, else one line in
`Solution.error`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tts
from tts.backends.base import RowSet, Sample, SampleRequest
from tts.backends.toy.backend import ToyBackend

SUM = "3 + 4 - 2"


class PlainRun(tts.Strategy):
    def run(self, search: tts.Search) -> Any:
        return search.candidates


class YieldingRun(tts.Strategy):
    async def run(self, search: tts.Search) -> Any:
        yield search.candidates


class PlainSelect(tts.Selection):
    def select(self, candidates: Sequence[tts.Candidate], search: tts.Search) -> Any:
        return tts.Selected((), tuple(candidates), 1.0)


class AsyncStop(tts.StopRule):
    async def should_stop(self, candidates: Sequence[tts.Candidate]) -> Any:
        return None


class PlainScore(tts.Verifier):
    def score(self, problem: Any, trajectories: Any, calls: Any) -> Any:
        return []


class AsyncExtract(tts.Task):
    async def extract(self, text: str) -> Any:
        return text


class PlainOpen(ToyBackend):
    def open(self, prompts: Any) -> Any:
        return []


class AsyncNeeds(tts.Strategy):
    async def needs(self) -> Any:
        return tts.Needs()

    async def run(self, search: tts.Search) -> Any:
        return search.candidates


class AsyncSplit(tts.Task):
    def extract(self, text: str) -> str | None:
        return text

    async def split(self, text: str) -> Any:
        return [text]


class AsyncRelease(ToyBackend):
    async def release(self, handles: Any) -> Any:
        return None


class Delegating(ToyBackend):
    """A plain method may return what is awaited."""

    def extend(self, handles: Any, texts: Any) -> Any:
        return super().extend(handles, texts)


def test_a_plain_method_may_pass_on_what_is_awaited() -> None:
    with tts.Solver(Delegating(), strategy="single") as solver:
        assert solver.solve("3 + 4", 100).answer is not None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"strategy": AsyncNeeds}, "AsyncNeeds.needs is async, but will not be awaited (hint: write def needs)"),
        ({"task": AsyncSplit}, "AsyncSplit.split is async"),
        ({"models": AsyncRelease()}, "AsyncRelease.release is async"),
        (
            {"strategy": PlainRun},
            "PlainRun.run is not async, but will be awaited (hint: write async def run, without yield)",
        ),
        ({"strategy": YieldingRun()}, "YieldingRun.run is not async"),
        ({"strategy": f"single | {__name__}:PlainSelect"}, "PlainSelect.select is not async"),
        (
            {"strategy": f"single | {__name__}:AsyncStop"},
            "AsyncStop.should_stop is async, but will not be awaited (character 10",
        ),
        ({"verifiers": PlainScore()}, "PlainScore.score is not async"),
        ({"task": AsyncExtract}, "AsyncExtract.extract is async"),
        ({"models": PlainOpen()}, "PlainOpen.open is not async"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_method_of_the_wrong_kind_is_refused_before_anything_is_spent(options: dict[str, Any], why: str) -> None:
    with pytest.raises(tts.ConfigError) as caught:
        tts.Solver(**{"models": "toy", **options})
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


async def score_without_calls(self: Any, problem: Any, trajectories: Any) -> Any:
    return [tts.StepScores(whole=0.5) for _ in trajectories]


async def score_with_more(self: Any, problem: Any, trajectories: Any, calls: Any, temperature: float) -> Any:
    return [tts.StepScores(whole=temperature) for _ in trajectories]


async def score_by_any_names(self: Any, *asked: Any, scale: float = 0.5) -> Any:
    return [tts.StepScores(whole=scale) for _ in asked[1]]


async def no_arguments(self: Any) -> Any:
    return []


def no_plain_arguments(self: Any) -> Any:
    return None


@pytest.mark.parametrize(
    ("role", "base", "methods", "line"),
    [
        (
            "verifiers",
            tts.Verifier,
            {"score": score_without_calls},
            "async def score(self, problem, trajectories, calls)",
        ),
        ("verifiers", tts.Verifier, {"score": score_with_more}, "async def score(self, problem, trajectories, calls)"),
        (
            "verifiers",
            tts.Verifier,
            {"score": score_by_any_names, "bound": lambda self, tokens: 0},
            "def bound(self, prefix_tokens, new_tokens)",
        ),
        ("strategy", tts.Strategy, {"run": no_arguments}, "async def run(self, search)"),
        ("task", tts.Task, {"extract": no_plain_arguments}, "def extract(self, text)"),
        ("task", tts.Task, {"extract": staticmethod(lambda: None)}, "def extract(self, text)"),
        ("models", ToyBackend, {"open": no_arguments}, "async def open(self, prompts)"),
        ("models", ToyBackend, {"release": no_plain_arguments}, "def release(self, handles)"),
        ("plan", tts.StopRule, {"should_stop": no_plain_arguments}, "def should_stop(self, candidates)"),
        ("plan", tts.Selection, {"select": no_arguments}, "async def select(self, candidates, search)"),
    ],
)
def test_a_method_that_cannot_be_called_is_refused_with_the_line_to_write(
    role: str, base: type, methods: Any, line: str
) -> None:
    own = part(base, **methods)
    with pytest.raises(tts.ConfigError) as caught:
        BEST | own if role == "plan" else tts.Solver(**{"models": "toy", role: own})
    assert "test_outcome:Own." in str(caught.value)
    assert f"but will be called with others (hint: write {line})" in str(caught.value)


def test_a_method_may_name_its_parameters_as_it_likes() -> None:
    own = part(tts.Verifier, score=score_by_any_names)
    assert tts.solve(SUM, 200, model="toy", verifier=own, strategy="best_of_n(n=2) | best").answer is not None


def returning(value: Any) -> Callable[..., Any]:
    async def method(*args: Any) -> Any:
        return value

    return method


def part(base: type, **methods: Any) -> Any:
    return type("Own", (base,), {**methods, "__module__": __name__})()


class Fixed(tts.Task):
    def __init__(self, value: Any) -> None:
        self.value = value

    def extract(self, text: str) -> Any:
        return self.value


class Odd(ToyBackend):
    """Its rows end with a finish that nobody knows."""

    def sample(self, request: SampleRequest) -> RowSet:
        rows = RowSet(request)
        for index in range(len(request.rows)):
            rows.resolve(index, Sample("A: 1\n", (), (), "over", None, 1))  # type: ignore[arg-type]
        return rows


class Few(ToyBackend):
    async def open(self, prompts: Any) -> Any:
        return []


BEST = tts.BestOfN(n=3)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"strategy": BEST | part(tts.Selection, select=returning(None))},
            "test_outcome:Own returned None, but must return a tts.Selected",
        ),
        (
            {"strategy": BEST | part(tts.Selection, select=returning(tts.Selected("72", (), 1.0)))},
            "chose the answers '72', but they must be a tuple",
        ),  # type: ignore[arg-type]
        (
            {"strategy": BEST | part(tts.StopRule, should_stop=lambda *_: True)},
            "the stop rule Own returned True, but must return a tts.StopDecision",
        ),
        ({"strategy": BEST | part(tts.StopRule, should_stop=lambda *_: False)}, "the stop rule Own returned False"),
        ({"strategy": BEST, "task": Fixed(7)}, "the task 'fixed' extracted 7, but extract must return a text or None"),
        (
            {"strategy": BEST, "models": Odd(), "task": "arithmetic"},
            "the backend 'toy' ended a row with the finish 'over', but must end it with one of eos, ",
        ),
        (
            {"strategy": BEST, "models": Few(), "task": "arithmetic"},
            "the backend 'toy' returned [] from open, but must return a list with a Reply for each of 1",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_result_is_the_error_of_a_solution_that_keeps_what_was_found(options: dict[str, Any], why: str) -> None:
    (solution,) = tts.Solver(**{"models": "toy", **options}).solve_many([SUM], each=600)
    assert why in str(solution.error)
    assert "\n" not in str(solution.error)
    assert solution.stopped_by == "failed"
    if "a tts.Selected" in why or "chose" in why:
        assert len(solution.candidates) == 3
        assert solution.answer is not None


@pytest.mark.parametrize("value", [7, [3]])
def test_what_a_strategy_returns_is_named(value: Any) -> None:
    with pytest.raises(tts.ConfigError, match=r"test_outcome:Own returned [73], but must return candidates"):
        tts.solve(SUM, 100, model="toy", strategy=part(tts.Strategy, run=returning(value)))


def test_a_selection_that_exits_loses_nothing() -> None:
    async def select(*args: Any) -> Any:
        raise SystemExit(3)

    solution = tts.solve(SUM, 600, model="toy", strategy=BEST | part(tts.Selection, select=select))
    assert (len(solution.candidates), str(solution.error)) == (3, f"the selection {__name__}:Own exited the program")


def test_a_method_that_returns_what_another_one_awaits_is_taken() -> None:
    single = tts.Single()

    def run(self: Any, search: tts.Search) -> Any:
        return single.run(search)

    assert tts.solve(SUM, 100, model="toy", strategy=part(tts.Strategy, run=run)).answer is not None


def test_a_strategy_that_returns_nothing_means_all_that_the_search_has() -> None:
    async def run(self: Any, search: tts.Search) -> None:
        await search.complete([search.root], n=3)

    assert len(tts.solve(SUM, 600, model="toy", strategy=part(tts.Strategy, run=run)).candidates) == 3


def test_what_a_method_returns_without_being_awaited_is_named() -> None:
    nothing: list[tts.Candidate] = []

    def run(self: Any, search: tts.Search) -> Any:
        return nothing

    with pytest.raises(tts.ConfigError, match=r"test_outcome:Own.*\[\].*awaited"):
        tts.solve(SUM, 100, model="toy", strategy=part(tts.Strategy, run=run))


def test_the_text_of_a_solution_has_no_thought():
    found = tts.solve("Write", {"samples": 1}, backend=lambda _: "<think>hm</think>\nDear Ann", strategy="single")
    assert (found.text, found.answer, found.candidates[0].trajectory.thought) == ("Dear Ann", "Dear Ann", "hm")
