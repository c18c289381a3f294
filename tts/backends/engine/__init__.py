"""Our engine: a KV tree over a block pool, one step loop for all problems, and the backend in front of it.

Threads that wait must not spin: they would take the cores from whoever works. So the wait policy of OpenMP is set here, before
torch is loaded, unless it is set already.
"""

from __future__ import annotations

import os

from tts.errors import missing_extra

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

try:
    from tts.backends.engine.backend import EngineBackend
    from tts.backends.engine.build import EngineOptions, build, build_reward_model
except ModuleNotFoundError as failure:
    if (failure.name or "").startswith("tts"):
        raise
    raise missing_extra(failure.name or "torch", "engine", "the engine") from failure

__all__ = ["EngineBackend", "EngineOptions", "build", "build_reward_model"]
