"""One vLLM for all tests of a session, since it takes minutes to start: each test is lent a backend of its own on
it.
"""

from __future__ import annotations

import atexit
import copy
import dataclasses
from functools import cache
from typing import Any

import pytest

from tts.backends.base import Counters
from tts.backends.vllm.backend import VLLMBackend
from tts.models import registry


class _Lent:
    """The engine, which its borrowers do not close."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def close(self) -> None:
        pass


@cache
def _started(model: str, **options: Any) -> VLLMBackend:
    record = dataclasses.replace(registry.get(model), backend="vllm", context=1024)
    backend = VLLMBackend.from_record(record, kv_gib=1, **options)
    atexit.register(backend._engine.close)
    return backend


def lent(model: str, **options: Any) -> VLLMBackend:
    """Return a backend that has computed nothing yet, on an engine that is kept."""
    pytest.importorskip("vllm", exc_type=ImportError)
    backend = copy.copy(_started(model, **options))
    backend.counters = Counters()
    backend._live, backend._reads = set(), set()
    backend._engine = _Lent(backend._engine)  # type: ignore[assignment]
    return backend
