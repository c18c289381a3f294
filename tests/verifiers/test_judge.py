"""A judge's replies: what can be read, what is unknown and counted, what two orders make of a liking for one place, and
the costs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tts
from tests.verifiers.paths import PROBLEM, path, wholes
from tests.verifiers.test_genrm import Law
from tts.backends.function import FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.errors import ConfigError
from tts.types import Prompt
from tts.verifiers.ensemble import Ensemble
from tts.verifiers.judge import Judge

CUT = '{"reason": "the second step", "sco'


class Replies(Law):
    """Calls whose model replies with given texts, or by a function of the prompt's text."""

    def __init__(self, say: Sequence[str] | Callable[[str], str]) -> None:
        texts = itertools.cycle(() if callable(say) else say)
        super().__init__(lambda text, _vote: say(text) if callable(say) else next(texts))
        self.asked: list[str] = []

    async def replies(self, prompts: Sequence[Prompt], **how: Any) -> list[tuple[str, ...]]:
        self.asked += [str(prompt[0].content) for prompt in prompts]  # type: ignore[union-attr]
        return await super().replies(prompts, **how)


def said(*replies: str, **options: Any) -> tuple[float, dict[str, tuple[int, int]]]:
    calls = Replies(replies)
    [score] = wholes(Judge(votes=len(replies), **options), path([-1.0], text="7"), calls=calls)
    return score, calls.noted


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('{"reason": "fine", "score": 8}', 0.8),
        ('Let me think.\n```json\n{"reason": "a {brace} in it", "score": 0}\n```', 0.0),
        ('{"score": 2} No, I was wrong: {"reason": "", "score": 10}', 1.0),
        ('{"reason": {"score": 3}, "score": 7.5}', 0.75),
        ('The set {1, 2} is {x}: {"score": 7}', 0.7),
    ],
)
def test_what_can_be_read(reply: str, score: float) -> None:
    assert said(reply)[0] == pytest.approx(score)


@pytest.mark.parametrize(
    "reply",
    [
        "", "None", "The solution is right, 9 out of 10.", CUT, '{"score": true}', '{"score": 11}', '{"score": -1}',
        '{"score": NaN}', "[8]", "{" * 5000, '{"a":' * 5000,
        '{"steps": [{"score": 10}, {"score": 2}, {"sc', '{"score": 1e400}', '{"score": null}', '{"better": "A"}',
    ],
)  # fmt: skip
def test_what_cannot_is_unknown_and_counted_and_never_a_middle_score(reply: str) -> None:
    score, noted = said(reply)
    assert math.isnan(score)
    assert noted["replies of the judge could not be read"] == (1, 1)


def test_the_mean_is_of_those_that_can_be_read() -> None:
    score, noted = said('{"score": 10}', CUT, '{"score": 4}')
    assert score == pytest.approx(0.7)
    assert noted["replies of the judge could not be read"] == (1, 3)


def test_a_path_that_is_too_long_is_not_shown_in_part() -> None:
    calls = Replies(['{"score": 9}'])
    judge = Judge(votes=1, prompt_tokens=200)
    long, short = wholes(judge, path([-1.0], text="word " * 300), path([-1.0], text="word"), calls=calls)
    assert math.isnan(long)
    assert short == 0.9
    assert len(calls.asked) == 1
    assert calls.noted["prompts were longer than the judge's prompt_tokens=200, and not shown"] == (1, 2)


def compare(judge: Judge, say: Callable[[str], str], a: str, b: str) -> tuple[float, Replies]:
    calls = Replies(say)
    [share] = asyncio.run(judge.compare(PROBLEM, [(path([-1.0], text=a), path([-1.0], text=b))], calls))  # type: ignore[arg-type]
    return share, calls


def likes(word: str) -> Callable[[str], str]:
    return lambda prompt: (
        '{"better": "%s"}' % ("A" if word in prompt.split("Solution B:")[0].split("Solution A:")[1] else "B")
    )


def test_pairs_are_asked_about_in_both_orders() -> None:
    share, calls = compare(Judge(votes=2), likes("good"), "a good one", "a bad one")
    assert share == 1.0
    assert len(calls.asked) == 2
    assert calls.asked[0].index("good") < calls.asked[0].index("bad")
    assert calls.asked[1].index("good") > calls.asked[1].index("bad")
    assert compare(Judge(), likes("good"), "a bad one", "a good one")[0] == 0.0


@pytest.mark.parametrize("place", ["A", "B", "tie"])
def test_a_liking_for_one_place_cancels_out(place: str) -> None:
    assert compare(Judge(), lambda prompt: json.dumps({"better": place}), "x", "y")[0] == 0.5
    share, calls = compare(Judge(orders=1), lambda prompt: json.dumps({"better": place}), "x", "y")
    assert (share, len(calls.asked)) == ({"A": 1.0, "B": 0.0, "tie": 0.5}[place], 1)


def test_an_order_without_a_verdict_leaves_the_pair_unknown() -> None:
    replies = iter(['{"better": "A"}', "both are fine"])
    share, calls = compare(Judge(votes=1), lambda prompt: next(replies), "x", "y")
    assert math.isnan(share)
    assert calls.noted["replies of the judge could not be read"] == (1, 2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"votes": 0}, "votes is 0, but must be a whole number of at least 1 and at most 1024"),
        ({"max_tokens": 1.5}, r"max_tokens is 1\.5, but"),
        ({"temperature": -1}, "temperature is -1, but must be a number between 0 and 100"),
        ({"question": ""}, "question is '', but must be a text"),
    ],
)
def test_what_means_nothing_is_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Judge(**parameters)


def test_a_context_without_room_is_refused_when_a_solver_is_made() -> None:
    backend = ToyBackend()
    backend.context = 100  # type: ignore[misc]
    with pytest.raises(ConfigError, match=r"max_tokens.*256,.*leave"):
        Judge().fill(None, backend)
    assert Judge(max_tokens=60).fill(None, backend).bound(0, 0) == 40 + 3 * 60


# In a search ----------------------------------------------------------------------------------------------------------


def judged_by(reply: Callable[[str], Any], strategy: str, **budget: Any) -> tts.Solution:
    """Return a solution of the toy model's, whose judge is a function of the prompt's text."""
    judge = FunctionBackend(lambda ask: reply(ask.prompt if isinstance(ask.prompt, str) else ask.prompt[0].content))
    models = {"policy": ToyBackend(ToyLanguage(accuracy=0.6)), "judge": judge}
    with tts.Solver(models, Judge(model="judge", votes=2, max_tokens=64, prompt_tokens=300)) as solver:
        return solver.solve("3 + 4 - 2 + 9", tts.Budget(**budget), strategy=strategy)


def test_its_scores_guide_and_its_tokens_are_booked() -> None:
    solution = judged_by(
        lambda text: '{"score": 9}' if "A: 14" in text else '{"score": 1}', "best_of_n(n=6) | best", samples=6
    )
    assert solution.answer == "14"
    assert solution.candidates[0].scores["main"] == pytest.approx(0.9)
    assert solution.usage.verifier_tokens > 6 * 2
    assert solution.usage.verifier_calls == 6


def test_solutions_that_no_prompt_had_room_for_count_as_no_calls() -> None:
    """So a study says that its verifier was never called; another member of an ensemble is counted."""
    models = {"policy": ToyBackend(), "judge": FunctionBackend(lambda ask: '{"score": 9}')}
    short = Judge(model="judge", votes=1, max_tokens=64, prompt_tokens=20)
    known = Judge(model="judge", votes=1, max_tokens=64, prompt_tokens=900)
    for verifier, calls in ((short, 0), (Ensemble(members=(short, known)), 2)):
        with tts.Solver(models, verifier, strategy="best_of_n(n=2) | best") as solver:
            usage = solver.solve("3 + 4 - 2 + 9", tts.Budget(samples=2)).usage
        assert (usage.verifier_calls, usage.verifier_tokens > 0) == (calls, calls > 0)


def fails(text: str) -> str:
    raise RuntimeError("503 Service Unavailable")


UNREAD = "10 of 10 replies of the judge could not be read"
FAILED = "10 replies or scores of verifiers failed: "


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (lambda text: "it looks right", UNREAD),
        (lambda text: CUT, UNREAD),
        (
            lambda text: None,
            f"{FAILED}BadReply: the function returned NoneType, but must return text, or an Answer with text",
        ),
        (fails, f"{FAILED}RuntimeError: 503 Service Unavailable"),
    ],
)
def test_a_judge_that_says_nothing_of_use_leaves_a_vote_and_a_count(reply: Any, told: str) -> None:
    solution = judged_by(reply, "best_of_n(n=5) | weighted", samples=5)
    assert solution.answer is not None, "without one known score it is a majority vote"
    assert solution.error is None
    assert [warning for warning in solution.warnings if "replies" in warning] == [told]
    assert all(math.isnan(c.scores["main"]) for c in solution.candidates)


def test_a_small_budget_is_never_passed() -> None:
    for tokens in (40, 400, 1200, 3000):
        solution = judged_by(lambda text: '{"score": 9}', "best_of_n(n=4) | best", tokens=tokens)
        assert solution.usage.tokens <= tokens
        assert solution.error is None


def test_the_pairwise_selection_asks_for_pairs_and_pays_for_them() -> None:
    def prefers(text: str) -> str:
        a, b = text.split("Solution A:")[1].split("Solution B:")
        return '{"better": "%s"}' % ("A" if "A: 14" in a else "B" if "A: 14" in b else "tie")

    solution = judged_by(prefers, "best_of_n(n=8) | pairwise", samples=8)
    distinct = min(4, len({c.answer for c in solution.candidates}))
    assert distinct > 2
    assert solution.answer == "14"
    assert solution.usage.verifier_calls == distinct * (distinct - 1) // 2
    assert solution.usage.verifier_tokens > 0
    assert 0.5 <= solution.confidence * distinct / 2 <= 1  # of distinct * (distinct - 1) / 2 wins it has distinct - 1
    tight = judged_by(prefers, "best_of_n(n=8) | pairwise", tokens=1500)
    assert tight.usage.tokens <= 1500
    assert tight.error is None


def test_a_verifier_that_compares_nothing_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(ConfigError, match=r"compares.*'confidence'"):
        tts.solve("3 + 4", 100, model=ToyBackend(), strategy="best_of_n(n=2) | pairwise", verifier="confidence")
