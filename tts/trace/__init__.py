"""The record of a search: its nodes, its calls, and one page that shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.trace.trace import Trace as Trace
    from tts.trace.trace import TraceNode as TraceNode

__getattr__, __dir__, __all__ = lazy_exports(__name__)
