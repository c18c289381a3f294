"""Accounts: limits that are never passed by any order of leases, parts and failures, and books that agree at every
level.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tts
from tests.support.guard import LIMIT_S
from tests.support.repeats import repeats
from tts.budget.account import Account, Exhausted
from tts.budget.budget import Budget, Rates
from tts.budget.ledger import Books, Call
from tts.budget.units import UNITS
from tts.errors import BudgetExceeded, ConfigError, EngineError, TTSError
from tts.types import Usage


async def call(account: Account, most: int, spent: int) -> None:
    await account.wait_to_pay({"tokens": most})
    with account.lease({"tokens": most}, kind="expand") as lease:
        await asyncio.sleep(0)
        lease.spend(generated_tokens=spent)


async def hold(account: Account, most: int) -> None:
    """Hold an amount until the task is cancelled."""
    with account.lease({"tokens": most}, kind="expand"):
        await asyncio.Event().wait()


def check_balanced(account: Account) -> None:
    """Check that nothing is held, and that no limit is passed."""
    for unit in UNITS:
        assert account.reservation(unit) == 0, unit
    for unit in account.units:
        assert account.spending(unit) <= account.limit(unit)


def test_a_lease_holds_its_bound_and_frees_what_was_not_spent() -> None:
    account = Account(Budget(tokens=100))
    with account.lease({"tokens": 60}, kind="expand"):
        assert account.left == {"tokens": 40}
    assert (account.left, account.ledger.calls) == ({"tokens": 100}, [])  # what spends nothing leaves no row
    with account.lease({"tokens": 60}, kind="expand", model="policy", rows=2, granted=60) as lease:
        assert account.left == {"tokens": 40}
        lease.spend(generated_tokens=25)
    assert account.left == {"tokens": 75}
    assert account.ledger.calls == [Call("expand", "policy", 2, 60, Usage(generated_tokens=25))]


def test_a_lease_that_no_limit_pays_is_refused_by_unit() -> None:
    account = Account(Budget(tokens=100, samples=1))
    with pytest.raises(Exhausted) as end:
        account.lease({"tokens": 5, "samples": 2}, kind="expand")
    assert end.value.unit == "samples"
    check_balanced(account)


@pytest.mark.parametrize("failure", [ValueError, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit])
def test_a_call_that_fails_is_booked_all_the_same(failure: type[BaseException]) -> None:
    account = Account(Budget(tokens=100))

    def fail() -> None:
        with account.lease({"tokens": 60}, kind="expand") as lease:
            lease.spend(generated_tokens=25)
            raise failure

    with pytest.raises(failure):
        fail()
    assert account.left == {"tokens": 75}
    assert len(account.ledger.calls) == 1


def test_a_spend_above_its_bound_is_booked_and_raises() -> None:
    account = Account(Budget(tokens=100))
    part = account.part(tokens=10)
    with pytest.raises(BudgetExceeded, match=r"30.*5.*granted"):
        asyncio.run(call(part, 5, 30))
    assert (part.spent["tokens"], account.spent["tokens"]) == (30, 30)
    part.close()
    check_balanced(account)


def test_dollars_and_flops_follow_from_rates() -> None:
    account = Account(Budget(usd=1, flops=1e6))
    rates = Rates(flops=10, usd_in=10**9, usd_out=10**9)
    with account.lease({"usd": 10**12, "flops": 500}, kind="open", rates=rates) as lease:
        lease.spend(prompt_tokens=20, generated_tokens=10)
    assert account.spent["usd"] == pytest.approx(30e-6)
    assert account.left["flops"] == 1e6 - 300
    assert account.ledger.calls[0].usage.flops == 300


def test_a_part_takes_its_limits_and_gives_back_what_it_has_not_spent() -> None:
    account = Account(Budget(tokens=100, samples=5))
    part = account.part(tokens=60)
    assert (account.left, part.left) == ({"tokens": 40, "samples": 5}, {"tokens": 60, "samples": 5})
    asyncio.run(call(part, 50, 20))
    assert (account.left["tokens"], account.spent["tokens"]) == (40, 20)
    part.close()
    assert account.left["tokens"] == 80
    check_balanced(account)


def test_a_part_gets_what_is_left_and_says_so() -> None:
    account = Account(Budget(tokens=100))
    first, second = account.part(tokens=70), account.part(tokens=70)
    assert (first.limits["tokens"], second.limits["tokens"]) == (70, 30)
    assert (first.shortened, second.shortened) == ({}, {"tokens": (70, 30)})
    with pytest.raises(ConfigError, match=r"asks.*1.*0"):
        account.part(tokens=1, strict=True)


def test_parts_nest() -> None:
    account = Account(Budget(tokens=100, usd=2))
    middle = account.part(tokens=80)
    inner = middle.part(tokens=50, usd=1)
    asyncio.run(call(inner, 30, 30))
    assert [one.spent["tokens"] for one in (account, middle, inner)] == [30, 30, 30]
    assert [one.left["tokens"] for one in (account, middle, inner)] == [20, 30, 20]
    inner.close()
    middle.close()
    assert account.left == {"tokens": 70, "usd": 2}
    check_balanced(account)
    assert [len(one.ledger.calls) for one in (account, middle, inner)] == [1, 1, 1]


def test_what_is_held_is_held_whole_or_not_at_all() -> None:
    account = Account(Budget(tokens=50, verifier_calls=2))
    part = account.part(tokens=30)
    assert part.hold({"tokens": 20, "verifier_calls": 2}) is None
    assert part.hold({"tokens": 5, "verifier_calls": 1}) == "verifier_calls"
    assert (part.left, account.left) == ({"tokens": 10, "verifier_calls": 0}, {"tokens": 20, "verifier_calls": 0})
    part.free({"tokens": 20, "verifier_calls": 2})
    part.close()
    assert account.left == {"tokens": 50, "verifier_calls": 2}
    check_balanced(account)


def test_draw_and_refund_move_limits() -> None:
    account = Account(Budget(tokens=100))
    part = account.reserve_part({"tokens": 0})
    with pytest.raises(Exhausted):
        asyncio.run(call(part, 1, 1))
    part.draw({"tokens": 40})
    asyncio.run(call(part, 30, 10))
    part.refund()
    assert (part.limits["tokens"], account.left["tokens"]) == (10, 90)
    with pytest.raises(Exhausted):
        part.draw({"tokens": 91})
    check_balanced(account)


def test_a_lease_waits_for_what_siblings_only_hold() -> None:
    account = Account(Budget(tokens=100))
    order: list[str] = []

    async def first(part: Account) -> None:
        with part.lease({"tokens": 80}, kind="expand") as lease:
            for _ in range(5):
                await asyncio.sleep(0)
            order.append("first")
            lease.spend(generated_tokens=10)

    async def second(part: Account) -> None:
        await call(part, 90, 50)
        order.append("second")

    async def run() -> None:
        await asyncio.gather(first(account.part()), second(account.part()))

    asyncio.run(run())
    assert order == ["first", "second"]
    assert account.spent["tokens"] == 60


def test_a_lease_does_not_wait_for_what_is_spent_or_belongs_to_a_part() -> None:
    account = Account(Budget(tokens=100))
    asyncio.run(call(account, 30, 30))
    idle = account.part(tokens=40)
    with pytest.raises(Exhausted):
        asyncio.run(call(account.part(), 50, 50))
    idle.close()
    asyncio.run(call(account.part(), 50, 50))


def test_where_every_holder_waits_the_youngest_ends() -> None:
    account = Account(Budget(tokens=100))
    old, young = account.part(), account.part()

    async def grow(part: Account) -> str:
        part.hold({"tokens": 40})
        try:
            await asyncio.sleep(0)
            await call(part, 50, 50)
        except Exhausted as end:
            return end.unit
        finally:
            part.free({"tokens": 40})
        return "done"

    async def run() -> list[str]:
        return await asyncio.wait_for(asyncio.gather(grow(old), grow(young)), LIMIT_S)

    assert asyncio.run(run()) == ["done", "tokens"]
    check_balanced(account)


def test_a_waiting_lease_ends_with_the_time() -> None:
    now = [0.0]
    account = Account(Budget(tokens=100, seconds=0.05), clock=lambda: now[0], started=0.0)

    async def run() -> None:
        waiting = call(account.part(), 50, 50)
        holding = asyncio.create_task(hold(account.part(), 80))
        await asyncio.sleep(0)
        with pytest.raises(Exhausted) as end:
            await waiting
        assert end.value.unit == "seconds"
        holding.cancel()

    asyncio.run(run())


def test_a_cancelled_wait_leaves_nothing() -> None:
    account = Account(Budget(tokens=100))

    async def run() -> None:
        with account.part().lease({"tokens": 80}, kind="expand"):
            waiting = asyncio.create_task(call(account.part(), 50, 50))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await call(account.part(), 90, 50)

    asyncio.run(run())
    check_balanced(account)


def test_seconds_count_from_the_first_lease() -> None:
    now = [5.0]
    account = Account(Budget(seconds=10), clock=lambda: now[0])
    now[0] = 50.0
    asyncio.run(call(account.part(), 1, 1))
    now[0] = 57.0
    assert account.left == {"seconds": 3.0}
    assert account.part(seconds=100).seconds_left == 3.0


def test_a_closed_account_refuses_leases_by_name() -> None:
    account = Account(Budget(tokens=100), name="alice")
    part = account.part()
    with account:
        pass
    for closed in (account, part):
        with pytest.raises(ConfigError, match="the account 'alice' is closed"):
            asyncio.run(call(closed, 1, 1))
    with pytest.raises(ConfigError, match="closed"):
        account.part(tokens=1)


def test_an_account_of_another_process_is_refused() -> None:
    account = Account(Budget(tokens=100))
    with pytest.raises(ConfigError, match="cannot be pickled"):
        pickle.dumps(account)
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            account.part(tokens=1)
        except ConfigError as refusal:
            os.write(write, str(refusal).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert "belongs to another process" in os.read(read, 1000).decode()


@pytest.mark.parametrize(
    "limits", [{"tokens": 0}, {"tokens": -1}, {"usd": float("nan")}, {"seconds": float("inf")}, {"tokens": 1.5}]
)
def test_limits_are_refused_as_a_budget_refuses_them(limits: dict[str, Any]) -> None:
    account = Account(Budget(tokens=100))
    with pytest.raises(ConfigError, match=next(iter(limits))):
        account.part(**limits)


def random_work(account: Account, draw: np.random.Generator, check: Callable[[], None]) -> Callable[[], Any]:
    async def work() -> None:
        depth = int(draw.integers(3))
        parts = [account]
        for _ in range(depth):
            asked = {unit: int(draw.integers(1, 400)) for unit in ("tokens", "samples", "usd") if draw.random() < 0.5}
            parts.append(parts[-1].part(**asked))
        mine, kept = parts[-1], list[dict[str, int]]()
        for _ in range(int(draw.integers(1, 4))):
            amounts = {"tokens": int(draw.integers(1, 60)), "samples": int(draw.integers(0, 3))}
            if draw.random() < 0.3:
                later = {"tokens": int(draw.integers(1, 20)), "samples": 1}
                kept += [later] if mine.hold(later) is None else []
            try:
                await mine.wait_to_pay(amounts)
                with mine.lease(amounts, kind="expand") as lease:
                    await asyncio.sleep(0)
                    check()
                    lease.spend(
                        generated_tokens=int(draw.integers(0, amounts["tokens"] + 1)), samples=amounts["samples"]
                    )
                    if draw.random() < 0.1:
                        raise ZeroDivisionError
            except (Exhausted, ZeroDivisionError):
                pass
        for later in kept:
            mine.free(later)
        for part in reversed(parts[1:]):
            part.close()

    return work


@repeats(5, 200)
def test_no_order_of_leases_passes_a_limit_at_any_level(runs: int) -> None:
    for seed in range(runs):
        draw = np.random.default_rng(seed)
        account = Account(Budget(tokens=3000, samples=40, usd=500))

        def check(account: Account = account) -> None:
            for unit in account.units:
                assert account.spending(unit) + account.reservation(unit) <= account.limit(unit)

        async def run(account: Account = account, draw: np.random.Generator = draw) -> None:
            await asyncio.gather(*(random_work(account, draw, check)() for _ in range(60)))

        asyncio.run(run())
        check_balanced(account)
        assert account.ledger.total().tokens == account.spent["tokens"]


@pytest.mark.slow
@repeats(2_000, 10_000, "count")
def test_children_in_threads_and_tasks_share_one_total_in_every_unit(count: int) -> None:
    most = {"tokens": 10, "samples": 0.8, "verifier_calls": 1, "flops": 25, "usd": 12e-12}
    most = {unit: amount * count for unit, amount in most.items()}
    rates = Rates(flops=2, usd_in=500, usd_out=500)
    account = Account(Budget(**most))
    children: list[Account] = []
    passed: list[str] = []

    async def child() -> None:
        part = account.part()
        children.append(part)
        amounts = {"tokens": 30, "samples": 1, "verifier_calls": 1, "flops": 60, "usd": 15_000}
        with suppress(Exhausted):
            await part.wait_to_pay(amounts)
            with part.lease(amounts, kind="expand", rates=rates) as lease:
                await asyncio.sleep(0)
                passed.extend(
                    unit
                    for unit in account.units
                    if account.spending(unit) + account.reservation(unit) > account.limit(unit)
                )
                lease.spend(generated_tokens=13, samples=1, verifier_calls=1)
        part.close()

    def thread() -> None:
        async def run() -> None:
            await asyncio.gather(*(child() for _ in range(count // 4)))

        asyncio.run(run())

    threads = [threading.Thread(target=thread) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(600)
    assert len(children) == count
    assert not passed
    assert 10 * count - 30 < account.spent["tokens"] <= 10 * count
    for part in children:
        check_balanced(part)
    check_balanced(account)
    total = account.ledger.total()
    for name in ("tokens", "samples", "verifier_calls", "flops"):
        assert (
            sum(getattr(part.ledger.total(), name) for part in children) == getattr(total, name) == account.spent[name]
        )
    assert sum(part.spending("usd") for part in children) == account.spending("usd")


# What an account says of itself ---------------------------------------------------------------------------------------


def test_looking_at_an_account_does_not_begin_its_seconds() -> None:
    now = [0.0]
    account = Account(Budget(seconds=10, tokens=100), clock=lambda: now[0])
    now[0] = 100.0
    assert account.left["seconds"] == 10
    assert str(account) == "an account: 0 of 100 tokens, 0 of 10 seconds spent"
    asyncio.run(call(account, 1, 1))
    now[0] = 103.0
    assert account.left["seconds"] == 7
    assert account.part().limits == {"tokens": 100, "seconds": 10}


def test_an_account_shows_itself_in_a_line_and_in_a_notebook() -> None:
    account = Account(Budget(tokens=2000, usd=0.5), name="<al>")
    asyncio.run(call(account, 30, 20))
    assert str(account) == "the account '<al>': 20 of 2,000 tokens, 0 of 0.5 usd spent"
    shown = account._repr_html_()
    assert "<td>1,980</td>" in shown
    assert "<al>" not in shown
    account.close()
    assert str(account).endswith("spent, closed")


def test_an_unknown_limit_of_a_part_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="tokens"):
        Account(100).part(token=1)


class Mirrored(Books):
    """Books that tell of each change."""

    def __init__(self, limits: Any) -> None:
        super().__init__(limits)
        self.told: list[tuple[str, Any]] = []

    def hold(self, amounts: Any) -> None:
        super().hold(amounts)
        self.told.append(("hold", dict(amounts)))

    def pay(self, amounts: Any) -> None:
        super().pay(amounts)
        self.told.append(("pay", dict(amounts)))


def test_another_class_can_keep_the_books() -> None:
    kept: list[Mirrored] = []

    def make(limits: Any) -> Mirrored:
        kept.append(Mirrored(limits))
        return kept[-1]

    account = Account(Budget(tokens=100), books=make)
    asyncio.run(call(account.part(), 30, 20))
    (books,) = kept  # those of the part are in memory
    assert books.told == [
        ("hold", {"tokens": 30}),
        ("pay", {"tokens": 20, "generated_tokens": 20}),
        ("hold", {"tokens": -30}),
    ]
    assert account.left == {"tokens": 80}


# Timing ---------------------------------------------------------------------------------------------------------------


def test_a_part_that_is_alone_is_not_contended() -> None:
    account = Account(100)
    for _ in range(2):
        with account.open_search() as part:
            asyncio.run(call(part, 20, 10))
            assert not part.is_contended


def test_parts_whose_leases_overlap_are_contended_and_so_are_later_ones() -> None:
    account = Account(Budget(tokens=100, samples=9))
    with account.open_search() as first, account.open_search() as second, account.part(tokens=10) as own:
        asyncio.run(call(first, 20, 10))
        asyncio.run(call(own, 5, 5))
        assert second.is_contended  # what was left changed while it was open
        asyncio.run(call(second, 20, 10))
        assert first.is_contended
    with account.open_search() as later:
        assert later.is_contended  # what is left depends on when the others paid
    with account.part(tokens=10, samples=2).open_search() as apart:
        asyncio.run(call(apart, 5, 5))
        assert not apart.is_contended


def test_what_is_left_of_a_contended_account_is_timed_and_a_limit_that_it_pays_is_not() -> None:
    account = Account(100)
    with account.open_search() as first, account.open_search():
        asyncio.run(call(first, 20, 10))
    assert account.take_all().is_contended
    account = Account(100)
    with account.open_search() as first:
        asyncio.run(call(first, 20, 10))
    with account.take_all() as rest:
        assert not rest.is_contended
        assert rest.limits == {"tokens": 90}
    assert account.left == {"tokens": 90}


def test_open_searches_have_equal_shares_of_what_is_not_spent() -> None:
    account = Account(90)
    with account.open_search() as one:
        assert one.fair_shares() == {}
        with account.open_search() as other:
            asyncio.run(call(other, 30, 30))
            assert one.fair_shares() == other.fair_shares() == {"tokens": 30}
        assert one.fair_shares() == {}


def test_waiting_for_more_ends_with_the_next_amount_that_is_freed() -> None:
    account = Account(100)

    async def run() -> None:
        with pytest.raises(Exhausted):
            await account.part().wait_for_more("tokens")  # nobody holds any
        holding = asyncio.create_task(hold(account.part(), 60))
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(account.part().wait_for_more("tokens"))
        await asyncio.sleep(0)
        assert not waiting.done()
        holding.cancel()
        await asyncio.wait_for(waiting, LIMIT_S)

    asyncio.run(run())


def test_a_call_that_outlives_its_part_gives_back_what_it_held() -> None:
    account = Account(Budget(tokens=1000))
    part = account.part(tokens=500)
    with part.open_search().lease({"tokens": 300}, kind="expand") as lease:
        part.close()
        assert account.reservation("tokens") == 300
        lease.spend(generated_tokens=7)
    assert (account.left, account.spent["tokens"]) == ({"tokens": 993}, 7)
    check_balanced(account)


@pytest.mark.parametrize("tokens", [-5, 2.5, True, float("nan"), np.int64(3)], ids=repr)
def test_a_spend_that_is_no_whole_number_costs_the_whole_lease(tokens: Any) -> None:
    account = Account(Budget(tokens=100))
    refused = pytest.raises(EngineError, match="generated_tokens")
    with refused, account.lease({"tokens": 60}, kind="expand", granted=60) as lease:
        lease.spend(generated_tokens=tokens)
    check_balanced(account)
    assert account.spent["tokens"] == 60
    assert account.ledger.total() == Usage(generated_tokens=60, estimated=True)


# Searches inside searches ---------------------------------------------------------------------------------------------


def model_of(account: Account, *, is_async: bool, strategy: str = "single") -> Any:
    """Return a model that is itself a search on an account."""

    def leaf(ask: tts.Ask) -> tts.Answer:
        return tts.Answer(r"\boxed{3}", min(5, ask.max_tokens))

    def write(_ask: tts.Ask) -> tts.Answer:
        inner = tts.solve("inner", account, backend=leaf, task="math", strategy=strategy)
        return tts.Answer(rf"\boxed{{{inner.answer}}}", 5)

    async def awrite(_ask: tts.Ask) -> tts.Answer:
        inner = await tts.asolve("inner", account, backend=leaf, task="math", strategy=strategy)
        return tts.Answer(rf"\boxed{{{inner.answer}}}", 5)

    return awrite if is_async else write


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("n", [1, 4])
def test_a_search_inside_a_search_that_holds_all_is_refused_with_the_reason(n: int, *, is_async: bool) -> None:
    account = Account(Budget(tokens=200))
    model = model_of(account, is_async=is_async)
    with pytest.raises(TTSError, match=r"inside.*tokens=200"):
        tts.solve("outer", account, backend=model, task="math", strategy=f"best_of_n(n={n})")
    check_balanced(account)


def test_a_search_inside_a_verifier_of_a_search_is_refused_with_the_reason() -> None:
    account = Account(Budget(samples=1))
    model = model_of(account, is_async=False)

    def write(_ask: tts.Ask) -> tts.Answer:
        return tts.Answer(r"\boxed{3}", 5)

    asked = {"verifier": lambda _problem, text: float(model(text).tokens), "strategy": "best_of_n(n=1) | best"}
    found = tts.solve("outer", account, backend=write, task="math", **asked)
    assert account.spent["samples"] == 1
    assert found.stopped_by
    check_balanced(account)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_search_inside_a_search_that_leaves_enough_is_paid(*, is_async: bool) -> None:
    account = Account(Budget(tokens=400))
    model = model_of(account, is_async=is_async)
    found = tts.solve(
        "outer", account, backend=model, task="math", strategy="single", sampling=tts.Sampling(max_tokens=100)
    )
    assert found.answer == "3"
    assert account.spent["tokens"] == 10


def test_searches_inside_of_two_searches_on_one_account_come_to_an_end() -> None:
    account = Account(Budget(tokens=200))
    model = model_of(account, is_async=True)

    async def run() -> list[Any]:
        calls = [tts.asolve("outer", account, backend=model, task="math", strategy="best_of_n(n=2)") for _ in range(3)]
        return await asyncio.gather(*calls, return_exceptions=True)

    ends = asyncio.run(asyncio.wait_for(run(), LIMIT_S))
    assert all(isinstance(end, tts.Solution | TTSError) for end in ends)
    check_balanced(account)


def test_a_call_is_one_row_without_a_grant_unless_it_says_more() -> None:
    account = Account(Budget(tokens=100))
    with account.lease({"tokens": 10}, kind="ask") as lease:
        lease.spend(generated_tokens=3)
    assert [(call.rows, call.granted, call.model) for call in account.ledger.calls] == [(1, 0, "")]
