"""A reward model in vLLM in this process, asked for the outputs of its head as a pooling server is."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tts.backends.openai_fault import Fault
from tts.errors import ConfigError, EngineError, missing_extra
from tts.models.registry import ModelRecord
from tts.verifiers.pooling import NO_TIME, Pooled, pooling_settings, pooling_task
from tts.verifiers.reward_reader import Reader, Reading
from tts.verifiers.reward_record import RewardRecord

if TYPE_CHECKING:
    from tts.backends.vllm_engine import Engine

_BATCH = 256  # paths at once; vLLM makes batches of its own of them


def started(record: RewardRecord, model: ModelRecord, device: str | None) -> VLLMPooled:
    """Return a reward model in a vLLM of its own, which ends when nobody holds it any more.

    Raises:
        ConfigError: the model cannot be had, vLLM does not run it, or a device was named. MissingDependency: vLLM is not installed.
    """
    if device is not None:
        raise ConfigError(f"device is {device!r}, but vLLM takes the machine's own", hint="leave it out")
    try:
        from tts.backends.vllm_build import pooling_engine
    except ModuleNotFoundError as failure:
        raise missing_extra(failure.name or "vllm", "vllm", "a reward model in vLLM") from failure
    from tts.verifiers.reward_loading import tokenizer_of

    tokenizer = tokenizer_of(model)
    engine = pooling_engine(model, *pooling_settings(record))
    return VLLMPooled(Reader(record, tokenizer, context=engine.context), engine)


class VLLMPooled(Pooled):
    """A reward model in vLLM.

    Accounting: a path is computed whole for every score, as on a server.

    Args:
        reader: of its record. engine: that runs it, in pooling mode; it is closed with this object.
    """

    def __init__(self, reader: Reader, engine: Engine) -> None:
        super().__init__(reader, "vLLM", _BATCH)
        self._engine = engine
        weakref.finalize(self, engine.close)

    async def ask(self, readings: Sequence[Reading], seconds: float | None) -> list[tuple[float, ...]]:
        """Return the scores of some paths; see `Pooled.ask`."""
        task = pooling_task(self.reader.record)
        asked = [asyncio.wrap_future(self._engine.submit(self._engine.pooled(reading.ids, task))) for reading in readings]
        try:
            async with asyncio.timeout(seconds):
                rows = await asyncio.gather(*asked)
        except (TimeoutError, EngineError) as failure:
            for one in asked:
                one.cancel()
            if isinstance(failure, EngineError):
                raise Fault(failure.kind, failure.cause) from None
            raise Fault("TimedOut", NO_TIME) from None
        return [self.scores(found, reading) for found, reading in zip(rows, readings, strict=True)]
