"""Files of the user: records of models, and capabilities of servers.

Each is written whole or not at all.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

HOME_VARIABLE = "TTS_HOME"


def config_file(name: str) -> Path:
    """Return the path of a file that the user keeps.

    It is below `TTS_HOME`, else `XDG_CONFIG_HOME/tts`, else `~/.config/tts`.
    """
    return _folder("XDG_CONFIG_HOME", ".config") / name


def cache_file(name: str) -> Path:
    """Return the path of a file that can be made again.

    It is below `TTS_HOME`, else `XDG_CACHE_HOME/tts`, else `~/.cache/tts`.
    """
    return _folder("XDG_CACHE_HOME", ".cache") / name


def _folder(variable: str, default: str) -> Path:
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return Path(home).expanduser()
    base = os.environ.get(variable)
    return (Path(base) if base else Path.home() / default) / "tts"


def write_whole(path: Path, text: str) -> None:
    """Write a file by another name, then rename it: readers find the old text or the new one.

    Raises:
        OSError: the folder or the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
