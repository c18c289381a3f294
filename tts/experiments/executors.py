"""Where a study's cells are run: in this process, or spread over the workers of a cluster. The store stays with who asks.

An executor only runs cells, and may run one twice: leases, results and what is lost are the runner's. A new one is one file with one
class, and one line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tts.experiments.grid import Settings
from tts.experiments.record import Cell, Result
from tts.plugins import Table

# name -> class made of (config, problems)
EXECUTORS: Final = Table(
    "executor",
    "tts.executors",
    {
        "local": "tts.experiments.local_executor:LocalExecutor",
        "ray": "tts.experiments.ray_executor:RayExecutor",
    },
)


@dataclass(frozen=True, slots=True)
class Done:
    """What came of running a cell. trace: the whole search as JSON, where the study keeps it."""

    result: Result
    trace: bytes | None = None


class WorkerLost(Exception):
    """The worker that ran a cell is no more: the cell is to be run again."""


class Executor(Protocol):
    """Runs cells of one study; loads its models, and refuses what cannot run, when it is made."""

    @property
    def settings(self) -> Settings:
        """How the study's models run its tasks."""
        ...

    @property
    def slots(self) -> int:
        """How many cells it takes at once."""
        ...

    async def run(self, cell: Cell) -> Done:
        """Run a cell, in the library's loop; a failure of the cell's own is its result.

        Raises:
            WorkerLost: who ran it is no more.
            CancelledError: this was cancelled; `spent` knows what it had cost.
        """
        ...

    async def spent(self) -> Mapping[str, int]:
        """Return the tokens spent so far on cells that are being run, by key."""
        ...

    def close(self) -> None:
        """Free models and workers."""
        ...
