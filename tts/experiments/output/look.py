"""The styles that distinguish lines, kept in a file for all figures of a project."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tts.errors import ConfigError

# Okabe and Ito, "Color universal design" (2008), ordered so that neighbours differ in grey. Black is for reference
# lines.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
DASHES: Final = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.6, 1.2, 1.6)), (0, (9, 2)))
_FILE: Final = "styles.json"
_RESET_HINT: Final = "delete the file: lines get new colours"


class Palette:
    """The numbers of lines, by label.

    A line keeps its colour, marker and dashes in every figure that is drawn by one palette.

    Args:
        path: The file of the numbers; None: only this object keeps the numbers. A file that cannot be written is left
            unchanged.

    Raises:
        ConfigError: the file is no palette.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._numbers: dict[str, int] = {} if path is None else _read(path)

    @classmethod
    def from_project(cls, store: Path) -> Palette:
        """Return the palette of a project: the file `styles.json` beside its store."""
        return cls(store.parent / _FILE)

    def numbers(self, labels: Iterable[str]) -> dict[str, int]:
        """Return the numbers of labels. New labels get the next numbers, which are kept."""
        distinct_labels = list(dict.fromkeys(labels))
        new_labels = [label for label in distinct_labels if label not in self._numbers]
        for label in new_labels:
            self._numbers[label] = len(self._numbers)
        if new_labels and self._path is not None:
            with suppress(OSError):
                self._path.write_text(json.dumps(self._numbers, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return {label: self._numbers[label] for label in distinct_labels}


def _read(path: Path) -> dict[str, int]:
    """Return the numbers of a file by label; {}: there is no file.

    Raises:
        ConfigError: The file is no palette.
    """
    try:
        numbers: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as failure:
        raise ConfigError(f"the styles of lines in {path} cannot be read: {failure}", hint=_RESET_HINT) from None
    if not isinstance(numbers, dict) or not all(type(number) is int and number >= 0 for number in numbers.values()):
        raise ConfigError(f"{path} is no file of styles of lines, a number by label", hint=_RESET_HINT)
    return numbers
