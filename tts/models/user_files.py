"""The folder of the user's own files."""

from __future__ import annotations

import os
from pathlib import Path

HOME_VARIABLE = "TTS_HOME"


def config_file(name: str) -> Path:
    """Return the path of a file that the user keeps.

    The file lies below `TTS_HOME`, else `XDG_CONFIG_HOME/tts`, else `~/.config/tts`.
    """
    tts_home, xdg_folder = os.environ.get(HOME_VARIABLE), os.environ.get("XDG_CONFIG_HOME")
    if tts_home:
        return Path(tts_home).expanduser() / name
    return (Path(xdg_folder) if xdg_folder else Path.home() / ".config") / "tts" / name
