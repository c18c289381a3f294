"""`solve`, `asolve`, `solve_many` and `Solver`: from everywhere, with any parts, and with any mistake in what is
asked.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

import tts
from tests.support.guard import LIMIT_S, run_at_once
from tts.backends.function import Ask, FunctionBackend
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.errors import CapabilityError, ConfigError, EngineError, PromptTooLong, TTSError
from tts.models.registry import ModelRecord
from tts.search.ends import END, SearchEnded
from tts.search.parts import Selection, Strategy
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.solver.model_cache import LOOP
from tts.solver.run import solve_problem
from tts.solver.solver import Solver
from tts.types import Candidate, Message, Problem
from tts.verifiers.toy import ToyVerifier

PLAN = "best_of_n(n=4) | majority"
PROBLEMS = ["3 + 4 - 2", "10 - 7 + 5 - 20", "1 + 1", "2 + 2 + 2 + 2 - 9"]


def traces(solutions: Sequence[Any]) -> list[Any]:
    return [s.trace.canonical() for s in solutions]


@pytest.fixture(autouse=True)
def answered():
    """After each test the library's thread still answers; should it not, another takes its place, so that later tests
    do not hang.
    """
    yield
    try:
        assert run_at_once(lambda: LOOP.run(asyncio.sleep(0, "here"))) == ["here"]
    except AssertionError:
        LOOP._reset()
        raise


@pytest.fixture(scope="module")
def alone() -> list[Any]:
    """The solutions of the problems, each solved alone by `tts.solve`."""
    return [tts.solve(p, 300, model="toy", strategy=PLAN, seed=3) for p in PROBLEMS]


# From everywhere ------------------------------------------------------------------------------------------------------


def test_asolve_is_solve_awaited(alone):
    async def main():
        return await asyncio.gather(*(tts.asolve(p, 300, model="toy", strategy=PLAN, seed=3) for p in PROBLEMS))

    assert traces(run_at_once(lambda: asyncio.run(main()))[0]) == traces(alone)


def test_solve_inside_a_running_loop(alone):
    async def main():
        return tts.solve(PROBLEMS[0], 300, model="toy", strategy=PLAN, seed=3)

    assert traces(run_at_once(lambda: asyncio.run(main()))) == traces(alone[:1])


def test_solve_from_several_threads_at_once(alone):
    with Solver("toy", strategy=PLAN) as solver:
        shared = run_at_once(*[lambda p=p: solver.solve(p, 300, seed=3) for p in PROBLEMS * 2])
    quick = run_at_once(*[lambda p=p: tts.solve(p, 300, model="toy", strategy=PLAN, seed=3) for p in PROBLEMS * 2])
    assert traces(shared) == traces(quick) == traces(alone) * 2


def test_a_solver_works_again_after_it_was_closed(alone):
    with Solver("toy", strategy=PLAN) as solver:
        first = solver.solve(PROBLEMS[0], 300, seed=3)
    assert traces([first, solver.solve(PROBLEMS[0], 300, seed=3)]) == traces(alone[:1] * 2)
    solver.close()


def test_a_cancelled_asolve_cancels_its_search():
    begun, ended = threading.Event(), threading.Event()

    async def write(ask: Ask) -> str:
        begun.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async def main():
        waiting = asyncio.create_task(tts.asolve("3 + 4", 90, backend=write, strategy="single"))
        await asyncio.to_thread(begun.wait, 30)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    assert run_at_once(lambda: asyncio.run(main())) == [None]
    assert ended.wait(LIMIT_S)


def nested() -> float:
    return float(tts.solve("1 + 1", 90, model="toy", strategy="single").answer is not None)


def test_a_plain_verifier_may_solve():
    (end,) = run_at_once(
        lambda: tts.solve("3 + 4", 300, model="toy", verifier=lambda *_: nested(), strategy="best_of_n(n=2) | best")
    )
    assert end.error is None
    assert {c.scores["main"] for c in end.candidates} == {1.0}


@pytest.mark.slow
def test_plain_verifiers_of_many_problems_may_all_solve_with_plain_verifiers():
    def judge(problem: Problem, text: str) -> float:
        return (
            tts.solve("1 + 1", 90, model="toy", verifier=lambda *_: 0.5, strategy="single | best")
            .candidates[0]
            .scores["main"]
        )

    (ends,) = run_at_once(
        lambda: tts.solve_many(["3 + 4"] * 100, each=90, model="toy", verifier=judge, strategy="single | best")
    )
    assert {c.scores["main"] for end in ends for c in end.candidates} == {0.5}


def test_an_async_verifier_awaits_asolve_and_is_told_so():
    async def right(problem: Problem, text: str) -> float:
        return float((await tts.asolve("1 + 1", 90, model="toy", strategy="single")).answer is not None)

    async def wrong(problem: Problem, text: str) -> float:
        return nested()

    def solve(verifier: Any) -> Any:
        return tts.solve("3 + 4", 300, model="toy", verifier=verifier, strategy="best_of_n(n=2) | best")

    good, bad = run_at_once(lambda: solve(right), lambda: solve(wrong))
    assert {c.scores["main"] for c in good.candidates} == {1.0}
    assert isinstance(bad.error.__cause__, ConfigError)
    assert "await tts.asolve" in bad.error.hint


@pytest.mark.parametrize("call", [nested, tts.close, lambda: tts.solve_many(["1 + 1"], 90, model="toy")])
def test_what_waits_in_the_library_s_thread_is_refused_and_nothing_hangs(call):
    async def write(ask: Ask) -> str:
        with pytest.raises(ConfigError, match="own thread"):
            call()
        return "A: 7"

    (end,) = run_at_once(lambda: tts.solve("3 + 4", 90, backend=write, task="arithmetic", strategy="single"))
    assert end.answer == "7"


@pytest.mark.parametrize("form", ["plain", "async", "event", "verifier"])
def test_an_exit_in_a_function_is_an_error_and_later_calls_are_served(form):
    async def write(ask: Ask) -> str:
        sys.exit("done")

    parts: dict[str, Any] = {
        "plain": {"backend": lambda ask: sys.exit("done")},
        "async": {"backend": write},
        "event": {"model": "toy", "on_event": lambda event: sys.exit("done")},
        "verifier": {"model": "toy", "verifier": lambda *_: sys.exit("done"), "strategy": "single | best"},
    }[form]

    def solve():
        end = tts.solve("3 + 4", 90, **{"strategy": "single", **parts})
        return end.failures or end.error

    (end,) = run_at_once(solve)
    assert isinstance(end, TTSError | SystemExit) or "SystemExit" in end
    assert run_at_once(nested) == [1.0]


# Parts ----------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drafted(Strategy):
    """Draft with one model, then write with the policy; both are candidates."""

    registered_as: ClassVar[str] = "drafted"

    async def run(self, search: Search) -> Sequence[Candidate]:
        await search.complete([search.root], model="draft")
        [[child]] = await search.expand([search.root], 1, END)
        search.finish(child)
        return search.candidates

    def default_selection(self, *, verified: bool) -> Selection:
        return Majority()


def test_several_models_write_in_their_roles():
    wrong, right = ToyBackend(ToyLanguage(accuracy=0.0)), ToyBackend(ToyLanguage(accuracy=1.0))
    with Solver({"policy": right, "draft": wrong}, task="arithmetic") as solver:
        draft, written = sorted(solver.solve("3 + 4", 300, strategy=Drafted()).candidates, key=lambda c: c.index)
    assert (draft.trajectory.model, written.trajectory.model) == ("draft", "policy")
    assert draft.answer != "7"
    assert written.answer == "7"


def test_a_role_without_a_model_is_named_with_the_cure():
    with pytest.raises(ConfigError, match=r"'draft'.*'policy'.*'draft': …"), Solver("toy") as solver:
        solver.solve("3 + 4", 300, strategy=Drafted())


def test_several_verifiers_score_in_their_roles():
    verifiers = {"main": lambda *_: 0.25, "final": lambda *_: 0.75}
    with Solver("toy", verifiers) as solver:
        for role, score in (("main", 0.25), ("final", 0.75)):
            end = solver.solve("3 + 4", 300, strategy=f"best_of_n(n=2) | best(verifier='{role}')")
            assert [c.scores for c in end.candidates] == [{role: score}] * 2


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"models": {"draft": "toy"}}, "models has the roles .*, but needs 'policy'"),
        ({"models": {"policy": None}}, "the model is None"),
        ({"models": "toi"}, "did you mean toy"),
        ({"backend": {"policy": len}}, "backend is .*, but must be the name of a backend"),
        ({"models": "toy", "verifiers": 5}, "the verifier is 5, but must be a name, a verifier or a function"),
        ({"models": "toy", "verifiers": ToyVerifier}, "make an object of the class"),
        ({"models": "toy", "verifiers": {"main": None}}, "the verifier is None"),
        ({"models": "toy", "task": "nonsense"}, "nonsense"),
        ({"models": "toy", "strategy": "best_of_m"}, "did you mean best_of_n"),
    ],
)
def test_a_part_that_does_not_fit_is_refused_when_the_solver_is_made(parts, message):
    with pytest.raises(ConfigError, match=message):
        Solver(**parts)


def test_a_problem_is_text_messages_or_a_problem(alone):
    text = PROBLEMS[0]
    forms = [text, Problem(text)]
    assert traces(tts.solve(form, 300, model="toy", strategy=PLAN, seed=3) for form in forms) == traces(alone[:1] * 2)
    forms = [[{"role": "user", "content": text}], [Message("user", text)], Problem((Message("user", text),))]
    one, *others = traces(tts.solve(form, 300, model="toy", strategy=PLAN, seed=3) for form in forms)
    assert others == [one] * 2


@pytest.mark.parametrize(
    "problem",
    [
        5,
        None,
        b"3 + 4",
        {"role": "user", "content": "3"},
        [{"role": "user"}],
        ["3 + 4"],
        [Message("user", 5)],
        [5],
        Problem(5),
    ],
)
def test_what_is_no_problem_is_refused_with_a_hint(problem):
    with pytest.raises(
        ConfigError,
        match=r"must be (text or a list of chat messages|a role and a content, both text) .*(role.*content|solve_many)",
    ):
        tts.solve(problem, 90, model="toy", strategy=PLAN)

    async def main():
        await tts.asolve(problem, 90, model="toy", strategy=PLAN)

    with pytest.raises(ConfigError, match=r"but must be (text|a role)"):
        asyncio.run(main())


def test_events_come_after_each_call_from_another_thread_and_change_nothing(alone):
    seen: list[Any] = []
    threads: set[int] = set()

    def on_event(event):
        seen.append(event)
        threads.add(threading.get_ident())

    end = tts.solve(PROBLEMS[0], 300, model="toy", strategy=PLAN, seed=3, on_event=on_event)
    assert traces([end]) == traces(alone[:1])
    assert [event.calls for event in seen] == list(range(1, len(end.trace.calls) + 1))
    assert (seen[-1].answer, seen[-1].candidates, seen[-1].tokens) == (end.answer, 4, end.usage.tokens)
    assert threading.get_ident() not in threads


def test_a_run_that_fails_before_its_first_candidate_raises_and_later_returns(monkeypatch):
    sample, left = ToyBackend.sample, [0]

    def broken(self, request):
        left[0] -= 1
        if left[0] < 0:
            raise EngineError("the engine stopped")
        return sample(self, request)

    monkeypatch.setattr(ToyBackend, "sample", broken)
    with pytest.raises(EngineError, match="the engine stopped"):
        tts.solve(PROBLEMS[0], 300, model="toy", strategy="best_of_n")
    left[0] = 1
    end = tts.solve(PROBLEMS[0], 300, model="toy", strategy="best_of_n")
    assert end.candidates
    assert isinstance(end.error, EngineError)


@pytest.mark.parametrize("n", [1, 5])
def test_rows_that_fail_are_drawn_again_until_all_are_there(n: int):
    asks: list[Ask] = []

    def flaky(ask: Ask) -> tts.Answer:
        asks.append(ask)
        if len(asks) < 3 or len(asks) % 3 == 0:  # the first of all, and a third of the others
            raise ValueError("no luck")
        return tts.Answer("x", tokens=1)

    solution = tts.solve("hello", tts.Budget(samples=100), backend=flaky, task="text", strategy=f"best_of_n(n={n})")
    assert len(solution.candidates) == n
    assert solution.failures == {"ValueError": len(asks) - n}
    assert solution.usage.samples == len(asks)


def test_a_model_that_fails_again_and_again_is_given_up_with_what_was_found():
    asks: list[Ask] = []

    def ends(ask: Ask) -> tts.Answer:
        asks.append(ask)
        if len(asks) > 2:
            raise ValueError("no more")
        return tts.Answer("x", tokens=1)

    solution = tts.solve("hello", tts.Budget(samples=100), backend=ends, task="text", strategy="best_of_n(n=4)")
    assert (len(solution.candidates), solution.stopped_by, solution.failures) == (
        2,
        "every row failed",
        {"ValueError": 8},
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "toy", "backend": ToyBackend()},
            "model is 'toy', but the backend that was given stands for a model",
        ),
        (
            {"backend": lambda ask: "7", "url": "http://localhost:8000"},
            "url is 'http://localhost:8000', but runs models given by name",
        ),
        (
            {"model": ToyBackend(), "backend": "transformers"},
            "backend is 'transformers', but runs models given by name",
        ),
    ],
)
def test_what_would_be_left_aside_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        tts.solve("1 + 1", 100, **options)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"temprature": 0}, "option.*'temprature',.*did you mean temperature"),
        ({"top_p": 0.9}, r"write sampling=tts.Sampling\(top_p=…\)"),
        ({"tokens": 90}, r"it is a unit of the budget: write budget={'tokens': …}"),
        ({"zzz": 1}, "known: allow_oracle"),
    ],
)
def test_a_wrong_option_gets_a_hint(wrong: dict[str, Any], hint: str):
    with pytest.raises(ConfigError, match=hint):
        tts.solve("1 + 1", 90, model="toy", **wrong)


class UnpricedToy(ToyBackend):
    """The toy, without the prices of its record."""

    @classmethod
    def from_record(cls, record: ModelRecord, *arguments: Any, **options: Any) -> UnpricedToy:
        del record, arguments, options
        return cls()


def test_python_takes_what_the_command_line_takes():
    sum_, options = "3 + 4 - 2", {"model": "toy", "strategy": "single"}
    greedy = tts.solve(sum_, 400, sampling=tts.Sampling(temperature=0, max_tokens=7), **options)
    assert tts.solve(sum_, {"tokens": 400}, temperature=0, max_tokens=7, **options).text == greedy.text
    assert tts.solve(sum_, 400, sampling=tts.Sampling(temperature=0), max_tokens=7, **options).text == greedy.text
    assert [
        one.text for one in tts.solve_many([sum_], each={"tokens": 400}, temperature=0, max_tokens=7, **options)
    ] == [greedy.text]
    usage = tts.solve(sum_, {"tokens": 400, "usd": 1}, usd_in="1/M", usd_out="2/M", **options).usage
    assert usage.usd == pytest.approx(
        (usage.prompt_tokens + (usage.reused_tokens or 0) + 2 * usage.generated_tokens) / 1e6
    )
    assert usage.usd > 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"usd_in": "0.15/M", "backend": f"{__name__}:UnpricedToy"},
            "usd_in is .* a million tokens, but the model 'toy' takes no prices",
        ),
        ({"usd_in": 0.15}, "usd_in of model 'toy' is 0.15, a price without a unit"),
        ({"temperature": -1}, "temperature is -1"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"model": ToyBackend(), "usd_out": "1/M"}, "usd_out is '1/M', but the model is a backend or a function"),
        ({"budget": {"token": 90}}, "budget unit is 'token'.*did you mean tokens"),
        ({"budget": {}}, "the budget has no limit"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_spent(wrong: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        tts.solve("1 + 1", **({"model": "toy", "budget": 90} | wrong))


def test_a_prompt_that_is_too_long_is_refused_before_anything_is_spent():
    class ShortBackend(FunctionBackend):
        context = 3

    run = Solver(ShortBackend(lambda ask: "7"), {}, task="text", strategy="single").prepare("What is 3 + 4?", 100)
    with pytest.raises(PromptTooLong, match="the prompt has 5 tokens"):
        LOOP.run(solve_problem(run))


def test_a_selection_that_the_budget_ends_leaves_the_choice_to_the_votes():
    class EndingSelection(tts.Selection):
        async def select(self, candidates, search):
            raise SearchEnded("budget: verifier_tokens")

    end = tts.solve(PROBLEMS[0], 400, model="toy", strategy=tts.BestOfN(n=4) | EndingSelection())
    plain = tts.solve(PROBLEMS[0], 400, model="toy", strategy=PLAN)
    assert (end.stopped_by, end.error, end.answer) == ("budget: verifier_tokens", None, plain.answer)
    assert end.confidence == plain.confidence


def test_a_strategy_that_forks_at_tokens_is_refused_where_their_texts_are_not_shown(monkeypatch):
    monkeypatch.setattr(ToyBackend, "metadata", dataclasses.replace(ToyBackend.metadata, text_of=None))
    with pytest.raises(CapabilityError, match=r"forks.*'toy'") as refused:
        tts.solve(PROBLEMS[0], 400, model="toy", strategy="power_sampling")
    assert refused.value.hint.startswith("the nearest strategy that can run here is ")
