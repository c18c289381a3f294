"""`auto` by stop rules: a vote of the first solutions to end is chosen where short thoughts are right more often.

Elsewhere it is not. A rule that reads a verifier is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tts
from tests.experiments.pools import result_of
from tts.allocator.performance import PerformanceModel
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.errors import ConfigError
from tts.experiments.analysis.performance_fit import PerformanceData
from tts.search.ends import SearchEnded
from tts.search.stop_rules.first_finish import FirstFinish
from tts.types import Problem

FIRST = "best_of_n(n=4) | first_finish(k=2) | majority"


def thinker(short: float, long: float) -> FunctionBackend:
    """Return a model whose thoughts are as often short as long; both are right by a chance of their own, and lengths
    are reported.
    """

    def write(ask: Ask) -> Answer:
        rng = np.random.default_rng(ask.seed)
        is_short = rng.random() < 0.5
        right = rng.random() < (short if is_short else long)
        tokens = int(rng.integers(20, 40) if is_short else rng.integers(200, 400))
        return Answer(f"The answer is {0 if right else 1 + int(rng.integers(3))}.", tokens=min(tokens, ask.max_tokens))

    return FunctionBackend(write)


def problems(count: int, begin: int = 0) -> list[Problem]:
    return [Problem(f"problem {begin + i}", answer="0", id=f"p{begin + i}") for i in range(count)]


def fit(backend: FunctionBackend) -> PerformanceModel:
    given = problems(40)
    with tts.Solver(backend, {}, task="math") as solver:
        drawn = solver.solve_many(given, each=tts.Budget(samples=16), strategy="best_of_n | majority")
    results = [
        result_of(one, solution, {"samples": 16}, verifier=None) for one, solution in zip(given, drawn, strict=True)
    ]
    return PerformanceData.of(results).fit(model=backend.name, task="math", source="thinker")


@pytest.mark.slow
def test_the_first_to_finish_have_a_curve_where_short_thoughts_are_right() -> None:
    found = fit(thinker(short=0.75, long=0.15))
    curve = found.curves[FIRST]
    assert curve.sizes[0] < 4
    assert curve.costs is not None
    assert not [text for text in fit(thinker(short=0.15, long=0.75)).curves if "first_finish" in text]


@pytest.mark.slow
@pytest.mark.parametrize("many", [False, True])
def test_auto_takes_the_first_to_finish_and_answers_by_them(tmp_path: Path, *, many: bool) -> None:
    backend, file = thinker(short=0.75, long=0.15), str(tmp_path / "short.json")
    fit(backend).save(file)
    given, plan = problems(20, 100), f"auto(model={file!r}) | majority"
    with tts.Solver(backend, {}, task="math", strategy=plan) as solver:
        total = 20 * 8 * 400
        budget: dict[str, Any] = (
            {"budget": tts.Budget(tokens=total)} if many else {"each": tts.Budget(tokens=2 * total // 20)}
        )
        solutions = solver.solve_many(given, **budget)
        votes = solver.solve_many(given, each=tts.Budget(samples=8), strategy="best_of_n(n=8) | majority")
    assert sum(one.usage.tokens for one in solutions) <= total * (1 if many else 2)
    taken = [one for one in solutions if len(one.candidates) < one.usage.samples]
    assert len(taken) >= 10
    for one in taken:
        assert len(one.candidates) in (2, 4, 8)
        assert one.answer in {candidate.answer for candidate in one.candidates}
    right = [sum(one.answer == "0" for one in of) for of in (solutions, votes)]
    assert right[0] > right[1], right


@pytest.mark.slow
def test_a_plan_with_another_stop_rule_is_refused() -> None:
    found = fit(thinker(short=0.75, long=0.15))
    text = found.to_json().replace(FIRST, "best_of_n(n=8) | score_threshold(threshold=0.9) | majority")
    with pytest.raises(ConfigError, match=r"score_threshold.*verifier"):
        PerformanceModel.from_json(text)


def test_a_stop_rule_of_a_block_ends_that_block_alone() -> None:
    class Blocks(tts.Strategy):
        async def run(self, search: tts.Search) -> Any:
            with pytest.raises(SearchEnded) as ended, search.stop_rule(FirstFinish(k=2).should_stop, "finished"):
                await search.complete([search.root], 4)
            assert ended.value.stop is not None
            first = len(search.candidates)
            more = await search.complete([search.root], 3)
            assert (first, len(more)) == (2, 3)
            return more

    found = tts.solve("3 + 4 - 2", 2000, model="toy", strategy=Blocks())
    assert len(found.candidates) == 3
    assert found.stopped_by == "done"
