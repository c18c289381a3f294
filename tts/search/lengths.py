"""How long solutions are: learnt from what a search has written, open solutions included.

Source: Kaplan and Meier (1958), the product-limit estimator. A solution that is still open is a censored observation. The mean of those
that have ended would be biased short, for short ones end first.
"""

from __future__ import annotations

from itertools import accumulate

QUANTILE = 0.85  # of the solutions end within the expected length


class Lengths:
    """Lengths of the paths behind one kind of prompt.

    Args:
        prior: tokens that are expected before any path was written, at least 1.
    """

    __slots__ = ("_ordered", "_paths", "_prior")

    def __init__(self, prior: int) -> None:
        self._prior = max(1, prior)
        self._paths: dict[int, tuple[int, bool]] = {}  # by node: tokens, and whether it is open
        self._ordered: list[tuple[int, bool]] | None = None

    def note(self, node: int, tokens: int, *, ended: bool) -> None:
        """Note the length of a path; a later note of the same node replaces it. `ended`: by itself, not by a cap."""
        self._paths[node] = (tokens, not ended)
        self._ordered = None

    def forget(self, node: int) -> None:
        """Drop a path that was continued as another."""
        if self._paths.pop(node, None) is not None:
            self._ordered = None

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def ended(self) -> int:
        """Paths that have ended by themselves."""
        return sum(not is_open for _, is_open in self._paths.values())

    @property
    def longest(self) -> int:
        """Tokens of the longest path; 0 without any."""
        return max((tokens for tokens, _ in self._paths.values()), default=0)

    def expected(self, written: int = 0) -> int:
        """Return the tokens within which a path ends with probability `QUANTILE`, given that it has `written` and is open.

        Where the observations do not identify the quantile, it is twice the longest path; without any that has ended, at least the prior.
        """
        if self._ordered is None:
            self._ordered = sorted(self._paths.values())  # among equal lengths those that ended come first
        longer = [path for path in self._ordered if path[0] > written] if written else self._ordered
        at_risk = len(longer)
        survival = accumulate(
            (1.0 if is_open else (left - 1) / left for left, (_, is_open) in zip(range(at_risk, 0, -1), longer, strict=True)),
            lambda so_far, factor: so_far * factor,
        )
        for share, (tokens, is_open) in zip(survival, longer, strict=True):
            if not is_open and share <= 1 - QUANTILE + 1e-9:
                return tokens
        doubled = 2 * max(written, self._ordered[-1][0] if self._ordered else 0)
        return doubled if any(not is_open for _, is_open in self._ordered) else max(doubled, self._prior)
