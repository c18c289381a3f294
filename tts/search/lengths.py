"""How long solutions are: learnt from what a search has written, open solutions included.

Source: Kaplan and Meier (1958), the product-limit estimator. A solution that is still open is a censored observation. The mean of those
that have ended would be biased short, for short ones end first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

import numpy as np
from numpy.typing import NDArray

QUANTILE = 0.85  # of the solutions end within the expected length
_LONGER = 1 - QUANTILE + 1e-9  # share of the solutions that may be longer


class Lengths:
    """Lengths of the paths behind one kind of prompt.

    Of n paths, let i have ended at some length or before, and let o open ones be shorter. The estimated share of longer solutions is
    (n - i - o) / n, times the product of r / (r - 1) over these o. Here r counts the paths that are at least as long as the open one.
    Only the factors of open paths are stored. A note therefore moves some numbers, and an estimate is a binary search.

    Args:
        prior: tokens that are expected before any path was written, at least 1.
    """

    __slots__ = ("_at_risk", "_ended", "_open", "_paths", "_prior", "_products")

    def __init__(self, prior: int) -> None:
        self._prior = max(1, prior)
        self._paths: dict[int, tuple[int, bool]] = {}  # by node: tokens, and whether it is open
        self._ended: list[int] = []  # sorted lengths
        self._open: list[int] = []
        self._at_risk = np.zeros(0)  # r of each open path; an ended path of equal length counts as shorter
        self._products: NDArray[np.float64] | None = None  # over the first o open paths, from 0 on; None: not computed yet

    def note(self, node: int, tokens: int, *, ended: bool) -> None:
        """Note the length of a path; a later note of the same node replaces it. `ended`: by itself, not by a cap."""
        self.forget(node)
        self._paths[node] = (tokens, not ended)
        self._products = None
        if ended:
            insort(self._ended, tokens)
            self._at_risk[: bisect_left(self._open, tokens)] += 1
            return
        place = bisect_right(self._open, tokens)
        self._at_risk[:place] += 1
        longer = len(self._ended) - bisect_right(self._ended, tokens) + len(self._open) - place
        self._at_risk = np.insert(self._at_risk, place, longer + 1)
        self._open.insert(place, tokens)

    def forget(self, node: int) -> None:
        """Drop a path that was continued as another."""
        if (path := self._paths.pop(node, None)) is None:
            return
        tokens, is_open = path
        self._products = None
        if not is_open:
            del self._ended[bisect_left(self._ended, tokens)]
            self._at_risk[: bisect_left(self._open, tokens)] -= 1
            return
        place = bisect_right(self._open, tokens) - 1
        self._at_risk = np.delete(self._at_risk, place)
        self._at_risk[:place] -= 1
        del self._open[place]

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def ended(self) -> int:
        """Paths that have ended by themselves."""
        return len(self._ended)

    @property
    def longest(self) -> int:
        """Tokens of the longest path; 0 without any."""
        return max([0, *self._ended[-1:], *self._open[-1:]])

    def expected(self, written: int = 0) -> int:
        """Return the tokens within which a path ends with probability `QUANTILE`, given that it has `written` and is open.

        Where the observations do not identify the quantile, it is twice the longest path; without any that has ended, at least the prior.
        """
        ended, open_ = self._ended, self._open
        first, shorter = (bisect_right(ended, written), bisect_right(open_, written)) if written else (0, 0)
        products, count = self._known_products(), len(ended) - first + len(open_) - shorter

        def is_within(place: int) -> bool:
            """Whether the share of longer paths is small enough behind the ended path at a place."""
            before = bisect_left(open_, ended[place])
            left = count - (place - first + 1) - (before - shorter)
            return left / count * float(products[before] / products[shorter]) <= _LONGER

        places = range(first, len(ended))
        found = bisect_left(places, True, key=is_within)  # noqa: FBT003 - the value that is looked for
        if found < len(places):
            return ended[places[found]]
        doubled = 2 * max(written, self.longest)
        return doubled if ended else max(doubled, self._prior)

    def _known_products(self) -> NDArray[np.float64]:
        """Return the products of factors, [open paths + 1]."""
        if self._products is None:
            # where the longest path is open, its factor is infinite and no ended path comes behind it
            factors = self._at_risk / np.maximum(self._at_risk - 1, 0.5)
            self._products = np.concatenate(([1.0], np.cumprod(factors)))
        return self._products
