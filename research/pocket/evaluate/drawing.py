"""The samples of the policy and the readings of its verifiers, for many problems at once.

Many problems are in flight, so that the engine's rows are busy. Sample number j of a problem is what sample number j
of a search with the same seed would be: streams are addressed alike. So results depend on nothing but models,
problems and seed, and fewer samples are the beginning of more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from research.pocket.evaluate.pools import Attempt, Pool, Revision
from research.pocket.evaluate.problems import Item
from tts import tasks
from tts.backends.base import Backend, Row, Sample, SampleRequest, Sampling, StopCondition
from tts.errors import EngineError
from tts.randomness import child_stream, generator, problem_key, root_stream
from tts.tasks.arithmetic.pocket import MOST_ATTEMPTS, NO, RESTART, YES
from tts.tasks.base import Task

TEMPERATURE: Final = 0.8
_AT_ONCE = 48  # problems in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is drawn of a problem.

    Args:
        samples: The number of samples at the temperature.
        greedy: Whether a sample at temperature 0 is drawn too.
        read: The number of first samples that the verifiers read.
        cut: The number of first samples that are judged at a random token as well.
        revised: The number of revisions of each kind.
    """

    samples: int
    greedy: bool = False
    read: int = 0
    cut: int = 0
    revised: int = 0


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Draws pools.

    Args:
        backend: The backend of the policy.
        verifiers: The value heads that read the samples.
        self_evaluates: Whether the policy is asked "Restart?".
        seed: The seed of the samples' streams.
        max_tokens: The most tokens of a sample; a longer one is unfinished.
        done: The function that is called after each problem.
    """

    backend: Backend
    verifiers: tuple[str, ...] = ()
    self_evaluates: bool = True
    seed: int = 0
    max_tokens: int = 256
    done: Callable[[], None] = field(default=lambda: None)

    async def pools(self, work: Sequence[tuple[Item, Plan]]) -> list[Pool]:
        """Return the pool of each problem, in order.

        Raises:
            EngineError: The backend failed.
        """
        gate = asyncio.Semaphore(_AT_ONCE)

        async def draw_pool(item: Item, plan: Plan) -> Pool:
            async with gate:
                pool = await _Drawn(self, item).pool(plan)
                self.done()
                return pool

        return list(await asyncio.gather(*(draw_pool(item, plan) for item, plan in work)))


class _Drawn:
    """One problem on its way to a pool."""

    def __init__(self, drawing: Drawing, item: Item) -> None:
        self._on = drawing
        self._backend = drawing.backend
        self._item = item
        self._task: Task = tasks.get(item.problem.task or "pocket")
        self._key = problem_key(item.problem, self._task.name)

    async def pool(self, plan: Plan) -> Pool:
        prompt = self._task.prompt(self._item.problem)
        (opened,) = await self._backend.open([prompt])
        stream, room = root_stream(self._on.seed, self._key, "solve"), self._room(opened.computed)
        streams = [child_stream(stream, 0, j) for j in range(plan.samples)]
        samples = await self._sample(opened.value, streams, [room] * plan.samples, TEMPERATURE)
        greedy = await self._sample(opened.value, streams[:1], [room], 0.0) if plan.greedy else []
        attempts = await self._read(samples[: plan.read], await self._cuts(opened.value, streams, samples[: plan.cut]))
        attempts += [self._attempt(sample) for sample in samples[plan.read :]]
        self._backend.release([opened.value, *(sample.handle for sample in (*samples, *greedy))])
        revisions = await self._revisions(attempts, plan.revised) if plan.revised else {}
        return Pool(self._item, tuple(attempts), self._attempt(greedy[0]) if greedy else None, revisions)

    def _room(self, prompt_tokens: int) -> int:
        context = self._backend.context
        return self._on.max_tokens if context is None else min(self._on.max_tokens, context - prompt_tokens)

    async def _sample(
        self, handle: Any, streams: Sequence[int], caps: Sequence[int], temperature: float
    ) -> list[Sample]:
        stop = StopCondition(step=self._task.step_stop, finished=self._task.is_finished)
        rows = tuple(Row(stream, 0, cap) for stream, cap in zip(streams, caps, strict=True))
        drawn = self._backend.sample(SampleRequest(handle, rows, Sampling(temperature=temperature), stop))
        samples = [await drawn.row(i) for i in range(len(rows))]
        for sample in samples:
            if sample.handle is None:
                raise EngineError(
                    f"a sample of problem {self._item.problem.id} ended as {sample.finish!r}: {sample.error}"
                )
        return samples

    async def _cuts(self, handle: Any, streams: Sequence[int], samples: Sequence[Sample]) -> list[float]:
        """Return the policy's judgement of samples that are drawn again, up to a random token.

        The same stream gives the same tokens.
        """
        if not self._on.self_evaluates or not samples:
            return []
        rng = generator(self._on.seed, self._key, "cut")
        sizes = [int(rng.integers(1, max(2, sample.num_tokens))) for sample in samples]
        parts = await self._sample(handle, streams[: len(samples)], sizes, TEMPERATURE)
        asked = await self._restarts(parts)
        self._backend.release([part.handle for part in parts])
        return asked

    async def _restarts(self, samples: Sequence[Sample]) -> list[float]:
        """Return P(no) / (P(yes) + P(no)) behind each sample."""
        handles = [sample.handle for sample in samples]
        replies = await self._backend.next_logprobs(handles, [RESTART] * len(handles), (YES, NO))
        return [float(1 / (1 + np.exp(np.clip(reply.value[0] - reply.value[1], -700, 700)))) for reply in replies]

    async def _read(self, samples: Sequence[Sample], cuts: Sequence[float]) -> list[Attempt]:
        """Return samples with the readings of the verifiers."""
        handles = [sample.handle for sample in samples]
        read = {
            name: [reply.value for reply in await self._backend.value(handles, name)] for name in self._on.verifiers
        }
        restarts = (
            await self._restarts(samples) if self._on.self_evaluates and samples else [float("nan")] * len(samples)
        )
        return [
            self._attempt(
                sample,
                readings={name: tuple(values[i].tolist()) for name, values in read.items()},
                restart=restarts[i],
                cuts=tuple(cuts[i : i + 1]),
            )
            for i, sample in enumerate(samples)
        ]

    def _attempt(self, sample: Sample, **read: Any) -> Attempt:
        finished, wanted = sample.finish in ("answer", "eos"), self._item.problem.answer or ""
        answer = self._task.extract(sample.text) if finished else None  # what was cut may have lost digits
        return Attempt(
            lines=tuple(self._task.split(sample.text)),
            answer=None if answer is None else self._task.canonical(answer),
            right=answer is not None and self._task.equivalent(answer, wanted),
            finished=finished,
            num_tokens=sample.num_tokens,
            **read,
        )

    async def _revisions(self, attempts: Sequence[Attempt], count: int) -> dict[Revision, tuple[Attempt, ...]]:
        """Return the texts written after attempts of the first half: one wrong, up to four wrong, one right."""
        whole = (attempt for attempt in attempts[: len(attempts) // 2] if attempt.text.endswith("\n"))
        shown = [attempt for attempt in whole if attempt.answer is not None]
        wrong, right = ([attempt.text for attempt in shown if attempt.right is good] for good in (False, True))
        contexts: dict[Revision, list[str]] = {"first": wrong[:1], "several": wrong[:MOST_ATTEMPTS], "kept": right[:1]}
        return {name: await self._revise(name, texts, count) for name, texts in contexts.items() if texts}

    async def _revise(self, name: Revision, texts: Sequence[str], count: int) -> tuple[Attempt, ...]:
        (opened,) = await self._backend.open([self._task.prompt(self._item.problem, "revise", texts)])
        stream = root_stream(self._on.seed, self._key, "revise", name, *texts)
        streams, room = [child_stream(stream, 0, j) for j in range(count)], self._room(opened.computed)
        samples = await self._sample(opened.value, streams, [room] * count, TEMPERATURE)
        self._backend.release([opened.value, *(sample.handle for sample in samples)])
        return tuple(self._attempt(sample) for sample in samples)
