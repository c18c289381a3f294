"""The grader: its expectation by enumeration, the bound on what a server does not show, its order of prompts, and its
books.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tts
from tests.backends.openai.making import using
from tests.backends.openai.server import Token, ToyServer
from tests.support import pair
from tests.support.pair import home  # noqa: F401 - a fixture
from tests.support.runs import Solved, check_books, make_run, search_one, solve_runs
from tests.verifiers.paths import path, wholes
from tests.verifiers.test_genrm import Law
from tts.backends.function import FunctionBackend
from tts.backends.openai.backend import OpenAIBackend
from tts.backends.prompt_logprobs import Top, law_of_tops
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.errors import CapabilityError, ConfigError
from tts.search.calls import MeteredCalls
from tts.tasks import get
from tts.types import Problem, Prompt, Trajectory
from tts.verifiers.grader import Grader, expected_grades


class Graded(Law):
    """Calls whose model gives grades by a function of the prompt; it records the prompts in the order in which they
    come.
    """

    def __init__(self, law: Any, unseen: float = 0.0) -> None:
        super().__init__()
        self.law, self.unseen, self.asked = law, unseen, list[str]()

    async def bounded_choices(
        self, prompts: Sequence[Prompt], tokens: Sequence[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        texts = [prompt[0].content for prompt in prompts]  # type: ignore[union-attr]
        self.asked += texts
        with np.errstate(divide="ignore"):
            laws = np.log(np.array([self.law(text) for text in texts], np.float64))
        assert laws.shape == (len(prompts), len(tokens))
        return laws, np.full(len(prompts), self.unseen)


def test_the_score_is_the_expected_grade_among_the_grades_alone() -> None:
    law = [0.1, 0.2, 0.0, 0.05, 0.15]  # half of the probability is of other tokens
    [score] = wholes(Grader(levels=5), path([-1.0], text="7"), calls=Graded(lambda text: law))
    assert score == pytest.approx(sum(p * grade for grade, p in enumerate(law)) / (4 * sum(law)))


@pytest.mark.parametrize("seed", range(20))
def test_what_a_server_does_not_show_moves_no_score_by_more_than_the_bound(seed: int) -> None:
    """Laws of 60 tokens, of which the 20 most likely are shown: the bound holds, and so does the one of the score."""
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.full(60, float(rng.choice([0.05, 0.3, 1.0]))))
    shown = [Top(str(i + 1), float(np.log(law[i]))) for i in np.argsort(-law)[:20]]
    for levels in (2, 5, 9):
        grades = [str(one) for one in range(1, levels + 1)]
        logprobs, unseen = law_of_tops(shown, grades)
        hidden = sum(law[i] for i in range(levels) if not any(top.text == grades[i] for top in shown))
        assert hidden <= unseen + 1e-12
        assert unseen == 0 or hidden > 0
        [score], [share] = expected_grades(np.array([logprobs]), np.array([unseen]))
        whole = law[:levels] / law[:levels].sum()
        if math.isnan(score):
            assert share == 1
            continue
        assert hidden / law[:levels].sum() <= share + 1e-12
        assert abs(score - whole @ np.linspace(0, 1, levels)) <= share + 1e-12


def test_tokens_of_one_text_count_together_and_nothing_shown_is_unknown() -> None:
    logprobs, unseen = law_of_tops(
        [Top("2", math.log(0.5)), Top("2", math.log(0.2)), Top("x", math.log(0.3))], ("1", "2")
    )
    assert np.exp(logprobs) == pytest.approx([0.0, 0.7])
    assert unseen == pytest.approx(0.0, abs=1e-12)
    assert law_of_tops([], ("1", "2")) == ([-math.inf, -math.inf], 1.0)


@pytest.mark.parametrize(("unseen", "known"), [(0.0, True), (0.004, True), (0.006, False), (1.0, False)])
def test_a_grade_that_could_lack_too_much_is_unknown_and_counted(unseen: float, known: bool) -> None:
    calls = Graded(lambda text: [0.0, 0.5], unseen)
    [score] = wholes(Grader(levels=2), path([-1.0], text="7"), calls=calls)
    assert (score == 1.0) if known else math.isnan(score)
    told = "grades of the grader could lack more than 0.01 of their probability, and are unknown"
    assert calls.noted == ({} if known else {told: (1, 1)})
    assert wholes(
        Grader(levels=2, missing=0.5), path([-1.0], text="7"), calls=Graded(lambda text: [0.0, 0.5], 0.006)
    ) == [1.0]


def solutions(*texts: str) -> list[Trajectory]:
    return [path([-1.0], text=text) for text in texts]


def test_a_bias_for_a_place_cancels_out() -> None:
    def law(text: str) -> list[float]:
        first_is_good = text.index("good") < text.index("poor")
        return [0.1, 0.9] if first_is_good else [0.4, 0.6]  # it leans to the first

    good, poor = solutions("good", "poor")
    said = asyncio.run(Grader(levels=2).compare(Problem("p"), [(good, poor), (poor, good)], Graded(law)))  # type: ignore[arg-type]
    assert said == pytest.approx([(0.9 + 1 - 0.6) / 2, 1 - (0.9 + 1 - 0.6) / 2])
    once = Graded(law)
    said = asyncio.run(Grader(levels=2, orders=1).compare(Problem("p"), [(good, poor), (poor, good)], once))  # type: ignore[arg-type]
    assert said == pytest.approx([0.9, 0.6]), "in one order the bias stays"
    assert len(once.asked) == 2


def test_prompts_that_begin_with_one_solution_follow_one_another() -> None:
    """A cache of one prefix misses once a solution, and every verdict is that of its own pair."""
    texts = [f"solution {i}" for i in range(7)]
    ts = solutions(*texts)
    pairs = [(pivot, other) for pivot in (2, 5) for other in range(7) if other != pivot]

    def law(text: str) -> list[float]:
        first, second = sorted(texts, key=lambda one: text.find(one) if one in text else 10**6)[:2]
        p = (int(first[-1]) * 10 + int(second[-1])) / 100
        return [1 - p, p]

    calls = Graded(law)
    asked = [(ts[a], ts[b]) for a, b in pairs]
    said = asyncio.run(Grader(levels=2).compare(Problem("p"), asked, calls))  # type: ignore[arg-type]
    assert said == pytest.approx([((10 * a + b) / 100 + 1 - (10 * b + a) / 100) / 2 for a, b in pairs])
    heads = [text.split("Solution B")[0] for text in calls.asked]
    assert len(heads) == 2 * len(pairs)
    assert 1 + sum(a != b for a, b in pairwise(heads)) == len(set(heads)) == 7


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"levels": 1}, "levels is 1, but must be a whole number of at least 2 and at most 20"),
        ({"levels": 21}, "levels is 21"),
        ({"missing": 1}, "missing is 1"),
        ({"orders": 3}, "orders is 3"),
        ({"missing": -0.1}, "missing is -0.1"),
        ({"question": ""}, "question is ''"),
    ],
)
def test_parameters_that_cannot_be_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Grader(**parameters)
    assert message in str(refused.value)


def test_a_model_without_probabilities_is_refused_before_anything_is_spent() -> None:
    asked = list[str]()
    model = FunctionBackend(lambda ask: asked.append(str(ask.prompt)) or "A: 14")
    with pytest.raises(CapabilityError, match="the verifier 'grader' reads probabilities"):
        tts.solve(
            "3 + 4",
            tts.Budget(samples=2),
            backend=model,
            task="math",
            verifier="grader",
            strategy="best_of_n(n=2) | best",
        )
    assert asked == []


# On the engine --------------------------------------------------------------------------------------------------------


def test_on_the_engine_it_is_the_law_of_the_next_token_and_its_tokens_are_booked() -> None:
    backend, prompts = pair.shared_engine(), ["3 + 4\n", "9 - 2\n"]

    async def both() -> None:
        calls = MeteredCalls(backend, get("arithmetic"), 10**6, None, 7)  # type: ignore[arg-type]
        before = backend.counters.prompt_tokens
        laws, unseen = await calls.bounded_choices(prompts, ("1", "2", "3"))
        assert calls.computed == backend.counters.prompt_tokens - before > 0
        assert calls.written == 0
        assert unseen.tolist() == [0.0, 0.0]
        assert laws.tolist() == (await calls.choices(prompts, ("1", "2", "3"))).tolist()
        scores, shares = expected_grades(laws, unseen)
        likely = np.exp(laws)
        assert scores == pytest.approx((likely[:, 1] / 2 + likely[:, 2]) / likely.sum(axis=1))
        assert shares.tolist() == [0.0, 0.0]

    asyncio.run(both())


@pytest.mark.parametrize(
    ("plan", "orders"), [("best_of_n(n=4) | best", 2), ("best_of_n(n=4) | pivot", 2), ("best_of_n(n=4) | pivot", 1)]
)
def test_no_limit_is_passed_at_any_size(plan: str, orders: int) -> None:
    for tokens in (30, 300, 900, 1500, 2500, 4000, 9000):
        grader = Grader(prompt_tokens=220, orders=orders)
        end = search_one("3 + 4 - 2", tokens, plan, ToyBackend(ToyLanguage(accuracy=0.5)), verifiers=grader)
        assert end.solution.usage.tokens <= tokens


# On servers -----------------------------------------------------------------------------------------------------------


class Grading(ToyServer):
    """Every reply is a grade, drawn from a law that it shows; the solution's text decides between two laws."""

    right: tuple[tuple[str, float], ...] = ((" \n", 0.02), ("8", 0.6), ("9", 0.3), ("7", 0.08))
    wrong: tuple[tuple[str, float], ...] = (("1", 0.7), ("2", 0.2), ("3", 0.1))

    async def rows(self, body: Any, cap: int, count: int, text: str) -> list[list[Token]]:
        law = self.right if "A: 5" in str(body["messages"]) else self.wrong
        shown = {text: math.log(p) for text, p in law}
        self.served_caps = [*getattr(self, "served_caps", []), cap]
        return [[(law[0][0], shown[law[0][0]], shown)]] * count


def graded(server: ToyServer, grader: Grader, tokens: int = 90000, **found: Any) -> Solved:
    ends: list[Solved] = []

    async def check(backend: OpenAIBackend) -> None:
        policy = ToyBackend(ToyLanguage(accuracy=0.5))
        filled = grader.fill(None, backend)
        run = make_run(
            "3 + 4 - 2",
            Budget(tokens=tokens),
            "best_of_n(n=4) | best",
            policy,
            verifiers={"main": filled},
            models={"judge": backend},
        )
        ends.extend(await solve_runs([run]))

    settings: dict[str, Any] = {"mode": "chat", "tops": True} | found
    using(server, check, **settings)
    check_books(ends[0].search)  # type: ignore[arg-type]
    return ends[0]


def test_on_a_server_it_reads_the_most_likely_tokens_of_one_written_token() -> None:
    server = Grading(tops=True)
    end = graded(server, Grader(model="judge", prompt_tokens=2000))
    assert end.solution.error is None
    law = np.array([0.08, 0.6, 0.3])
    right = float(law @ (np.array([6, 7, 8]) / 8) / law.sum())
    wrong = float(np.array([0.7, 0.2, 0.1]) @ (np.array([0, 1, 2]) / 8))
    for candidate in end.solution.candidates:
        assert candidate.scores["main"] == pytest.approx(right if candidate.answer == "5" else wrong)
    assert set(server.served_caps) == {1}
    assert [body["top_logprobs"] for body in server.bodies] == [20] * 4
    [call] = [call for call in end.search.account.ledger.calls if call.kind == "score"]  # type: ignore[union-attr]
    assert call.usage.verifier_tokens > 4
    assert not any("lack more" in warning for warning in end.solution.warnings)


def test_grades_that_a_server_does_not_show_are_unknown_and_said() -> None:
    server = Grading(tops=True)
    # a tenth of the law is not shown, as much as the grade that is
    server.wrong = (("I", 0.5), ("The", 0.3), ("1", 0.1))
    server.right = server.wrong
    end = graded(server, Grader(model="judge", prompt_tokens=2000))
    assert all(math.isnan(candidate.scores.get("main", math.nan)) for candidate in end.solution.candidates)
    assert any(
        warning == "4 of 4 grades of the grader could lack more than 0.01 of their probability, and are unknown"
        for warning in end.solution.warnings
    )


def test_a_server_without_top_logprobs_is_refused() -> None:
    with pytest.raises(CapabilityError, match="the verifier 'grader' reads probabilities"):
        graded(Grading(), Grader(model="judge", prompt_tokens=2000), tops=False)
