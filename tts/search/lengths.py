"""Lengths of solutions, learnt from the paths of a search.

Open solutions count as well. Source: Kaplan and Meier (1958), the product-limit estimator. A solution that is still
open is a censored observation. The mean of the ended solutions would be biased short, because short ones end first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError
from tts.tasks.base import Task
from tts.types import Trajectory

QUANTILE = 0.85  # share of the solutions that end within the expected length
_NOTHING_OPEN = np.ones(1)
_LONGER = 1 - QUANTILE + 1e-9  # share of the solutions that may be longer
T = TypeVar("T")
NO_CAP = 1 << 20  # tokens of a row on a backend without a context limit
MOST_ROWS = 1024  # rows of a wave; a wider request begins wave by wave, until the search ends


class Lengths:
    """Lengths of the paths after one kind of prompt.

    Of n paths, let i have ended within a given length, and let o open paths be shorter. The estimated share of longer
    solutions is (n - i - o) / n, times the product of r / (r - 1) over these o open paths. Here r is the number of
    paths that are at least as long as the open path. A note only updates counts. The next estimate computes the
    products, and finds the length by a binary search.

    Args:
        prior: The tokens that are expected before any path was written, at least 1.
    """

    __slots__ = ("_ended_lengths", "_num_longer", "_open_lengths", "_paths", "_prior", "_products")

    def __init__(self, prior: int) -> None:
        self.assume(prior)
        self._paths: dict[int, tuple[int, bool]] = {}  # by node: the path's tokens, and whether the path is open
        self._ended_lengths = array("q")  # sorted
        self._open_lengths = array("q")  # sorted
        self._num_longer = array("q")  # for each open path: the number of longer ended paths
        # products over the first o open paths, by o from 0; None: not computed yet
        self._products: NDArray[np.float64] | None = None

    def assume(self, prior: int) -> None:
        """Replace the prior, the expected length before any path has ended."""
        self._prior = max(1, prior)

    def note(self, node: int, tokens: int, *, ended: bool, above: int | None = None) -> None:
        """Note the length of a path. A later note of the same node replaces this note.

        Args:
            node: The number of the path's last node.
            tokens: The path's tokens.
            ended: Whether the path has ended by itself, not by a cap.
            above: The number of the last node of the path that this one continues. The note of that path is dropped.
                None: the path continues no other.
        """
        for number in (node, above):
            if number is not None and number in self._paths:
                self._forget(number)
        self._paths[node] = (tokens, not ended)
        self._products = None
        if ended:
            insort(self._ended_lengths, tokens)
            self._count_ended(tokens, 1)
        else:
            place = bisect_right(self._open_lengths, tokens)
            num_longer = len(self._ended_lengths) - bisect_right(self._ended_lengths, tokens)
            self._open_lengths.insert(place, tokens)
            self._num_longer.insert(place, num_longer)

    def _forget(self, node: int) -> None:
        """Drop the note of a path that is noted anew or was continued."""
        tokens, is_open = self._paths.pop(node)
        self._products = None
        if is_open:
            place = bisect_left(self._open_lengths, tokens)
            del self._open_lengths[place], self._num_longer[place]
        else:
            del self._ended_lengths[bisect_left(self._ended_lengths, tokens)]
            self._count_ended(tokens, -1)

    def _count_ended(self, tokens: int, by: int) -> None:
        """Add `by` to the counts of longer ended paths of all open paths shorter than `tokens`."""
        num_shorter = bisect_left(self._open_lengths, tokens)
        if num_shorter:
            np.frombuffer(self._num_longer, np.int64)[:num_shorter] += by

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def ended(self) -> int:
        """The number of paths that have ended by themselves."""
        return len(self._ended_lengths)

    @property
    def longest(self) -> int:
        """The tokens of the longest path; 0 without a path."""
        longest_ended = self._ended_lengths[-1] if self._ended_lengths else 0
        longest_open = self._open_lengths[-1] if self._open_lengths else 0
        return max(longest_ended, longest_open)

    def expected_length(self, written: int = 0) -> int:
        """Return the tokens within which an open path ends with probability `QUANTILE`, at least 1.

        The path has `written` tokens already. Where too few paths have ended to estimate the quantile, twice the
        longest path is returned. Without an ended path, or where no path has a token (empty or cached replies), the
        result is at least the prior.
        """
        ended_lengths, open_lengths = self._ended_lengths, self._open_lengths
        doubled = 2 * max(written, self.longest)
        if not ended_lengths or not doubled:
            return max(doubled, self._prior)
        shorter_ended = bisect_right(ended_lengths, written) if written else 0  # paths no longer than `written`
        shorter_open = bisect_right(open_lengths, written) if written else 0
        products = self._known_products()  # [open paths + 1]
        num_paths = len(ended_lengths) - shorter_ended + len(open_lengths) - shorter_open

        def is_within(place: int) -> bool:
            """Whether few enough paths are longer than the ended path at a place of `ended_lengths`."""
            passed_open = bisect_left(open_lengths, ended_lengths[place])
            num_longer = num_paths - (place - shorter_ended + 1) - (passed_open - shorter_open)
            return num_longer / num_paths * float(products[passed_open] / products[shorter_open]) <= _LONGER

        places = range(shorter_ended, len(ended_lengths))
        index = bisect_left(places, True, key=is_within)  # noqa: FBT003 - the value to find
        if index < len(places):
            return max(1, ended_lengths[places[index]])
        return doubled

    def _known_products(self) -> NDArray[np.float64]:
        """Return the products of the factors r / (r - 1) over the shortest o open paths, by o: [open paths + 1]."""
        if not self._open_lengths:
            return _NOTHING_OPEN
        if self._products is None:
            at_risk = np.arange(len(self._open_lengths), 0, -1) + np.array(self._num_longer)  # r of each open path
            # where the longest path is open, its factor is infinite and no ended path comes after it
            self._products = np.concatenate(([1.0], np.cumprod(at_risk / np.maximum(at_risk - 1, 0.5))))
        return self._products


class KnownLengths:
    """The known lengths of one search: of paths by kind of prompt, and of steps.

    Args:
        task: The task, whose constants stand for lengths that are not known yet.
        expected: The tokens of a solution that the caller expects; None: the task's constant.

    Attributes:
        forced: The nodes of forced text and their descendants, from which no length is learnt.
    """

    def __init__(self, task: Task, expected: int | None) -> None:
        self.forced: set[int] = set()
        self._task = task
        self._scale = 1.0 if expected is None else expected / max(1, task.typical_tokens("solve"))
        self._by_kind: dict[str, Lengths] = {}
        self._assumed: set[str] = set()  # kinds whose prior is the task's constant, because no solution had ended
        self._step_tokens = 0  # of all steps that have ended
        self._num_steps = 0  # steps that have ended

    def get(self, kind: str) -> Lengths:
        """Return the known lengths of paths after a kind of prompt."""
        lengths = self._by_kind.get(kind)
        if lengths is None:
            lengths = self._by_kind[kind] = Lengths(self._prior(kind))
            if kind != "solve" and not self._by_kind["solve"].ended:
                self._assumed.add(kind)
        elif self._assumed and kind in self._assumed and self._by_kind["solve"].ended:
            self._assumed.remove(kind)
            lengths.assume(self._prior(kind))
        return lengths

    def _prior(self, kind: str) -> int:
        """Return the expected tokens of a path before any path after this kind of prompt was written.

        For "solve" this is the caller's number, else the task's constant. Other kinds scale the expected length of a
        solution by the ratio of the task's constants.
        """
        if kind == "solve":
            return round(self._typical(kind) * self._scale)
        solution_constant = max(1, self._typical("solve"))
        return round(self.get("solve").expected_length() * self._typical(kind) / solution_constant)

    def _typical(self, kind: str) -> int:
        """Return the task's constant for a kind of prompt; the constant of "solve" for a kind that the task lacks."""
        try:
            return self._task.typical_tokens(kind)
        except ConfigError:
            return self._task.typical_tokens("solve")

    @cached_property
    def _first_step(self) -> int:
        return max(1, round(self._task.typical_tokens("step") * self._scale))

    @property
    def begun(self) -> int:
        """The number of paths that were begun."""
        return sum(map(len, self._by_kind.values()))

    @property
    def ended(self) -> int:
        """The number of paths that have ended by themselves."""
        return sum(lengths.ended for lengths in self._by_kind.values())

    @property
    def step(self) -> int:
        """The mean tokens of a step; before the first step has ended, the task's constant."""
        return max(1, round(self._step_tokens / self._num_steps)) if self._num_steps else self._first_step

    def note(self, path: Trajectory, above: int) -> bool:
        """Learn from a path that continues the node `above`; return False where nothing is learnt from it."""
        if above in self.forced:
            self.forced.add(path.node)
            return False
        self.get(path.root_kind).note(path.node, path.num_tokens, ended=path.status == "finished", above=above)
        return True

    def note_step(self, tokens: int) -> None:
        """Learn from a step that has ended."""
        self._step_tokens += tokens
        self._num_steps += 1


def waves_of(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield items in lists of at most `MOST_ROWS`. Each list is made when it is needed."""
    remaining_items = iter(items)
    while wave := list(islice(remaining_items, MOST_ROWS)):
        yield wave
