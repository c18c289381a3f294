"""Programs that are run with unit tests, in a sandbox or a container."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts_addons.code.verifier import Code as Code

__getattr__, __dir__, __all__ = lazy_exports(__name__)
