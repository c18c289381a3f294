"""What the strict executor of a GPU promises, told by one row that is written in batches of several sizes: on a device
or interpreted.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.backends.conftest import checkpoint_of, tiny_tokenizer
from tests.backends.engine.models import random_model
from tts.backends.base import Row, SampleRequest, Sampling, StopCondition
from tts.backends.engine.backend import EngineBackend
from tts.backends.engine.loading import EngineOptions, make_runner

BATCHES = (1, 3, 17)
_LAW = Sampling(temperature=1.1, top_k=40, top_p=0.95, min_p=0.01)
_PROMPTS = ("the cat and the other one of", "12 + 12 =")


def written(batch: int, *, tokens: int, model: Any = None, **options: Any) -> tuple[Any, ...]:
    """Return ids, log-probabilities and distributions of one row, written last of those behind its prompt; half are
    behind another one.

    Args:
        batch: rows. tokens: most of each. model: of the transformers library; None: a small one. options: of the
            engine.
    """
    model = model or random_model(heads=3, kv_heads=1, size=16, hidden=48, intermediate=64, attention_bias=True)
    runner, renderer = make_runner(
        checkpoint_of(model, tiny_tokenizer()), EngineOptions(**{"threads": 1, "kv_budget": 1 << 22, **options})
    )
    assert runner.decoder.executor == "triton_strict"
    backend = EngineBackend(runner, renderer, identity="tiny")

    async def write() -> Any:
        opened = [one.value for one in await backend.open(list(_PROMPTS))]
        streams = (range(100 - batch // 2, 101), range(batch - batch // 2 - 1))
        asked = [
            backend.sample(
                SampleRequest(
                    handle, tuple(Row(stream, 0, tokens) for stream in some), _LAW, StopCondition(), "", spreads=True
                )
            )
            for handle, some in zip(opened, streams, strict=True)
            if some
        ]
        await asyncio.gather(*(one.drain() for one in asked))
        assert sum(len(one.samples) for one in asked) == batch
        last = asked[0].samples[-1]
        await backend.close()
        return last

    sample = asyncio.run(write())
    assert len(sample.token_ids) == tokens
    return sample.token_ids, sample.logprobs, sample.spreads
