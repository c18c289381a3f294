"""Lengths of solutions, learnt from what a search has written.

Open solutions count as well. Source: Kaplan and Meier (1958), the product-limit estimator. A solution that is still
open is a censored observation. The mean of those that have ended would be biased short, for short ones end first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

QUANTILE = 0.85  # of the solutions end within the expected length
_NOTHING_OPEN = np.ones(1)
_LONGER = 1 - QUANTILE + 1e-9  # share of the solutions that may be longer
T = TypeVar("T")
NO_CAP = 1 << 20  # tokens of a row on a backend without a context limit
MOST_ROWS = 1024  # of a wave: a width that no budget pays is begun wave by wave, until the search is ended or stopped


class Lengths:
    """Lengths of the paths after one kind of prompt.

    Of n paths, let i have ended at some length or before, and let o open ones be shorter. The estimated share of longer
    solutions is (n - i - o) / n, times the product of r / (r - 1) over these o. Here r counts the paths that are at
    least as long as the open one. A note moves some numbers. The products are computed once for all notes before an
    estimate, which is a binary search.

    Args:
        prior: Tokens that are expected before any path was written, at least 1.
    """

    __slots__ = ("_ended", "_longer", "_open", "_paths", "_prior", "_products")

    def __init__(self, prior: int) -> None:
        self.assume(prior)
        self._paths: dict[int, tuple[int, bool]] = {}  # by node: tokens, and whether it is open
        self._ended = array("q")  # sorted lengths
        self._open = array("q")
        self._longer = array("q")  # of each open path: how many ended ones are longer
        # over the first o open paths, from 0 on; None: not computed yet
        self._products: NDArray[np.float64] | None = None

    def assume(self, prior: int) -> None:
        """Replace what is expected before any path has ended."""
        self._prior = max(1, prior)

    def note(self, node: int, tokens: int, *, ended: bool, above: int | None = None) -> None:
        """Note the length of a path; a later note of the same node replaces it.

        Args:
            node: The number of the node that it ends with.
            tokens: Its tokens.
            ended: Whether it has ended by itself, not by a cap.
            above: The number of the path that it continues, which is dropped; None: it is that of no other path.
        """
        for one in (node, above):
            if one is not None and one in self._paths:
                self._forget(one)
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
        """Drop a path that is noted anew, or was continued as another."""
        tokens, is_open = self._paths.pop(node)
        self._products = None
        if is_open:
            place = bisect_left(self._open, tokens)
            del self._open[place], self._longer[place]
        else:
            del self._ended[bisect_left(self._ended, tokens)]
            self._count_ended(tokens, -1)

    def _count_ended(self, tokens: int, by: int) -> None:
        """Count an ended path for the open ones that are shorter."""
        if shorter := bisect_left(self._open, tokens):
            np.frombuffer(self._longer, np.int64)[:shorter] += by

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def ended(self) -> int:
        """Paths that have ended by themselves."""
        return len(self._ended)

    @property
    def longest(self) -> int:
        """Tokens of the longest path; 0 without any."""
        return max(self._ended[-1] if self._ended else 0, self._open[-1] if self._open else 0)

    def expected_length(self, written: int = 0) -> int:
        """Return the tokens within which an open path ends with probability `QUANTILE`.

        The path has `written` tokens already.

        Where the observations do not identify the quantile, it is twice the longest path. Without an ended path, or
        where no path has a token (empty or cached replies), it is at least the prior. It is never below 1.
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
        found = bisect_left(places, True, key=is_within)  # noqa: FBT003 - the value that is looked for
        if found < len(places):
            return max(1, ended[places[found]])
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
    """Yield items in lists of at most `MOST_ROWS`, each made when it is asked for."""
    rest = iter(items)
    while wave := list(islice(rest, MOST_ROWS)):
        yield wave
