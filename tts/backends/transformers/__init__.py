"""The reference backend: any decoder-only model of the transformers library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.backends.transformers.backend import TransformersBackend as TransformersBackend

__getattr__, __dir__, __all__ = lazy_exports(__name__)
