"""The problems that the pair is measured on, drawn from the family's generator with a fixed seed.

Everyone measures on the same problems. Each cell of the sets is an endless series
(`tts.tasks.arithmetic.generator.draw`), of which the first so many are taken. So a smaller set is the beginning of a
larger one. The checksum of the sets is pinned, so that a change of the generator is noticed, not measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tts.errors import ConfigError
from tts.tasks.arithmetic import countdown
from tts.tasks.arithmetic.countdown import CountdownProblem
from tts.tasks.arithmetic.expression import Expression, Step
from tts.tasks.arithmetic.expression import text as expression_text
from tts.tasks.arithmetic.generator import Difficulty, Drawn, Split, draw
from tts.tasks.arithmetic.judging import judge, judge_countdown
from tts.types import Problem

Kind = Literal["plain-2", "plain-1", "worded-2", "countdown"]
SET_SEED: Final = 20_240_607
KIND_NAMES: Final[dict[str, str]] = {
    "plain-2": "plain, operands to 99",
    "plain-1": "plain, operands to 9",
    "worded-2": "worded, operands to 99",
    "countdown": "countdown",
}


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One difficulty.

    Args:
        kind: The kind of problems.
        size: The number of operations, or of a countdown's numbers.
    """

    kind: Kind
    size: int

    @property
    def difficulty(self) -> Difficulty:
        """The generator's difficulty of the cell; a countdown has none."""
        return Difficulty(
            operations=self.size, digits=1 if self.kind == "plain-1" else 2, worded=self.kind == "worded-2"
        )


MAIN: Final = tuple(Cell("plain-2", size) for size in range(1, 11))
OTHERS: Final = (
    *(Cell("plain-1", size) for size in (2, 4, 6, 8, 10)),
    *(Cell("worded-2", size) for size in (2, 4, 6, 8, 10)),
    *(Cell("countdown", size) for size in (2, 3, 4)),
)
# SHA-256 of all texts of the sets in the sizes that are reported: (split, problems, others)
PINNED: Final[dict[tuple[str, int, int], str]] = {
    ("test", 8, 4): "ab95cfeb5ff863fe2ca4c37d211b71fc9c3ec3f2aa31dc3aeff50d9598129c12",
    ("test", 50, 20): "809553cdac2c5c4554cb40eb08796161d38278d135afa10576a9c0b715dce027",
    ("validation", 8, 4): "916762cf28de0d9234390aecf06ab77d8e242de8e1026d37b61730998c0da3c3",
    ("validation", 50, 20): "1b69224a3c230891996b03d5c5153bbb530c2be54330910daeec7f10bcfe0f70",
}


@dataclass(frozen=True, slots=True)
class Item:
    """A problem of the sets.

    Args:
        cell: The difficulty.
        problem: The problem as a search is given it.
        asked: The expression or the countdown.
        worked: The steps of the worked solution; a countdown has many solutions.
    """

    cell: Cell
    problem: Problem
    asked: Expression | CountdownProblem
    worked: tuple[Step, ...]

    def judge(self, lines: Sequence[str]) -> list[bool]:
        """Return whether each line of a solution is right, given the lines before it."""
        return (
            judge_countdown(self.asked, lines) if isinstance(self.asked, CountdownProblem) else judge(self.asked, lines)
        )


@dataclass(frozen=True, slots=True)
class Sets:
    """All problems of an evaluation.

    Args:
        main: The problems of the main difficulties.
        others: The problems of the other difficulties.
    """

    main: tuple[Item, ...]
    others: tuple[Item, ...]

    @property
    def checksum(self) -> str:
        """The SHA-256 of all texts, in order."""
        texts = "\n".join(item.problem.text for item in (*self.main, *self.others))
        return hashlib.sha256(texts.encode()).hexdigest()


def draw_sets(split: Split, *, problems: int, others: int, seed: int = SET_SEED) -> Sets:
    """Return the sets; those of `SET_SEED` are compared with the checksum of their size, if it has one.

    Args:
        split: The split.
        problems: The number of problems of each main difficulty.
        others: The number of problems of each other difficulty.
        seed: The seed; another one than `SET_SEED` draws problems that nobody has seen.

    Raises:
        ConfigError: The split is unknown, or the checksum is another: the generator has changed.
    """
    sets = Sets(
        tuple(draw_item(cell, split, seed, index) for cell in MAIN for index in range(problems)),
        tuple(draw_item(cell, split, seed, index) for cell in OTHERS for index in range(others)),
    )
    pinned = PINNED.get((split, problems, others)) if seed == SET_SEED else None
    if pinned is not None and sets.checksum != pinned:
        raise ConfigError(
            f"the problems of the split {split!r} have the SHA-256 {sets.checksum}, but {pinned} is pinned: the "
            "generator has changed",
            hint="undo the change, or pin the new sets in research/pocket/evaluate/problems.py and measure everything "
            "again",
        )
    return sets


def draw_item(cell: Cell, split: Split, seed: int, index: int) -> Item:
    """Return problem number `index` of a cell's series."""
    if cell.kind == "countdown":
        asked = countdown.draw(cell.size, split, seed, index)
        assert asked.solution is not None, "what is drawn has a solution"
        problem = Problem(
            asked.text, answer=expression_text(asked.solution), id=_name(cell, split, seed, index), task="countdown"
        )
        return Item(cell, problem, asked, tuple(asked.steps))
    return _item(cell, draw(cell.difficulty, split, seed, index), _name(cell, split, seed, index))


def _item(cell: Cell, drawn: Drawn, name: str) -> Item:
    return Item(
        cell,
        Problem(drawn.text, answer=str(drawn.answer), id=name, task="pocket"),
        drawn.expression,
        tuple(drawn.steps),
    )


def _name(cell: Cell, split: Split, seed: int, index: int) -> str:
    return f"{cell.kind}-{cell.size}/{split}/{seed}/{index}"
