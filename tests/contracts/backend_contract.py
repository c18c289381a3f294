"""What every backend promises. A subclass says how one is made; what it lacks by its caps must be refused, and is
skipped here.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest

from tests.support.guard import LIMIT_S
from tts.backends.base import CAPABILITIES, Backend, Row, RowSet, Sample, SampleRequest, Sampling, StopCondition
from tts.backends.capabilities import prompt_logprobs
from tts.errors import CapabilityError, EngineError, PromptTooLong
from tts.randomness import SCRATCH_WORD, child_stream
from tts.tasks.base import split_after

WARM = Sampling(temperature=1.0)
GREEDY = Sampling(temperature=0.0)
TO_END = StopCondition()


def plain(sample: Sample) -> tuple[Any, ...]:
    """Return what must be equal wherever the same row is drawn, to the last bit."""
    return sample.text, sample.token_ids, sample.finish, sample.num_tokens


async def drained(*rowsets: RowSet) -> list[list[Sample]]:
    for rows in rowsets:
        await rows.drain()
    samples = [[sample for sample in rows.samples if sample is not None] for rows in rowsets]
    assert [len(some) for some in samples] == [len(rows.request.rows) for rows in rowsets]
    return samples


async def awaited(call: Callable[[], Any]) -> Any:
    return await found if inspect.isawaitable(found := call()) else found


def on_backend(*needs: str) -> Callable[[Callable[[Any, Any], Awaitable[None]]], Callable[[Any], None]]:
    """Make a test of what is checked on a backend of a contract, where the backend has these capabilities."""

    def decorate(check: Callable[[Any, Any], Awaitable[None]]) -> Callable[[Any], None]:
        def test(self: Any) -> None:
            self.run(functools.partial(check, self), *needs)

        test.__name__, test.__qualname__, test.__doc__ = check.__name__, check.__qualname__, check.__doc__
        return test

    return decorate


class BackendContract:
    """Override `make`, and what is said about the model below it.

    Attributes:
        name: in the table of backends; None: it is not listed there. prompts: at least two. step: texts that end a
            step, which samples contain now and then. pieces: texts of one token each that, joined, read as the same
            tokens.
        max_tokens: of the rows drawn here.
    """

    name: str | None = None
    prompts: Sequence[Any] = ("a", "b")
    step: tuple[str, ...] = ("\n",)
    pieces: Sequence[str] = ("a", "b", "c")
    max_tokens = 24
    head = "truth"

    def make(self) -> Backend:
        raise NotImplementedError

    # Helpers ----------------------------------------------------------------------------------------------------------

    def run(self, check: Callable[[Any], Awaitable[None]], *needs: str) -> None:
        """Run a check on a fresh backend; skip it where the backend lacks what it needs, or only emulates it
        ("steps!").
        """
        backend = self.make()
        for need in needs:
            support = getattr(backend.caps, need.rstrip("!"))
            if support in ("absent", False) or (need.endswith("!") and support == "emulated"):
                pytest.skip(f"the backend {backend.name!r} has {need.rstrip('!')}={support!r}")

        async def checked() -> None:
            try:
                await check(backend)
            finally:
                await backend.close()

        asyncio.run(checked())

    async def opened(self, backend: Any, which: int = 0) -> Any:
        return (await backend.open([self.prompts[which]]))[0].value

    def ask(
        self,
        backend: Any,
        handle: Any,
        rows: Sequence[Row],
        sampling: Sampling = WARM,
        stop: Any = TO_END,
        text: str = "",
    ) -> RowSet:
        return backend.sample(SampleRequest(handle, tuple(rows), sampling, stop, text))

    def rows(self, count: int, position: int = 0, max_tokens: int | None = None) -> list[Row]:
        return [Row(child_stream(99, 0, j), position, max_tokens or self.max_tokens) for j in range(count)]

    async def in_pieces(
        self, backend: Any, handle: Any, stream: int, stop: StopCondition, sizes: Sequence[int]
    ) -> list[Sample]:
        """Draw one row in calls that end at the stop, or at caps of these sizes in turn, until it ends or meets
        `max_tokens`.
        """
        pieces: list[Sample] = []
        used, text = 0, ""
        while used < self.max_tokens:
            cap = min(self.max_tokens - used, sizes[len(pieces) % len(sizes)])
            [[piece]] = await drained(self.ask(backend, handle, [Row(stream, used, cap)], stop=stop, text=text))
            pieces.append(piece)
            used, text, handle = used + piece.num_tokens, text + piece.text, piece.handle
            if piece.finish in ("eos", "answer"):
                break
            assert len(pieces) <= 4 * self.max_tokens, "the path makes no progress"
        return pieces

    # What it is -------------------------------------------------------------------------------------------------------

    def test_it_is_a_backend_and_states_its_caps(self) -> None:
        backend = self.make()
        assert isinstance(backend, Backend)
        assert self.name is None or backend.name == self.name
        assert isinstance(backend.identity, str)
        for capability in CAPABILITIES:
            assert getattr(backend.caps, capability) in (True, False, "native", "emulated", "absent")
        assert (backend.counters.prompt_tokens, backend.counters.generated_tokens) == (0, 0)

    @on_backend()
    async def test_what_it_lacks_is_refused_as_a_capability(self, backend: Any) -> None:
        handle = await self.opened(backend)
        calls: dict[str, Callable[[], Any]] = {
            "extend": lambda: backend.extend([handle], ["x"]),
            "fork": lambda: backend.fork(handle, 2),
            "score": lambda: backend.score([handle], ["x"]),
            "next_logprobs": lambda: backend.next_logprobs([handle], [""], ["x"]),
            "value": lambda: backend.value([handle], self.head),
            "hidden": lambda: backend.hidden([handle]),
            "prompt_logprobs": lambda: prompt_logprobs(backend, ["x"]),
        }
        before = astuple(backend.counters)
        for name, call in calls.items():
            if getattr(backend.caps, name) == "absent":
                with pytest.raises(CapabilityError):
                    await awaited(call)
        assert astuple(backend.counters) == before

    # Rows -------------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("stream", range(5))
    def test_a_path_drawn_step_by_step_is_one_plain_sample(self, stream: int) -> None:
        async def check(backend: Any) -> None:
            handle = await self.opened(backend)
            stop = StopCondition(self.step, at_step=True)
            [[whole]] = await drained(self.ask(backend, handle, [Row(stream, 0, self.max_tokens)]))
            same_path(whole, await self.in_pieces(backend, handle, stream, stop, [self.max_tokens]))

        self.run(check, "streams", "steps!", "token_ids")

    @pytest.mark.parametrize("sizes", [[1], [3, 1, 7], [5, 2]])
    def test_a_path_drawn_by_numbers_of_tokens_is_one_plain_sample(self, sizes: list[int]) -> None:
        async def check(backend: Any) -> None:
            handle = await self.opened(backend)
            for stream in range(3):
                [[whole]] = await drained(self.ask(backend, handle, [Row(stream, 0, self.max_tokens)]))
                same_path(whole, await self.in_pieces(backend, handle, stream, TO_END, sizes))

        self.run(check, "streams", "token_ids")

    @on_backend()
    async def test_a_row_depends_neither_on_its_companions_nor_on_the_order_of_requests(self, backend: Any) -> None:
        handles = [await self.opened(backend, which) for which in range(len(self.prompts))]
        rows = self.rows(4)
        alone = [[plain((await drained(self.ask(backend, h, [row])))[0][0]) for row in rows] for h in handles]
        for order in (range(len(handles)), reversed(range(len(handles)))):
            asked = {which: self.ask(backend, handles[which], rows) for which in order}
            together = await drained(*(asked[which] for which in range(len(handles))))
            assert [list(map(plain, some)) for some in together] == alone
        backwards = (await drained(self.ask(backend, handles[0], rows[::-1])))[0]
        assert list(map(plain, backwards))[::-1] == alone[0]

    @on_backend("logprobs")
    async def test_log_probabilities_do_not_depend_on_companions(self, backend: Any) -> None:
        handle = await self.opened(backend)
        rows = self.rows(5)
        together = (await drained(self.ask(backend, handle, rows)))[0]
        for row, sample in zip(rows, together, strict=True):
            [[alone]] = await drained(self.ask(backend, handle, [row]))
            np.testing.assert_allclose(alone.logprobs, sample.logprobs, rtol=0, atol=1e-6)

    @on_backend()
    async def test_eight_rows_are_the_first_of_sixty_four(self, backend: Any) -> None:
        handle = await self.opened(backend)
        eight, many = await drained(*(self.ask(backend, handle, self.rows(k, max_tokens=9)) for k in (8, 64)))
        assert list(map(plain, many[:8])) == list(map(plain, eight))
        assert len({sample.text for sample in many}) > 1

    @on_backend()
    async def test_no_cap_is_passed_and_every_array_has_one_entry_a_token(self, backend: Any) -> None:
        handle = await self.opened(backend)
        caps = [1, 2, 3, 5, 8, self.max_tokens]
        rows = [Row(7 + i, 0, cap) for i, cap in enumerate(caps)]
        for sample, cap in zip((await drained(self.ask(backend, handle, rows)))[0], caps, strict=True):
            assert 0 < sample.num_tokens <= cap
            assert sample.finish in ("eos", "length")
            assert sample.num_tokens == cap or sample.finish == "eos"
            assert len(sample.token_ids) == (sample.num_tokens if backend.caps.token_ids else 0)
            assert len(sample.logprobs) == (sample.num_tokens if backend.caps.logprobs else 0)
            assert sample.spreads == ()  # nobody asked
            assert all(-np.inf < logprob <= 0 for logprob in sample.logprobs)
            assert sample.handle is not None

    @on_backend()
    async def test_temperature_zero_is_one_path_whatever_the_stream(self, backend: Any) -> None:
        handle = await self.opened(backend)
        first, again = await drained(*(self.ask(backend, handle, self.rows(4), GREEDY) for _ in range(2)))
        assert [bool(text) for text, *_ in {plain(sample) for sample in [*first, *again]}] == [True]

    @on_backend("streams")
    async def test_scratch_draws_are_others(self, backend: Any) -> None:
        handle = await self.opened(backend)
        rows = self.rows(12)
        scratch = [Row(row.stream, row.position, row.max_tokens, SCRATCH_WORD) for row in rows]
        main, other = await drained(self.ask(backend, handle, rows), self.ask(backend, handle, scratch))
        assert list(map(plain, main)) != list(map(plain, other))

    @on_backend("steps")
    async def test_a_step_ends_with_its_stop_text_and_the_pieces_join(self, backend: Any) -> None:
        handle = await self.opened(backend)
        ended = 0
        for stream in range(6):
            pieces = await self.in_pieces(
                backend, handle, stream, StopCondition(self.step, at_step=True), [self.max_tokens]
            )
            for piece in pieces:
                assert (piece.finish == "stop") == piece.text.endswith(self.step)
                assert len(split_after(piece.text, self.step)) <= 1
            ended += sum(piece.finish == "stop" for piece in pieces)
            texts = [piece.text for piece in pieces if piece.text]
            assert split_after("".join(texts), self.step) == texts
        assert ended, "no row met a step boundary: the test saw nothing"

    @on_backend("stop_predicate")
    async def test_a_row_ends_where_the_predicate_says(self, backend: Any) -> None:
        handle = await self.opened(backend)
        before = "what was written before "
        stop = StopCondition(self.step, finished=lambda text: text.startswith(before) and text.endswith(self.step))
        free, bound = await drained(
            self.ask(backend, handle, self.rows(6)), self.ask(backend, handle, self.rows(6), stop=stop, text=before)
        )
        for whole, cut in zip(free, bound, strict=True):
            steps = split_after(whole.text, self.step)
            assert cut.text == (steps[0] if steps else "")
            assert (cut.finish == "answer") == cut.text.endswith(self.step)
        assert any(cut.finish == "answer" for cut in bound), "no row met a boundary: the test saw nothing"

    @pytest.mark.parametrize("turns", [0, 1, 2, 5])
    def test_cancelling_resolves_every_row_and_counts_what_it_cost(self, turns: int) -> None:
        async def check(backend: Any) -> None:
            handle = await self.opened(backend)
            rows = self.ask(backend, handle, self.rows(20))
            for _ in range(turns):
                await asyncio.sleep(0)
            rows.cancel()
            [samples] = await drained(rows)
            for sample in samples:
                assert sample.finish in ("cancelled", "eos", "length")
                assert (sample.handle is None) == (sample.finish == "cancelled")
                assert 0 <= sample.num_tokens <= self.max_tokens
            assert backend.counters.generated_tokens == sum(sample.num_tokens for sample in samples)

        self.run(check)

    @on_backend()
    async def test_closing_fails_what_is_under_way_and_what_is_asked_later(self, backend: Any) -> None:
        asked = self.ask(backend, handle := await self.opened(backend), self.rows(4))
        await backend.close()
        for late in (lambda: asked, lambda: self.ask(backend, handle, self.rows(1))):
            with pytest.raises(EngineError, match="closed"):
                await asyncio.wait_for(late().row(0), LIMIT_S)

    # Reads ------------------------------------------------------------------------------------------------------------

    @on_backend("usage")
    async def test_opening_counts_the_prompt(self, backend: Any) -> None:
        replies = await backend.open(list(self.prompts))
        assert [reply.computed + (reply.reused or 0) for reply in replies] == [
            backend.count(prompt) for prompt in self.prompts
        ]

    @on_backend()
    async def test_a_prompt_that_leaves_no_room_is_refused_and_computes_nothing(self, backend: Any) -> None:
        if backend.context is None:
            pytest.skip(f"the backend {backend.name!r} has no context limit")
        with pytest.raises(PromptTooLong):
            await backend.open([self.prompts[0], "x y " * backend.context])
        assert backend.counters.prompt_tokens == 0

    @on_backend("score", "next_logprobs")
    async def test_the_scores_of_a_text_are_those_of_its_tokens_one_after_another(self, backend: Any) -> None:
        handle = await self.opened(backend)
        [whole] = await backend.score([handle], ["".join(self.pieces)])
        assert whole.value.shape == (len(self.pieces),)
        for i, piece in enumerate(self.pieces):
            [reply] = await backend.next_logprobs([handle], ["".join(self.pieces[:i])], [piece])
            np.testing.assert_allclose(reply.value, whole.value[i : i + 1], atol=1e-4)
            assert reply.value[0] <= 0

    @on_backend("logprobs", "next_logprobs")
    async def test_sampled_log_probabilities_are_those_of_the_untempered_law(self, backend: Any) -> None:
        handle = await self.opened(backend)
        rows = self.rows(16, max_tokens=1)
        [samples] = await drained(self.ask(backend, handle, rows, Sampling(temperature=0.3)))
        # a token may be a part of a character
        whole = next(s for s in samples if s.text and "\ufffd" not in s.text)
        [reply] = await backend.next_logprobs([handle], [""], [whole.text])
        np.testing.assert_allclose(reply.value, whole.logprobs, atol=1e-4)

    @on_backend("extend")
    async def test_text_that_is_appended_at_once_or_in_parts_continues_alike(self, backend: Any) -> None:
        start = await self.opened(backend)
        [at_once] = await backend.extend([start], ["".join(self.pieces)])
        handle, ids = start, ()
        for piece in self.pieces:
            [reply] = await backend.extend([handle], [piece])
            handle, ids = reply.value.handle, (*ids, *reply.value.token_ids)
        assert at_once.value.token_ids == ids
        assert len(ids) == (len(self.pieces) if backend.caps.token_ids else 0)
        rows = self.rows(4, position=len(self.pieces))
        one, other = await drained(*(self.ask(backend, h, rows) for h in (at_once.value.handle, handle)))
        assert list(map(plain, one)) == list(map(plain, other))

    @on_backend("fork")
    async def test_forks_are_the_same_state_and_are_released_one_by_one_and_twice(self, backend: Any) -> None:
        handle = await self.opened(backend)
        before = astuple(backend.counters)
        forks = backend.fork(handle, 3)
        assert len(forks) == 3
        assert astuple(backend.counters) == before
        [expected] = await drained(self.ask(backend, handle, self.rows(3)))
        backend.release([handle])
        backend.release([handle, forks[0]])
        backend.release([forks[0]])
        for fork in forks[1:]:
            [samples] = await drained(self.ask(backend, fork, self.rows(3)))
            assert list(map(plain, samples)) == list(map(plain, expected))

    @on_backend("value")
    async def test_a_value_has_one_reading_a_step(self, backend: Any) -> None:
        handle = await self.opened(backend)
        [samples] = await drained(self.ask(backend, handle, self.rows(4)))
        readings = await backend.value([handle, *(sample.handle for sample in samples)], self.head)
        steps = [0, *(len(split_after(sample.text, self.step)) for sample in samples)]
        assert [reply.value.shape for reply in readings] == [(count,) for count in steps]

    @on_backend()
    async def test_the_counters_are_the_sums_of_what_was_reported(self, backend: Any) -> None:
        caps = backend.caps
        replies = await backend.open(list(self.prompts))
        handles = [reply.value for reply in replies]
        rowsets = [self.ask(backend, handle, self.rows(5)) for handle in handles]
        samples = [sample for some in await drained(*rowsets) for sample in some]
        if caps.extend != "absent":
            replies += await backend.extend(handles, ["".join(self.pieces)] * len(handles))
        if caps.score != "absent":
            replies += await backend.score(handles, [self.pieces[0]] * len(handles))
        if caps.next_logprobs != "absent":
            replies += await backend.next_logprobs(
                handles, ["".join(self.pieces[:-1])] * len(handles), [self.pieces[-1]]
            )
        if caps.value != "absent":
            replies += await backend.value([samples[0].handle, samples[-1].handle], self.head)
        if caps.hidden != "absent":
            replies += await backend.hidden(handles)
        counters = backend.counters
        assert counters.generated_tokens == sum(sample.num_tokens for sample in samples)
        assert counters.prompt_tokens == sum(r.computed for r in replies) + sum(rows.prompt_tokens for rows in rowsets)
        assert counters.reused_tokens == sum(r.reused or 0 for r in replies) + sum(
            rows.reused_tokens or 0 for rows in rowsets
        )
        assert all(sample.seconds >= 0 for sample in samples)


def same_path(whole: Sample, pieces: Sequence[Sample]) -> None:
    """Assert that pieces are the whole, token by token; a boundary inside of the last token leaves its rest to a next
    piece.
    """
    assert tuple(token for piece in pieces for token in piece.token_ids) == whole.token_ids
    np.testing.assert_allclose([x for piece in pieces for x in piece.logprobs], whole.logprobs, rtol=0, atol=1e-5)
    text = "".join(piece.text for piece in pieces)
    assert whole.text == text if pieces[-1].finish != "stop" else whole.text.startswith(text)
    assert pieces[-1].finish in (whole.finish, "stop")
