"""Published reward models: records that describe their input and output, and the models themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.verifiers.reward.verifier import Reward as Reward

__getattr__, __dir__, __all__ = lazy_exports(__name__)
