"""Limits hold where a process model scores: its prompt's pass is paid beside tokens, its FLOPs are its own, and all
books agree.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import tts
from tests.contracts.verifier_contract import Do
from tests.support import pair
from tests.support.chaos import ChaosBackend
from tests.support.pair import home  # noqa: F401 - a fixture
from tests.support.runs import Solved, change_setup, check_books, make_run, solve, solve_and_show
from tts.backends.base import Sampling
from tts.backends.capabilities import text_bound
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Budget, Rates
from tts.budget.units import USD_UNIT
from tts.errors import BudgetExceeded, CapabilityError
from tts.search.ends import END, STEP, Tokens
from tts.search.search import Search
from tts.solver.setup import ProblemRun
from tts.verifiers.base import Verifier
from tts.verifiers.heads import Probe, ProcessVerifier
from tts.verifiers.self_evaluation import SelfEvaluation
from tts.verifiers.toy import ToyVerifier

pytest.importorskip("torch", reason="the engine runs on torch")
pytest.importorskip("transformers", reason="the pair's files are made by it")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

PROBLEM = "3 + 4 - 2 + 9"
PRICES = Rates(flops=2, usd_in=10**6, usd_reused=10**5, usd_out=4 * 10**6)


class Pair:
    """The pair behind an unkind wrapper with counters of its own, and what its process model has read since."""

    def __init__(self, *, seed: int = 1, rates: Rates | None = None) -> None:
        self.engine = pair.shared_engine()
        self.backend = ChaosBackend(self.engine, seed=seed, slow=1, rates=rates)
        if rates is not None:
            heads = {name: _priced(head, rates) for name, head in (self.engine.metadata.value_heads or {}).items()}
            self.backend.metadata = dataclasses.replace(self.backend.metadata, value_heads=heads)
        self._before = self._stats.prefill_computed

    @property
    def _stats(self) -> Any:
        return self.engine.reward_models["process"].runner.stats

    @property
    def process_tokens(self) -> int:
        return self._stats.prefill_computed - self._before

    @property
    def policy_tokens(self) -> int:
        return self.backend.counters.prompt_tokens + self.backend.counters.generated_tokens - self.process_tokens

    @property
    def flops(self) -> int:
        """What both models computed, counted by hand."""
        policy, process = (
            self.engine.runner.decoder.parameters,
            self.engine.reward_models["process"].runner.decoder.parameters,
        )
        assert policy != process
        return 2 * policy * self.policy_tokens + 2 * process * self.process_tokens


def _priced(facts: Any, rates: Rates) -> Any:
    return dataclasses.replace(facts, rates=rates)


def run_of(made: Pair, budget: Budget | float, plan: Any, verifier: Verifier | None = None, **more: Any) -> ProblemRun:
    verifiers = more.pop("verifiers", {"main": verifier or ProcessVerifier()})
    return make_run(PROBLEM, budget, plan, made.backend, verifiers=verifiers, **more)


def done(made: Pair, *what: Any, **more: Any) -> Solved:
    """Solve a run that failed in nothing, and whose meter, ledger, the wrapper's and the engine's own counts are
    one.
    """
    return checked(made, solve_and_show(run_of(made, *what, **more)))


def checked(made: Pair, end: Solved) -> Solved:
    """Assert that a run ended so."""
    assert not isinstance(end.solution, BaseException), end.solution
    assert end.solution.error is None, end.solution.error
    check_books(end.search)
    total = end.search.account.ledger.total()
    counters = made.backend.counters
    assert total.prompt_tokens + total.tokens == counters.prompt_tokens + counters.generated_tokens
    assert total.flops == made.flops
    assert not made.backend.live
    return end


async def beam(search: Search) -> None:
    live = [search.root]
    while live:
        children = [child for of in await search.expand(live, n=3) for child in of]
        scores = await search.score(children)
        live = [children[i] for i in np.argsort(-scores, kind="stable")[:2]]
        for t in live:
            search.finish(t)
        live = [t for t in live if t.status == "active"]
        search.keep(live)


async def two_prompts(search: Search) -> None:
    """Open the prompt again now and then, and score rows of both roots, whole and in part."""
    for _ in range(3):
        root = await search.open("solve")
        [ts] = await search.expand([root], 3, STEP)
        await search.score([*ts, ts[0]])
        made = await search.complete([search.root], 2)
        await search.score([c.trajectory for c in made])


PLANS: dict[str, Any] = {
    "weighted": "best_of_n | weighted",
    "best": "best_of_n(n=5) | best",
    "most frequent": "best_of_n | best_of_majority(alpha=0)",
    "beam": Do(check=beam),
    "two prompts": Do(check=two_prompts),
}


def budget_of(unit: str, amount: int) -> Budget:
    return Budget(**{unit: amount * 300_000 if unit == "flops" else amount})


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["tokens", "verifier_tokens", "flops"])
@pytest.mark.parametrize("plan", PLANS)
def test_no_limit_is_passed_and_all_books_agree(plan: str, unit: str) -> None:
    for seed, amount in enumerate((1, 90, 400)):
        made = Pair(seed=seed)
        budget = budget_of(unit, amount)
        if unit == "verifier_tokens":
            budget = Budget(verifier_tokens=amount, samples=6)
        end = done(made, budget, PLANS[plan], seed=seed)
        total = end.search.account.ledger.total()
        assert made.process_tokens >= total.verifier_tokens, "a prompt's pass was booked as verifier tokens"
        assert total.prompt_tokens <= made.backend.counters.prompt_tokens


@pytest.mark.parametrize("usd", [1e-8, 1e-7, 1e-6])
def test_dollars_pay_the_prompts_pass_and_what_is_reused(usd: float) -> None:
    made = Pair(rates=PRICES)
    end = solve_and_show(run_of(made, Budget(usd=usd), "best_of_n(n=40) | weighted"))
    check_books(end.search)
    assert end.solution.error is None
    counters = made.backend.counters
    spent = PRICES.cost(
        "usd", computed=counters.prompt_tokens, reused=counters.reused_tokens, generated=counters.generated_tokens
    )
    assert spent == end.search.account.spending("usd") <= usd * USD_UNIT


def test_a_prompt_is_read_once_each_time_it_is_opened_and_no_limit_on_tokens_counts_it() -> None:
    made = Pair()

    async def check(search: Search) -> None:
        prompt = search.rows.root_tokens
        for count in (1, 2, 3):
            root = search.root if count == 1 else await search.open("solve")
            before = search.account.ledger.total()
            for _ in range(2):  # the second time it has been read
                [ts] = await search.expand([root], 2, Tokens(4))
                await search.score(ts)
            total = search.account.ledger.total()
            assert total.prompt_tokens - before.prompt_tokens == prompt
            assert total.verifier_tokens - before.verifier_tokens == 2 * 2 * 4
            assert made.process_tokens == count * (prompt + 2 * 2 * 4)

    # not a token more than rows and scores
    end = done(made, Budget(tokens=3 * 4 * (4 + 4)), Do(check=check))
    assert end.search.account.available("tokens") == 0


@pytest.mark.parametrize("ended", [False, True])
def test_a_path_without_text_is_scored_and_its_prompt_is_still_to_be_read(ended: bool) -> None:
    made = Pair()

    async def check(search: Search) -> None:
        [empty] = await search.extend([search.root], "")
        if ended:  # an end of sequence alone: behind it the prompt is read anew
            tree = search.tree
            tree.replace(dataclasses.replace(empty, status="finished"))
            [empty] = await search.extend([tree.nodes[empty.node]], "")
        await search.score([empty])
        assert made.process_tokens == 0
        [[t]] = await search.expand([empty], 1, Tokens(4))
        assert np.isfinite(await search.score([t])).all()
        [[t]] = await search.expand([t], 1, Tokens(4))
        await search.score([t])
        assert made.process_tokens == search.rows.root_tokens + t.num_tokens

    done(made, 10**4, Do(check=check))


def test_a_step_that_was_scored_before_it_was_whole_is_read_once() -> None:
    made = Pair()

    async def check(search: Search) -> None:
        t, read = search.root, search.rows.root_tokens
        for size in (3, 2, 5, 1, 7):
            [[child]] = await search.expand([t], 1, Tokens(size))
            await search.score([child])
            read += child.num_tokens - t.num_tokens
            assert made.process_tokens == read
            t = child
        [whole] = await search.extend([search.root], t.full_text)
        scores = [search.scoring.scores_of(t)]
        await search.score([whole])  # under the same prompt, so nothing is new
        assert made.process_tokens == read
        assert [search.scoring.scores_of(whole)] == scores

    done(made, 10**4, Do(check=check))


def test_a_state_that_was_released_is_read_again_within_what_is_granted() -> None:
    async def check(search: Search) -> None:
        [ts] = await search.expand([search.root], 3, Tokens(9))
        await search.score(ts[:1])
        [[child]] = await search.expand(ts[:1], 1, Tokens(6))
        search.keep([])
        await search.score([child, ts[1]])

    for budget in (
        Budget(tokens=200),
        Budget(flops=10**9),
        Budget(verifier_tokens=9 + 15 + 9, samples=5),
        Budget(flops=2 * 10**7),
    ):
        done(Pair(), budget, Do(check=check))


def test_so_it_is_where_its_text_is_spelled_in_more_tokens_than_it_was_written_in() -> None:
    backend = pair.engine(pocket=True)
    more: list[bool] = []

    async def check(search: Search) -> None:
        [ts] = await search.expand([search.root], 8, Tokens(12), temperature=100.0)
        more.extend(text_bound(backend, t.full_text) > t.num_tokens for t in ts)
        search.keep([])
        scores = await search.score(ts)
        assert np.isfinite(scores).all()

    end = solve_and_show(make_run(PROBLEM, 10**4, Do(check=check), backend, verifiers=ProcessVerifier()))
    assert end.solution.error is None, end.solution.error
    check_books(end.search)
    assert any(more), "every text is spelled as it was written: the test saw nothing"


@pytest.mark.parametrize("step", [60, pytest.param(20, marks=pytest.mark.slow)])
def test_flops_pay_a_sample_as_far_as_without_a_verifier(step: int) -> None:
    """What is held to read a prompt yields to the first row."""
    for amount in range(20, 200, step):
        plain, scored = Pair(), Pair()
        one = solve_and_show(run_of(plain, budget_of("flops", amount), "best_of_n | majority", verifiers={}))
        other = done(scored, budget_of("flops", amount), "best_of_n | weighted")
        first = [
            end.solution.candidates and min(end.solution.candidates, key=lambda c: c.index).trajectory
            for end in (one, other)
        ]
        assert bool(first[0]) == bool(first[1])
        if first[0]:
            assert first[0].full_text == first[1].full_text


@pytest.mark.parametrize("amount", [1500, *(pytest.param(more, marks=pytest.mark.slow) for more in (3000, 6000))])
@pytest.mark.parametrize("plan", ["best_of_n | weighted", "best_of_n | best"])
def test_most_of_a_budget_of_flops_is_spent(plan: str, amount: int) -> None:
    made = Pair()
    end = done(made, budget_of("flops", amount), plan)
    share = end.search.account.spending("flops") / end.search.account.limit("flops")
    assert share >= 0.8 or any("were held" in note for note in end.solution.warnings), (share, end.solution.warnings)
    assert not any(np.isnan(c.scores["main"]) for c in end.solution.candidates)


@pytest.mark.slow
def test_a_candidate_that_cannot_be_paid_keeps_no_other_waiting_whose_score_was_held() -> None:
    """The first row is granted whole, its score where there is room: the others' scores are held, and are made all the
    same.
    """
    plan, seen = "sequential_revision(chains=3, length=1) | weighted", 0
    for tokens in range(20, 260, 3):
        end = solve_and_show(make_run(PROBLEM, tokens, plan, ToyBackend(), verifiers=ToyVerifier()))
        check_books(end.search)
        unknown = [np.isnan(c.scores["main"]) for c in end.solution.candidates]
        assert not any("were held for" in note for note in end.solution.warnings), (tokens, end.solution.warnings)
        seen += any(unknown) and not all(unknown)
    assert seen, "every score could be paid, or none: the test saw nothing"


# The other two --------------------------------------------------------------------------------------------------------


def test_a_probe_computes_nothing_and_its_calls_are_counted() -> None:
    made = Pair()
    end = done(made, Budget(tokens=600, verifier_calls=4), "best_of_n(n=6) | weighted", Probe())
    total = end.search.account.ledger.total()
    assert (total.verifier_tokens, total.verifier_calls, made.process_tokens) == (0, 4, 0)
    assert sum(not np.isnan(c.scores["main"]) for c in end.solution.candidates) == 4


@pytest.mark.parametrize("budget", [Budget(tokens=150), Budget(verifier_tokens=5, samples=9), Budget(flops=5 * 10**7)])
def test_self_evaluation_costs_its_question_and_never_more(budget: Budget) -> None:
    made = Pair()
    verifier = SelfEvaluation().fill(pair.record(), made.backend)
    short = change_setup(run_of(made, budget, "best_of_n | weighted", verifier), sampling=Sampling(max_tokens=20))
    end = checked(made, solve_and_show(short))
    total = end.search.account.ledger.total()
    assert total.verifier_tokens == 2 * total.verifier_calls > 0


def test_a_path_that_leaves_no_room_for_the_question_stays_unknown_and_the_others_do_not() -> None:
    made = Pair()
    verifier = SelfEvaluation().fill(pair.record(), made.backend)

    async def check(search: Search) -> None:
        [full] = await search.expand([search.root], 2, END)
        [short] = await search.expand([search.root], 2, Tokens(5))
        assert {t.status for t in full} == {"truncated"}
        scores = await search.score([full[0], short[0], full[1], short[1]])
        assert np.isnan(scores).tolist() == [True, False, True, False]

    done(made, 10**4, Do(check=check), verifier)


def test_its_score_is_the_share_of_no() -> None:
    made = Pair()
    verifier = SelfEvaluation().fill(pair.record(), made.backend)

    async def check(search: Search) -> None:
        [ts] = await search.expand([search.root], 3, Tokens(5))
        scores = await search.score(ts)
        asked = await search.ask(ts, "s?", ["y", "n"])
        np.testing.assert_allclose(scores, asked[:, 1] / asked.sum(axis=1), rtol=1e-9)

    done(made, 10**4, Do(check=check), verifier)


# What breaks a bound --------------------------------------------------------------------------------------------------


class Silent(ProcessVerifier):
    """Reads a process model and says nothing of its prompts."""

    def prompt_bound(self, prompt_tokens: int) -> int:
        return 0


def test_prompts_beyond_what_a_verifier_states_are_named_and_booked() -> None:
    made = Pair()
    end = solve_and_show(run_of(made, Budget(tokens=10**4), "best_of_n(n=3) | weighted", Silent()))
    assert isinstance(end.solution.error, BudgetExceeded)
    assert "prompt_bound" in str(end.solution.error)
    assert end.search.account.ledger.total().prompt_tokens == 2 * end.search.rows.root_tokens


@pytest.mark.parametrize(
    ("verifier", "message"),
    [
        (
            ProcessVerifier(head="judge"),
            "the verifier 'process' needs the value head 'judge', but the model on the backend",
        ),
        (Probe(head="process"), "'process' is a process model"),
        (Probe(head="other"), "has probe, process"),
    ],
)
def test_a_head_that_does_not_fit_is_refused_before_anything_is_spent(verifier: Verifier, message: str) -> None:
    made = Pair()
    with pytest.raises(CapabilityError, match=message):
        solve(run_of(made, 100, "best_of_n | weighted", verifier))
    assert made.backend.counters.prompt_tokens == 0


def test_steps_of_another_task_are_refused_before_anything_is_spent() -> None:
    made = Pair()
    with pytest.raises(CapabilityError, match=r"steps.*'\\n',.*'text'"):
        solve(run_of(made, 100, "best_of_n | weighted", task="text"))
    assert made.backend.counters.prompt_tokens == 0


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["a_star(edge_cost='zero', temperature=2.5)", "beam(n=4, temperature=2.5)"])
def test_tokens_without_text_yet_are_read_with_the_path_that_they_end(plan: str) -> None:
    """A hot policy writes first bytes of characters; left for the next score, they would pass what that was granted."""
    for extra in ("torch", "transformers", "numba"):
        pytest.importorskip(extra)
    for amount in (90, 98, 120):
        solution = tts.solve(
            "85 - 25 - (41 + 20 + (41 - 36) + 96)", amount, strategy=plan, verifier="process", model="pocket", seed=1
        )
        assert solution.error is None
        assert solution.usage.tokens <= amount
