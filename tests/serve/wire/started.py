"""`tts serve` as users start it, with a configuration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.guard import LIMIT_S

ROOT = Path(__file__).parents[3]


@contextmanager
def started(folder: Path, config: dict[str, Any]) -> Iterator[str]:
    """Start `tts serve`; gives the base url, without the path.

    Args:
        folder: Where its configuration and what it keeps of servers go.
        config: The configuration.
    """
    file = folder / "gateway.yaml"
    file.write_text(json.dumps(config))
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tts", "serve", "--port", "0", "--config", str(file)]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ready: "), (folder / "log").read_text()
            yield line.removeprefix("ready: ").strip().removesuffix("/v1")
        finally:
            process.terminate()
            process.wait(LIMIT_S)
