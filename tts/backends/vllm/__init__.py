"""vLLM in this process as a backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.backends.vllm.backend import VLLMBackend as VLLMBackend

__getattr__, __dir__, __all__ = lazy_exports(__name__)
