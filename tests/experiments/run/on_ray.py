"""Models for the workers of a Ray cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.guard import LIMIT_S
from tts.backends.base import RowSet, Sample, SampleRequest
from tts.backends.toy.backend import ToyBackend
from tts.errors import ConfigError
from tts.models.registry import ModelRecord

FOLDER = "TTS_TEST_FOLDER"
GO = "go"
_FREE_REQUESTS = 5


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for a state, however loaded the machine is."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def halted() -> list[int]:
    """Return the processes that have halted."""
    return [int(path.stem) for path in Path(os.environ[FOLDER]).glob("*.halted")]


class Halting(ToyBackend):
    """The toy. In each process its sixth request waits until there is a file `go`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._num_requests = 0

    def sample(self, request: SampleRequest) -> RowSet:
        self._num_requests += 1
        if self._num_requests > _FREE_REQUESTS:
            folder = Path(os.environ[FOLDER])
            (folder / f"{os.getpid()}.halted").touch()
            wait_until((folder / GO).exists)
        return super().sample(request)


class OfOneProcess(Halting):
    """The same, but only one process can load it."""

    @classmethod
    def from_record(cls, record: ModelRecord, *, thoughts: int = 0) -> ToyBackend:
        try:
            (Path(os.environ[FOLDER]) / "loaded").touch(exist_ok=False)
        except FileExistsError:
            wait_until(halted)  # the first to load is the first to start
            raise ConfigError("this process lacks its weights") from None
        return super().from_record(record, thoughts=thoughts)


class Unreachable(ToyBackend):
    """The toy, as if its server were down."""

    def sample(self, request: SampleRequest) -> RowSet:
        rows = RowSet(request)
        for i in range(len(request.rows)):
            rows.resolve(i, Sample("", (), (), "error", None, 0, error="ConnectionFailed"))
        return rows
