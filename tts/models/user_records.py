"""The user's own records of models: settings by name in one JSON file.

The command `tts models add` writes the file, and every command reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tts._common.files import replace_file
from tts.errors import ConfigError, quote
from tts.models.user_files import config_file

FILE = "models.json"


def records_file() -> Path:
    """Return the path of the file, which need not exist."""
    return config_file(FILE)


def read_records() -> dict[str, dict[str, Any]]:
    """Return the settings of every model in the file, by name; without a file the result is empty.

    Raises:
        ConfigError: the file cannot be read, or is damaged.
    """
    path = records_file()
    try:
        records: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as failure:
        raise ConfigError(
            f"the file of models {str(path)!r} cannot be read: {failure.strerror}", hint="correct its permissions"
        ) from None
    except (ValueError, RecursionError) as failure:
        raise _damage_error(path, f"it is no JSON: {' '.join(str(failure).split())}") from None
    if not isinstance(records, dict):
        raise _damage_error(path, f"it holds {quote(records)} where settings by model must be")
    for name, settings in cast("dict[str, Any]", records).items():
        if not isinstance(settings, dict):
            raise _damage_error(path, f"it holds {quote(settings)} where the settings of {name!r} must be")
    return cast("dict[str, dict[str, Any]]", records)


def write_record(name: str, settings: Mapping[str, Any]) -> Path:
    """Add a model or replace the model of the same name, and return the path of the file.

    Raises:
        ConfigError: the file cannot be read, or is damaged.
        TTSError: the file cannot be written.
    """
    return _write({**read_records(), name: dict(settings)})


def remove_record(name: str) -> Path:
    """Remove a model, and return the path of the file.

    Raises:
        ConfigError: the file cannot be read, is damaged, or has no such model.
        TTSError: the file cannot be written.
    """
    records = read_records()
    if name not in records:
        known = ", ".join(sorted(records)) or "none"
        raise ConfigError(
            f"model is {name!r}, but the file {str(records_file())!r} has none of that name", hint=f"it has: {known}"
        )
    del records[name]
    return _write(records)


def _write(records: Mapping[str, Any]) -> Path:
    """Write the settings of all models, and return the path of the file."""
    path = records_file()
    with replace_file(path, "correct its permissions, or make room") as partial_file:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial_file.write_text(json.dumps(records, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")
    return path


def _damage_error(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"the file of models {str(path)!r} is damaged: {why}", hint="correct it, or remove it and add the models again"
    )
