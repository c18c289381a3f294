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

    The file lies below `TTS_HOME`, else `XDG_CONFIG_HOME/tts`, else `~/.config/tts`.
    """
    return _folder("XDG_CONFIG_HOME", ".config") / name


def cache_file(name: str) -> Path:
    """Return the path of a file that can be made again.

    The file lies below `TTS_HOME`, else `XDG_CACHE_HOME/tts`, else `~/.cache/tts`.
    """
    return _folder("XDG_CACHE_HOME", ".cache") / name


def _folder(variable: str, default: str) -> Path:
    """Return the folder of the library's files.

    Args:
        variable: The variable of the environment that names the parent folder, where `TTS_HOME` is not set.
        default: The parent folder below the home directory, where neither variable is set.
    """
    tts_home = os.environ.get(HOME_VARIABLE)
    if tts_home:
        return Path(tts_home).expanduser()
    xdg_folder = os.environ.get(variable)
    parent = Path(xdg_folder) if xdg_folder else Path.home() / default
    return parent / "tts"


def write_whole(path: Path, text: str) -> None:
    """Write a file under a temporary name, then rename it.

    Readers find the old text or the new text, never a part.

    Raises:
        OSError: the folder or the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary_name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary_name).unlink()
        raise
