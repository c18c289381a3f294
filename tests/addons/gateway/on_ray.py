"""Models for replicas on Ray, whose environment has no pytest."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any


async def forever(ask: Any) -> str:
    """Note the process in a file, and never answer."""
    del ask
    _note_process()
    await asyncio.Event().wait()
    raise AssertionError


async def held(ask: Any) -> str:
    """Note the process in a file, and answer once there is a file `go`."""
    del ask
    _note_process()
    while not (_folder() / "go").exists():
        await asyncio.sleep(0.05)
    return "5"


def _note_process() -> None:
    (_folder() / f"{os.getpid()}.asked").touch()


def _folder() -> Path:
    return Path(os.environ["TTS_TEST_FOLDER"])
