"""Short words for asking a backend of a transformers model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from tts.backends.base import Row, RowSet, Sample, SampleRequest, Sampling, StopCondition

torch = pytest.importorskip("torch")


PROMPTS = ("the cat and the other one", "12 + 12 =", "a", "of the thing in the end\n\nand then " * 6)
WARM = Sampling(temperature=0.8)
GREEDY = Sampling(temperature=0.0)
END = StopCondition()


async def opened(backend: Any, *prompts: Any) -> list[Any]:
    return [reply.value for reply in await backend.open(prompts)]


async def drained(rows: RowSet) -> list[Sample]:
    await rows.drain()
    assert all(sample is not None for sample in rows.samples)
    return [sample for sample in rows.samples if sample is not None]


def start(
    backend: Any, handle: Any, *rows: Row, sampling: Sampling = WARM, stop: StopCondition = END, text: str = ""
) -> RowSet:
    return backend.sample(SampleRequest(handle, rows, sampling, stop, text))


def plain_laws(backend: Any, ids: Sequence[int]) -> Any:
    """Return the log-laws [token, vocabulary] of one plain pass, without a cache."""
    with torch.no_grad():
        return backend._model._model(torch.tensor([list(ids)])).logits[0].double().log_softmax(-1)


def bare(sample: Sample) -> Sample:
    return dataclasses.replace(sample, handle=None, seconds=0.0)


async def one(backend: Any, handle: Any, row: Row, **options: Any) -> Sample:
    return (await drained(start(backend, handle, row, **options)))[0]
