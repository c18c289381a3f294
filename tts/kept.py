"""Models and tasks that are made once and kept, and the one event loop that they all live in."""

from __future__ import annotations

import dataclasses

from tts import tasks
from tts.backends import BACKENDS
from tts.backends.base import Backend
from tts.backends.callable import CallableBackend, WriteFunction
from tts.background import LoopThread
from tts.models import registry
from tts.tasks.base import Task

LOOP = LoopThread()
Model = str | registry.ModelRecord | Backend | WriteFunction


class Kept:
    """Backends and tasks by what they were asked for; each is made once and kept until `close`."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str | None, str | None], tuple[Backend, registry.ModelRecord | None]] = {}
        self._tasks: dict[str, Task] = {}

    def task(self, name: str) -> Task:
        """Return the task of a name.

        Raises:
            ConfigError: there is none.
        """
        if name not in self._tasks:
            self._tasks[name] = tasks.get(name)
        return self._tasks[name]

    def backend(self, model: Model, name: str | None, url: str | None) -> tuple[Backend, registry.ModelRecord | None]:
        """Return the backend of a model and its record, if it has one.

        Raises:
            ConfigError: the model or the backend is unknown.
        """
        if isinstance(model, Backend):
            return model, None
        key = (model if isinstance(model, str) else repr(model), name, url)
        if key not in self._made:
            self._made[key] = _make(model, name, url)
        return self._made[key]

    def close(self) -> None:
        """Free every backend and task."""
        for task in self._tasks.values():
            task.close()
        made, self._made, self._tasks = self._made, {}, {}
        for backend, _ in made.values():
            LOOP.run(backend.close())


def _make(
    model: str | registry.ModelRecord | WriteFunction, name: str | None, url: str | None
) -> tuple[Backend, registry.ModelRecord | None]:
    if not isinstance(model, str | registry.ModelRecord):
        return CallableBackend(model), None
    record = registry.get(model) if isinstance(model, str) else model
    if url is not None:
        record = dataclasses.replace(record, url=url, backend=name or "openai")
    elif name is not None:
        record = dataclasses.replace(record, backend=name)
    return BACKENDS.get(record.backend).from_record(record), record
