"""Reward models in vLLM in this process, in pooling mode."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tts.backends.openai.errors import ServerError
from tts.errors import ConfigError, EngineError, require_extra
from tts.models.registry import ModelRecord
from tts.verifiers.reward.pooling import NO_TIME, Pooled, pooling_settings, pooling_task
from tts.verifiers.reward.pretrained import tokenizer_of
from tts.verifiers.reward.record import RewardRecord
from tts.verifiers.reward.renderer import RenderedSolution, SolutionRenderer

if TYPE_CHECKING:
    from tts.backends.vllm.engine import VLLMEngine

_BATCH = 256  # trajectories at once; vLLM divides them into its own batches


def start_engine(record: RewardRecord, model: ModelRecord, device: str | None) -> VLLMPooled:
    """Return a reward model in a new vLLM engine.

    The engine is closed when the last reference to the model is gone.

    Raises:
        ConfigError: the model cannot be loaded, vLLM does not support it, or a device was given.
        MissingDependency: vLLM is not installed.
    """
    if device is not None:
        raise ConfigError(f"device is {device!r}, but vLLM chooses the device itself", hint="leave it out")
    with require_extra("", "vllm", "a reward model in vLLM"):
        from tts.backends.vllm.loading import pooling_engine
    tokenizer = tokenizer_of(model)
    engine = pooling_engine(model, *pooling_settings(record))
    return VLLMPooled(SolutionRenderer(record, tokenizer, context=engine.context), engine)


class VLLMPooled(Pooled):
    """A reward model in vLLM; a trajectory is charged whole for every score, as on a server.

    Args:
        renderer: The renderer of its record.
        engine: Runs the model in pooling mode; it is closed with this object.
    """

    def __init__(self, renderer: SolutionRenderer, engine: VLLMEngine) -> None:
        super().__init__(renderer, "vLLM", _BATCH)
        self._engine = engine
        weakref.finalize(self, engine.close)

    async def ask(self, solutions: Sequence[RenderedSolution], seconds: float | None) -> list[tuple[float, ...]]:
        """Return the scores of solutions; see `Pooled.ask`."""
        task = pooling_task(self.renderer.record)
        coroutines = [self._engine.pool(solution.ids, task) for solution in solutions]
        futures = [asyncio.wrap_future(self._engine.submit(coroutine)) for coroutine in coroutines]
        try:
            async with asyncio.timeout(seconds):
                rows_by_solution = await asyncio.gather(*futures)
        except (TimeoutError, EngineError) as failure:
            for future in futures:
                future.cancel()
            if isinstance(failure, EngineError):
                raise ServerError(failure.kind, failure.cause) from None
            raise ServerError("TimedOut", NO_TIME) from None
        return [self.scores(rows, solution) for rows, solution in zip(rows_by_solution, solutions, strict=True)]
