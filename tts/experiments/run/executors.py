"""Where the cells of a study run: in this process, or on the workers of a cluster.

An executor only runs cells, and may run a cell twice. The runner keeps leases and results, in the store of the process
that runs the study. A new executor is one file with one class, and one line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tts.experiments.study.grid import Settings
from tts.experiments.study.record import Cell, Result
from tts.registry import Registry

# name -> class made of (config, problems)
EXECUTORS: Final = Registry(
    "executor",
    "tts.executors",
    {
        "local": "tts.experiments.run.local_executor:LocalExecutor",
        "ray": "tts.experiments.run.ray_executor:RayExecutor",
    },
)


@dataclass(frozen=True, slots=True)
class CellResult:
    """The outcome of a cell.

    Args:
        result: The result of the cell.
        trace: The whole search as JSON, where the study records searches.
        texts: The texts of the model as JSON, where the study records them; see `store.bodies.source_in`.
    """

    result: Result
    trace: bytes | None = None
    texts: bytes | None = None


class WorkerLost(Exception):
    """The worker of a cell died. The cell must run again."""


class Unpaid(Exception):
    """A cell stays open without a result.

    Either the run's account does not pay the whole cell, or a batch has yet to bring replies.
    """


class NotReached(Exception):
    """The server of a model took no request of a cell, and nothing was spent. The cell stays open."""


class Executor(Protocol):
    """Runs the cells of one study.

    A new executor loads the models of the study, and refuses a study that cannot run.
    """

    @property
    def settings(self) -> Settings:
        """The settings of the study's models and tasks."""
        ...

    @property
    def slots(self) -> int:
        """The number of cells that the executor runs at once."""
        ...

    async def run(self, cell: Cell) -> CellResult:
        """Run a cell, in the library's event loop. A failed cell is a result with an error.

        Raises:
            WorkerLost: the cell's worker died.
            Unpaid: the account of the run cannot pay the cell, or ran out before the cell had ended.
            NotReached: The server of the cell's model took no request.
            CancelledError: the call was cancelled; `tokens_spent_by_key` has its cost.
        """
        ...

    async def tokens_spent_by_key(self) -> Mapping[str, int]:
        """Return the tokens spent so far on running cells, by key."""
        ...

    def close(self) -> None:
        """Free models and workers."""
        ...
