"""Draws fixed problem sets from endless series, taking difficulties of a grid in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from tts.checks import check_int
from tts.errors import ConfigError
from tts.experiments.datasets import identity
from tts.types import Problem

Cell = TypeVar("Cell")
Value = TypeVar("Value", bound=int)

_MOST_REPEATS = 1000  # draws of a difficulty in a row that may repeat earlier problems


def choices(name: str, given: Value | Sequence[Value]) -> list[Value]:
    """Return a value, or the different values among several, as a list.

    Args:
        name: The name of the parameter, for the error.
        given: The value or the values.

    Raises:
        ConfigError: there is no value.
    """
    if not isinstance(given, Sequence) or isinstance(given, str):
        return [cast("Value", given)]
    values = list(dict.fromkeys(given))
    if not values:
        raise ConfigError(f"{name} is {given!r}, but must be a value or some of them")
    return values


def draw_in_turn(
    cells: Sequence[Cell], limit: int, draw: Callable[[Cell, int], Problem], *, seed: int
) -> list[Problem]:
    """Return `limit` different problems, one of each cell (a difficulty) in turn.

    A smaller limit gives the first problems of a larger one.

    Args:
        cells: The difficulties.
        limit: The number of problems.
        draw: A function from a cell and i to problem number i of the cell's series.
        seed: The seed of the series, which is checked here.

    Raises:
        ConfigError: the limit or the seed is not valid, or a cell has too few different problems.
    """
    check_int("limit", limit, 1, optional=False)
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise ConfigError(f"seed is {seed!r}, but must be a whole number from 0 to 2**64 - 1")
    problems: list[Problem] = []
    identities: set[str] = set()
    draw_counts = [0] * len(cells)
    while len(problems) < limit:
        cell_index = len(problems) % len(cells)
        for _ in range(_MOST_REPEATS):
            problem = draw(cells[cell_index], draw_counts[cell_index])
            draw_counts[cell_index] += 1
            if identity(problem) not in identities:
                break
        else:
            shortage = f"after {len(problems)} problems there is no other of difficulty {cells[cell_index]}"
            raise ConfigError(
                f"limit is {limit}, but {shortage} in {_MOST_REPEATS} draws",
                hint="lower the limit, or leave this difficulty out",
            )
        identities.add(identity(problem))
        problems.append(problem)
    return problems
