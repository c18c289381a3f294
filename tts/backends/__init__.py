"""The table of backends, resolved on use. A new backend is one file with one class, and one line here."""

from __future__ import annotations

from tts.plugins import Table

# name -> class with `from_record(record) -> Backend`
BACKENDS = Table(
    "backend",
    "tts.backends",
    {
        "engine": "tts.backends.engine:EngineBackend",
        "openai": "tts.backends.openai:OpenAIBackend",
        "toy": "tts.backends.toy:ToyBackend",
        "transformers": "tts.backends.transformers:TransformersBackend",
        "vllm": "tts.backends.vllm:VLLMBackend",
    },
)
