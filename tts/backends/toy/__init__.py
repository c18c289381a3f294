"""The toy model as a backend: a finite language whose distribution is known exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.backends.toy.backend import ToyBackend as ToyBackend
    from tts.backends.toy.language import ToyLanguage as ToyLanguage

__getattr__, __dir__, __all__ = lazy_exports(__name__)
