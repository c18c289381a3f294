"""Generative verification: verdicts behind reasoning, by log-probability and in words, by aspects, and what they
cost.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tts
from tests.support import pair
from tests.support.pair import home  # noqa: F401 - a fixture
from tests.support.repeats import repeats
from tests.verifiers.paths import path, wholes
from tts.backends.base import Row, SampleRequest, Sampling, StopCondition
from tts.backends.function import Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.errors import CapabilityError, ConfigError
from tts.search.calls import MeteredCalls
from tts.tasks import get
from tts.types import Prompt
from tts.verifiers.genrm import ASPECTS, GenRm, MultiAspect


class Law:
    """Calls whose model reasons and answers by functions of the prompt's turns; a token is a word."""

    def __init__(
        self,
        reply: Callable[[str, int], str] = lambda text, vote: "I checked it.",
        odds: Callable[[Sequence[str]], float] = lambda turns: 0.0,
    ):
        self.reply, self.odds = reply, odds
        self.shown: list[tuple[str, ...]] = []
        self.told: dict[str, tuple[int, int]] = {}

    @property
    def noted(self) -> dict[str, tuple[int, int]]:
        return {what: counts for what, counts in self.told.items() if counts[0]}

    def count(self, prompt: Prompt) -> int:
        return sum(len(turn.content.split()) for turn in prompt if not isinstance(turn, str))

    async def replies(
        self, prompts: Sequence[Prompt], *, votes: int, max_tokens: int, sampling: Sampling
    ) -> list[tuple[str, ...]]:
        return [tuple(self.reply(prompt[0].content, vote) for vote in range(votes)) for prompt in prompts]  # type: ignore[union-attr]

    async def choices(self, prompts: Sequence[Prompt], tokens: Sequence[str]) -> NDArray[np.float64]:
        turns = [tuple(turn.content for turn in prompt) for prompt in prompts]  # type: ignore[union-attr]
        self.shown += turns
        odds = np.array([self.odds(one) for one in turns])
        # other words have a chance, too
        return np.stack([-np.log1p(np.exp(-odds)), -np.log1p(np.exp(odds))], axis=1) - 1.0

    def leave_out(self, what: str, prompt: Prompt, over: int) -> None:
        assert over > 0

    def note_unread(self, what: str, number: int, of: int) -> None:
        before = self.told.get(what, (0, 0))
        self.told[what] = (before[0] + number, before[1] + of)


def test_the_score_is_the_mean_probability_of_yes_over_the_reasons() -> None:
    law = {"first": 0.9, "second": 0.2, "third": 0.7}
    calls = Law(lambda text, vote: list(law)[vote], lambda turns: math.log(law[turns[1]] / (1 - law[turns[1]])))
    [score] = wholes(GenRm(votes=3), path([-1.0], text="7"), calls=calls)
    assert score == pytest.approx(sum(law.values()) / 3)
    assert [len(turns) for turns in calls.shown] == [3, 3, 3], (
        "the question, the reason, and the question for the verdict"
    )
    assert all(turns[2] == "Is it right? Answer with one word, Yes or No." for turns in calls.shown)


def test_without_reasons_the_verdict_stands_behind_the_question() -> None:
    calls = Law(odds=lambda turns: 2.0 if "A: 7" in turns[0] else -1.0)
    right, wrong = wholes(GenRm(votes=0), path([-1.0], text="A: 7"), path([-1.0], text="A: 8"), calls=calls)
    assert (right, wrong) == pytest.approx((1 / (1 + math.exp(-2)), 1 / (1 + math.e)))
    assert [len(turns) for turns in calls.shown] == [1, 1]


def test_neither_word_possible_is_unknown() -> None:
    class Neither(Law):
        async def choices(self, prompts: Sequence[Prompt], tokens: Sequence[str]) -> NDArray[np.float64]:
            return np.full((len(prompts), 2), -np.inf)

    assert math.isnan(wholes(GenRm(votes=2), path([-1.0], text="7"), calls=Neither())[0])


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("It holds.\nVerdict: Yes", 1.0),
        ("**Verdict:** no.", 0.0),
        ("The verdict is **Yes**", 1.0),
        (r"Verdict: \(\boxed{\text{No}}\)", 0.0),
        ("Verdict: Yes? I was wrong. Verdict: NO", 0.0),
        ("It is right, yes.", math.nan),
        ("Verdict: Yesterday", math.nan),
        ("", math.nan),
    ],
)
def test_verdicts_in_words(reply: str, verdict: float) -> None:
    calls = Law(lambda text, vote: reply)
    [score] = wholes(GenRm(votes=1, verdict="words"), path([-1.0], text="7"), calls=calls)
    assert score == pytest.approx(verdict, nan_ok=True)
    assert calls.noted == ({"replies of the genrm could not be read": (1, 1)} if math.isnan(verdict) else {})


def test_what_is_too_long_is_not_shown_in_part() -> None:
    calls = Law()
    long, short = wholes(
        GenRm(votes=1, prompt_tokens=60), path([-1.0], text="word " * 90), path([-1.0], text="word"), calls=calls
    )
    assert (math.isnan(long), short) == (True, 0.5)
    assert calls.noted == {"prompts were longer than the genrm's prompt_tokens=60, and not shown": (1, 2)}
    calls = Law(lambda text, vote: "word " * 900)
    assert math.isnan(wholes(GenRm(votes=2, max_tokens=4, prompt_tokens=60), path([-1.0], text="word"), calls=calls)[0])
    assert calls.noted == {"replies of the genrm were too long to ask for their verdict": (2, 2)}


# Aspects --------------------------------------------------------------------------------------------------------------


def test_the_score_is_the_share_of_the_aspects_that_are_approved() -> None:
    calls = Law(lambda text, vote: "Verdict: No" if ASPECTS["units"] in text else "Verdict: Yes")
    [score] = wholes(
        MultiAspect(aspects=("logic", "units", "Is it short?", "facts")), path([-1.0], text="7"), calls=calls
    )
    assert score == 0.75


def test_an_aspect_without_a_verdict_is_left_out() -> None:
    says = {ASPECTS["logic"]: "Verdict: Yes", ASPECTS["facts"]: "I cannot say.", ASPECTS["cases"]: "Verdict: No"}
    calls = Law(lambda text, vote: next(reply for question, reply in says.items() if question in text))
    aspects = ("logic", "facts", "cases")
    assert wholes(MultiAspect(aspects=aspects), path([-1.0], text="7"), calls=calls) == [0.5]
    assert math.isnan(wholes(MultiAspect(aspects=("facts",)), path([-1.0], text="7"), calls=calls)[0])


def test_aspects_by_log_probability_are_averaged() -> None:
    calls = Law(odds=lambda turns: 1.0 if ASPECTS["logic"] in turns[0] else -3.0)
    [score] = wholes(
        MultiAspect(aspects=("logic", "facts"), votes=0, verdict="logprobs"), path([-1.0], text="7"), calls=calls
    )
    assert score == pytest.approx((1 / (1 + math.exp(-1)) + 1 / (1 + math.exp(3))) / 2)


# The law of what comes next, and of sampled verdicts ------------------------------------------------------------------


@pytest.mark.slow
@repeats(800, 3000, "n")
def test_choices_are_the_law_that_rows_are_drawn_from(n: int) -> None:
    """On a tiny model of random weights: log-probabilities behind a prompt, against how often each digit is drawn
    there.
    """
    backend, prompt, digits = pair.shared_engine(), "3 + 4\n", "0123456789"

    async def both() -> tuple[NDArray[np.float64], Counter[str]]:
        calls = MeteredCalls(backend, get("arithmetic"), 10**6, None, 7)  # type: ignore[arg-type]
        before = backend.counters.prompt_tokens
        [law] = await calls.choices([prompt], tuple(digits))
        assert calls.computed == backend.counters.prompt_tokens - before > 0, "charged as it was computed"
        [opened] = await backend.open([prompt])
        rows = tuple(Row(stream, 0, 1) for stream in range(n))
        drawn = backend.sample(SampleRequest(opened.value, rows, Sampling(), StopCondition(), rereads=False))
        return law, Counter([(await drawn.row(i)).text for i in range(n)])

    law, counts = asyncio.run(both())
    assert sum(counts[digit] for digit in digits) > n / 10
    for p, digit in zip(np.exp(law), digits, strict=True):
        assert counts[digit] / n == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / n))


def approving(right: float, wrong: float) -> Callable[[Ask], str]:
    """Return a model that says yes to right solutions of 3 + 4 - 2 + 9, and to wrong ones, with given chances."""

    def say(ask: Ask) -> str:
        chance = right if "A: 14" in str(ask.prompt) else wrong
        return f"Verdict: {'Yes' if np.random.default_rng(ask.seed).random() < chance else 'No'}"

    return say


def checked(verifier: Any, n: int, right: float = 0.8, wrong: float = 0.3, **budget: Any) -> tts.Solution:
    models = {"policy": ToyBackend(ToyLanguage(accuracy=0.6)), "judge": FunctionBackend(approving(right, wrong))}
    with tts.Solver(models, verifier) as solver:
        return solver.solve(
            "3 + 4 - 2 + 9", tts.Budget(**budget or {"samples": n}), strategy=f"best_of_n(n={n}) | best"
        )


@pytest.mark.parametrize(("votes", "n"), [(80, 8), pytest.param(200, 30, marks=pytest.mark.slow)])
def test_sampled_verdicts_have_the_mean_of_independent_draws(votes: int, n: int) -> None:
    solution = checked(GenRm(model="judge", votes=votes, verdict="words", max_tokens=64), n)
    assert len({c.answer == "14" for c in solution.candidates}) == 2
    for c in solution.candidates:
        p = 0.8 if c.answer == "14" else 0.3
        assert c.scores["main"] == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / votes))


def test_its_tokens_are_booked_and_no_limit_is_passed() -> None:
    verifier = GenRm(model="judge", votes=3, verdict="words", max_tokens=64, prompt_tokens=300)
    assert checked(verifier, 4).usage.verifier_tokens > 4 * 3
    for tokens in (40, 400, 1200, 3000):
        solution = checked(verifier, 4, tokens=tokens)
        assert solution.usage.tokens <= tokens
        assert solution.error is None


def test_a_model_without_log_probabilities_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(CapabilityError, match=r"'genrm'.*capability 'next_logprobs'"):
        checked(GenRm(model="judge"), 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GenRm(votes=-1), "votes is -1, but must be a whole number of at least 0 and at most 1024"),
        (lambda: GenRm(votes=0, verdict="words"), "votes is 0, but a verdict in words needs a reply"),
        (lambda: GenRm(verdict="word"), "verdict is 'word', but no verdict has that name"),
        (lambda: GenRm(yes="No"), "yes and no are both 'No', but must differ"),
        (lambda: GenRm(question=""), "question is '', but must be a text"),
        (lambda: MultiAspect(aspects=()), r"aspects is \(\), but must be a list of names or questions"),
        (lambda: MultiAspect(aspects=("logik",)), "aspects is 'logik', but no aspects has that name"),
        (lambda: MultiAspect(aspects=("logic", "logic")), "must name each once"),
    ],
)
def test_what_means_nothing_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_replies_that_leave_no_room_for_a_prompt_are_refused() -> None:
    backend = ToyBackend(ToyLanguage(accuracy=0.6))
    backend.context = 200
    assert GenRm(votes=1, verdict="words", max_tokens=150).fill(None, backend).prompt_tokens == 50
    with pytest.raises(ConfigError, match=r"max_tokens.*200,.*leave.*model's"):
        GenRm(votes=1, verdict="words", max_tokens=200).fill(None, backend)


def test_a_verdict_of_several_tokens_is_refused_when_a_solver_is_made() -> None:
    with pytest.raises(ConfigError, match=r"yes.*'77', which.*tokens"):
        GenRm(yes="77", no="8", prompt_tokens=20, max_tokens=8).fill(None, pair.shared_engine())
