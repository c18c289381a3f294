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

from research.pocket.evaluate.pools import Attempt, Pool
from research.pocket.evaluate.problems import Item
from tts import tasks
from tts.backends.base import Backend, Row, Sample, SampleRequest, Sampling, StopCondition
from tts.errors import EngineError
from tts.randomness import child_stream, problem_key, root_stream
from tts.tasks.arithmetic.pocket import NO, RESTART, YES
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
    """

    samples: int
    greedy: bool = False
    read: int = 0


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Draws pools.

    Args:
        backend: The backend of the policy.
        verifiers: The value heads that read the samples.
        seed: The seed of the samples' streams.
        max_tokens: The most tokens of a sample; a longer one is unfinished.
        done: The function that is called after each problem.
    """

    backend: Backend
    verifiers: tuple[str, ...] = ()
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
        attempts = await self._read(samples[: plan.read])
        attempts += [self._attempt(sample) for sample in samples[plan.read :]]
        self._backend.release([opened.value, *(sample.handle for sample in (*samples, *greedy))])
        return Pool(self._item, tuple(attempts), self._attempt(greedy[0]) if greedy else None)

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

    async def _restarts(self, samples: Sequence[Sample]) -> list[float]:
        """Return P(no) / (P(yes) + P(no)) behind each sample."""
        handles = [sample.handle for sample in samples]
        replies = await self._backend.next_logprobs(handles, [RESTART] * len(handles), (YES, NO))
        return [float(1 / (1 + np.exp(np.clip(reply.value[0] - reply.value[1], -700, 700)))) for reply in replies]

    async def _read(self, samples: Sequence[Sample]) -> list[Attempt]:
        """Return samples with the readings of the verifiers."""
        handles = [sample.handle for sample in samples]
        read = {
            name: [reply.value for reply in await self._backend.value(handles, name)] for name in self._on.verifiers
        }
        restarts = await self._restarts(samples) if samples else []
        return [
            self._attempt(
                sample,
                readings={name: tuple(values[i].tolist()) for name, values in read.items()},
                restart=restarts[i],
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
