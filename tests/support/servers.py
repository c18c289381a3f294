"""Real servers for tests, started as `tts serve-model` starts them.

A test is skipped, with the reason, if its server is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tts.backends.serving.commands import ServerEngine, ServerLaunch, launch, readable
from tts.backends.serving.server import serving
from tts.errors import ConfigError
from tts.models.registry import ModelRecord, locate

# interpreters of environments that have an engine, where that of the tests has none
VARIABLES: dict[ServerEngine, str] = {"vllm": "TTS_VLLM_PYTHON", "llama_cpp": "TTS_LLAMA_PYTHON"}
STARTS_S = 540.0


def interpreter(engine: ServerEngine) -> str:
    """Return one that has an engine; a test that needs it is skipped where there is none."""
    named = os.environ.get(VARIABLES[engine]) or (sys.executable if importlib.util.find_spec(engine) else "")
    if not named:
        pytest.skip(f"{engine} is not installed, and {VARIABLES[engine]} names no interpreter that has it")
    return named


@contextmanager
def serve_model(record: ModelRecord, engine: ServerEngine, folder: Path, *options: str) -> Iterator[str]:
    """Serve a model, and yield the url.

    Args:
        record: The model.
        engine: The server.
        folder: The folder of the server's output.
        options: Further options of its command.
    """
    python = interpreter(engine)
    try:
        locate(record)
    except ConfigError as missing:
        pytest.skip(f"{missing.cause}; {missing.hint}")
    with readable(record, gguf=engine == "llama_cpp") as location:
        wanted = launch(record, location, engine, python)
        environment = {**wanted.environment, "HF_HUB_OFFLINE": "1"}
        wanted = ServerLaunch(command=(*wanted.command, *options), health=wanted.health, environment=environment)
        with serving(wanted, folder / "log", STARTS_S) as server:
            yield server.url
