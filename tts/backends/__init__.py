"""The registry of backends, resolved on use.

A new backend is one file with one class, and one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tts.registry import Registry

# name -> class with `caps` and the class method `from_record(record)`
BACKENDS = Registry(
    "backend",
    "tts.backends",
    {
        "engine": "tts.backends.engine:EngineBackend",
        "openai": "tts.backends.openai.backend:OpenAIBackend",
        "toy": "tts.backends.toy.backend:ToyBackend",
        "transformers": "tts.backends.transformers.backend:TransformersBackend",
        "vllm": "tts.backends.vllm.backend:VLLMBackend",
        "workspace": "tts_addons.agents.backend:AgentRuns",
    },
)


def backends_with(has: Callable[[Any], bool]) -> list[str]:
    """Return the names in `BACKENDS` of backends that can be imported here and whose `caps` pass a test."""
    names: list[str] = []
    for name in BACKENDS.names():
        try:
            caps = BACKENDS.get(name).caps
        except ImportError:
            continue
        if has(caps):
            names.append(name)
    return names
