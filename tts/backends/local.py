"""Base classes of backends whose model runs in this process.

Such backends render prompts themselves, and may keep states behind handles.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tts.backends.base import Backend
from tts.backends.batching import closed_error
from tts.backends.metadata import BackendMetadata
from tts.budget.budget import Rates
from tts.errors import EngineError
from tts.thoughts import ThoughtMarks
from tts.types import Prompt

if TYPE_CHECKING:
    from tts.backends.text.rendering import Renderer

S = TypeVar("S")


class RenderingBackend(Backend):
    """Base of backends that turn prompts and texts into tokens by a `Renderer`.

    Args:
        renderer: The renderer between text and tokens.
        thoughts: Marks of the model's thoughts; None: the marks in its chat template.
        facts: Further fields of `BackendMetadata`.
    """

    def __init__(self, renderer: Renderer, thoughts: ThoughtMarks | None, **facts: Any) -> None:
        marks = renderer.thoughts(thoughts)
        self.caps = dataclasses.replace(type(self).caps, thoughts=marks is not None)
        self.metadata = BackendMetadata(
            count_text=renderer.count_text, text_of=renderer.text_of, tokenizer=renderer, thoughts=marks, **facts
        )
        self._renderer = renderer
        self._closed = False

    def count(self, prompt: Prompt) -> int:
        """Return the number of tokens that a prompt renders to.

        Raises:
            ConfigError: The prompt cannot be rendered (`Renderer.prompt`).
        """
        return len(self._renderer.prompt(prompt))

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()


class Handle:
    """The key of a state, which the backend keeps until the handle is released or garbage-collected."""


class StateBackend(RenderingBackend, Generic[S]):
    """Base of backends that keep the state of each path, S, behind a `Handle`.

    A read is computed to its end, and counted, even if its caller no longer waits.
    """

    def __init__(self, renderer: Renderer, thoughts: ThoughtMarks | None, **facts: Any) -> None:
        super().__init__(renderer, thoughts, finishes_reads=True, **facts)
        self._states: weakref.WeakKeyDictionary[Handle, S] = weakref.WeakKeyDictionary()

    def fork(self, handle: Any, count: int) -> list[Any]:
        """Return handles of the same state; nothing is copied."""
        state = self._state_of(handle)
        return [self._keep(state) for _ in range(count)]

    def release(self, handles: Sequence[Any]) -> None:
        """Release handles."""
        for handle in handles:
            if isinstance(handle, Handle):
                self._states.pop(handle, None)

    async def close(self) -> None:
        """Release every handle. Later calls fail with an EngineError."""
        self._closed = True
        self._states.clear()

    def _keep(self, state: S) -> Handle:
        handle = Handle()
        self._states[handle] = state
        return handle

    def _state_of(self, handle: Any) -> S:
        """Return the state of a handle.

        Raises:
            EngineError: The backend was closed, or the handle was released or belongs to another backend.
        """
        self._check_open()
        state = self._states.get(handle) if isinstance(handle, Handle) else None
        if state is None:
            raise EngineError("a handle was used that has been released or belongs to another backend")
        return state


def with_flops(rates: Rates, parameters: int | None) -> Rates:
    """Return the rates of a model's tokens. Rates without FLOPs get two FLOPs a weight.

    Args:
        rates: The given rates.
        parameters: The number of the model's weights; None: not known, so that the rates stay as they are.
    """
    if rates.flops is not None or not parameters:
        return rates
    return dataclasses.replace(rates, flops=2 * parameters)
