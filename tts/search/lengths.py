"""Lengths of solutions, learnt from the paths of a search.

Open solutions count as well. Source: Kaplan and Meier (1958), the product-limit estimator. A solution that is still
open is a censored observation. The mean of the ended solutions would be biased short, because short ones end first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

QUANTILE = 0.85  # share of the solutions that end within the expected length
_NOTHING_OPEN = np.ones(1)
_LONGER = 1 - QUANTILE + 1e-9  # share of the solutions that may be longer
T = TypeVar("T")
NO_CAP = 1 << 20  # tokens of a row on a backend without a context limit
MOST_ROWS = 1024  # rows of a wave; a wider request begins wave by wave, until the search ends


class Lengths:
    """Lengths of the paths after one kind of prompt.

    Of n paths, let i have ended within a given length, and let o open paths be shorter. The estimated share of longer
    solutions is (n - i - o) / n, times the product of r / (r - 1) over these o open paths. Here r counts the paths that
    are at least as long as the open path. A note only updates counts. The products are computed before the next
    estimate, which is a binary search.

    Args:
        prior: The tokens that are expected before any path was written, at least 1.
    """

    __slots__ = ("_ended", "_longer", "_open", "_paths", "_prior", "_products")

    def __init__(self, prior: int) -> None:
        self.assume(prior)
        self._paths: dict[int, tuple[int, bool]] = {}  # by node: tokens, and whether it is open
        self._ended = array("q")  # sorted lengths
        self._open = array("q")
        self._longer = array("q")  # for each open path: the number of longer ended paths
        # products over the first o open paths, by o from 0; None: not computed yet
        self._products: NDArray[np.float64] | None = None

    def assume(self, prior: int) -> None:
        """Replace the prior, the expected length before any path has ended."""
        self._prior = max(1, prior)

    def note(self, node: int, tokens: int, *, ended: bool, above: int | None = None) -> None:
        """Note the length of a path. A later note of the same node replaces this one.

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
            insort(self._ended, tokens)
            self._count_ended(tokens, 1)
        else:
            place = bisect_right(self._open, tokens)
            self._open.insert(place, tokens)
            self._longer.insert(place, len(self._ended) - bisect_right(self._ended, tokens))

    def _forget(self, node: int) -> None:
        """Drop the note of a path that is noted anew or was continued."""
        tokens, is_open = self._paths.pop(node)
        self._products = None
        if is_open:
            place = bisect_left(self._open, tokens)
            del self._open[place], self._longer[place]
        else:
            del self._ended[bisect_left(self._ended, tokens)]
            self._count_ended(tokens, -1)

    def _count_ended(self, tokens: int, by: int) -> None:
        """Add `by` to the counts of longer ended paths of all open paths shorter than `tokens`."""
        if shorter := bisect_left(self._open, tokens):
            np.frombuffer(self._longer, np.int64)[:shorter] += by

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def ended(self) -> int:
        """The number of paths that have ended by themselves."""
        return len(self._ended)

    @property
    def longest(self) -> int:
        """The tokens of the longest path; 0 without a path."""
        return max(self._ended[-1] if self._ended else 0, self._open[-1] if self._open else 0)

    def expected_length(self, written: int = 0) -> int:
        """Return the tokens within which an open path ends with probability `QUANTILE`, at least 1.

        The path has `written` tokens already. Where the observations do not identify the quantile, twice the longest
        path is returned. Without an ended path, or where no path has a token (empty or cached replies), the result is
        at least the prior.
        """
        ended, open_ = self._ended, self._open
        doubled = 2 * max(written, self.longest)
        if not ended or not doubled:
            return max(doubled, self._prior)
        first, shorter = (bisect_right(ended, written), bisect_right(open_, written)) if written else (0, 0)
        products, count = self._known_products(), len(ended) - first + len(open_) - shorter

        def is_within(place: int) -> bool:
            """Whether the share of longer paths is small enough after the ended path at a place."""
            before = bisect_left(open_, ended[place])
            left = count - (place - first + 1) - (before - shorter)
            return left / count * float(products[before] / products[shorter]) <= _LONGER

        places = range(first, len(ended))
        index = bisect_left(places, True, key=is_within)  # noqa: FBT003 - the value to find
        if index < len(places):
            return max(1, ended[places[index]])
        return doubled

    def _known_products(self) -> NDArray[np.float64]:
        """Return the products of factors, [open paths + 1]."""
        if not self._open:
            return _NOTHING_OPEN
        if self._products is None:
            at_risk = np.arange(len(self._open), 0, -1) + np.array(self._longer)
            # where the longest path is open, its factor is infinite and no ended path comes after it
            self._products = np.concatenate(([1.0], np.cumprod(at_risk / np.maximum(at_risk - 1, 0.5))))
        return self._products


def waves_of(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield items in lists of at most `MOST_ROWS`. Each list is made when it is needed."""
    rest = iter(items)
    while wave := list(islice(rest, MOST_ROWS)):
        yield wave
