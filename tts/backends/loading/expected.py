"""The models that a caller is about to load, so that none takes the memory of those after it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tts.models.registry import ModelRecord

_EXPECTED: ContextVar[tuple[ModelRecord, ...]] = ContextVar("expected", default=())


@contextmanager
def expecting(records: Sequence[ModelRecord]) -> Generator[None]:
    """Say which models of a run are loaded within the block, in any order."""
    token = _EXPECTED.set((*_EXPECTED.get(), *records))
    try:
        yield
    finally:
        _EXPECTED.reset(token)


def expected_models() -> tuple[ModelRecord, ...]:
    """Return the models that are loaded within the blocks of `expecting` around this call."""
    return _EXPECTED.get()
