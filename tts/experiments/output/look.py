"""The look of figures: options of the caller, and the styles that distinguish lines.

Styles are kept in a file for all figures of a project.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from tts.errors import ConfigError, quote

Legend = Literal["auto", "beside", "above", "below", "inside", "ends", "none"]

# Okabe and Ito, "Color universal design" (2008), ordered so that neighbours differ in grey. Black is for reference
# lines.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
DASHES: Final = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.6, 1.2, 1.6)), (0, (9, 2)))
COLUMN: Final = (3.35, 2.5)  # inches: one column of a two-column paper
_FILE: Final = "styles.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The options of a figure that a caller may choose.

    Args:
        style: The properties of matplotlib's lines that replace a line's own, by the line's label, such as
            {"color": "black", "linewidth": 3}.
        labels: The words of the legend for a line, by the line's label.
        size: Width and height in inches, without a legend beside or above; None: by the number of panels.
        xlabel: The label of the horizontal axis; None: the cost's name.
        ylabel: The label of the vertical axis; None: "accuracy".
        xlim: The least and the greatest value of the horizontal axis; None: by the points.
        ylim: The least and the greatest value of the vertical axis; None: by the points.
        legend: The place of the legend: "beside", "above" or "below" the panels, "inside" the first panel, at the
            "ends" of lines, or "none". "auto": beside one panel and above several panels, but at the ends where a panel
            has more than eight lines.
        single_column: Whether the figure is for a paper's column of 3.35 inches, with smaller type and the legend
            below; `size` replaces the size.

    Raises:
        ConfigError: a value is not allowed.
    """

    style: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    size: tuple[float, float] | None = None
    xlabel: str | None = None
    ylabel: str | None = None
    xlim: tuple[float, float] | None = None
    ylim: tuple[float, float] | None = None
    legend: Legend = "auto"
    single_column: bool = False

    def __post_init__(self) -> None:
        _check_pair("size", self.size, "two lengths above 0, in inches", lambda low, high: low > 0 and high > 0)
        for name in ("xlim", "ylim"):
            _check_pair(name, getattr(self, name), "two numbers, the smaller first", lambda low, high: low < high)
        if self.legend not in get_args(Legend):
            raise ConfigError(f"legend is {quote(self.legend)}, but must be one of {', '.join(get_args(Legend))}")

    @property
    def small_type(self) -> dict[str, Any]:
        """The settings of matplotlib for smaller type in a single column; {}: no change."""
        if not self.single_column:
            return {}
        return {
            "font.size": 7.5,
            "axes.labelsize": 8.0,
            "legend.fontsize": 7.0,
            "xtick.labelsize": 7.0,
            "ytick.labelsize": 7.0,
            "lines.linewidth": 1.2,
        }

    def place(self, *, lines: int, panels: int) -> Legend:
        """Return the place of the names of lines.

        Args:
            lines: The number of lines of the fullest panel.
            panels: The number of panels.
        """
        if self.legend != "auto":
            return self.legend
        if lines > _MOST_ROWS:
            return "ends"
        if self.single_column:
            return "below"
        return "beside" if panels == 1 else "above"


_RESET_HINT: Final = "delete the file: lines get new colours"
_MOST_ROWS: Final = 8  # rows of a legend beside a panel


def _check_pair(name: str, pair: Any, rule: str, valid: Callable[[float, float], bool]) -> None:
    """Refuse an option that is neither None nor two numbers that are valid together.

    Args:
        name: The name of the option.
        pair: The value of the option.
        rule: The words of the error for what the value must be.
        valid: A function that returns whether two numbers are valid.
    """
    if pair is None:
        return
    are_two_numbers = (
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and all(isinstance(number, int | float) and abs(number) < 1e300 for number in pair)
    )
    if not (are_two_numbers and valid(*pair)):
        raise ConfigError(f"{name} is {quote(pair)}, but must be {rule}")


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
