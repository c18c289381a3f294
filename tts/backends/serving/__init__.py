"""Servers of models that this package starts: their commands and their processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.backends.serving.commands import ENGINES as ENGINES
    from tts.backends.serving.commands import ServerEngine as ServerEngine
    from tts.backends.serving.commands import ServerLaunch as ServerLaunch
    from tts.backends.serving.commands import engine_of as engine_of
    from tts.backends.serving.commands import launch as launch
    from tts.backends.serving.commands import readable as readable
    from tts.backends.serving.server import Server as Server
    from tts.backends.serving.server import serving as serving
    from tts.backends.serving.server import watch as watch

__getattr__, __dir__, __all__ = lazy_exports(__name__)
