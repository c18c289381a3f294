"""A model for replicas on Ray, whose environment has no pytest."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any


async def forever(ask: Any) -> str:
    """Note the process in a file, and never answer."""
    del ask
    (Path(os.environ["TTS_TEST_FOLDER"]) / f"{os.getpid()}.asked").touch()
    await asyncio.Event().wait()
    raise AssertionError
