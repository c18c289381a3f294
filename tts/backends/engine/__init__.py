"""The engine, and the backend in front of it.

The engine is a KV tree over a block pool, with one step loop for all problems.

OpenMP's wait policy is set here, before torch is loaded, unless it is set already: waiting threads must not spin on the
cores.
"""

from __future__ import annotations

import os

from tts.errors import require_extra

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

with require_extra("", "engine", "the engine"):
    from tts.backends.engine.backend import EngineBackend
    from tts.backends.engine.loading import EngineOptions, build_reward_model

build = EngineBackend.from_record

__all__ = ["EngineBackend", "EngineOptions", "build", "build_reward_model"]
