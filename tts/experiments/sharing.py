"""What scoring some of a pool's samples costs, where a verifier reads the steps that samples share only once.

The samples are a tree: each begins as an earlier one does (`Drawn.like`), up to so many tokens (`Drawn.shared`), and goes on by
itself. A part of it costs a subset of samples what it cost the pool, if any of them has it. Where nothing is read once for several,
each sample is a tree of its own, and all of this comes to sums.

Shapes: N samples, S sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tts.experiments.record import Drawn
from tts.statistics import pass_at_k


def beginnings(steps: Sequence[Sequence[str]], tokens: Sequence[int]) -> list[tuple[int | None, int]]:
    """Return for each sample the earlier one with which it has most steps in common, and their tokens: by their share of its text.

    Args:
        steps: of each sample, as texts. tokens: of each.
    """
    first: dict[tuple[str, ...], int] = {}  # who had these steps first
    found: list[tuple[int | None, int]] = []
    for i, own in enumerate(steps):
        common = next((count for count in range(len(own), 0, -1) if tuple(own[:count]) in first), 0)
        like = first[tuple(own[:common])] if common else None
        share = sum(map(len, own[:common])) / max(1, sum(map(len, own)))
        found.append((like, 0 if like is None else min(round(tokens[i] * share), tokens[like])))
        for count in range(common + 1, len(own) + 1):
            first[tuple(own[:count])] = i
    return found


def cost_of(drawn: Sequence[Drawn], samples: Iterable[int]) -> float:
    """Return the tokens that scoring these samples computes."""
    reach: dict[int, int] = {}  # how far the path of each is read
    for i in samples:
        for owner, end in _path(drawn, i):
            reach[owner] = max(reach.get(owner, 0), end)
    return sum((end - drawn[i].shared) * _rate(drawn[i]) for i, end in reach.items())


def mean_costs(drawn: Sequence[Drawn], sizes: Sequence[int]) -> NDArray[np.float64]:
    """Return the mean of `cost_of` over all subsets of each size, [S]: a part that c samples have counts as pass@k of c counts."""
    ends: list[list[int]] = [[] for _ in drawn]
    for i in range(len(drawn)):
        for owner, end in _path(drawn, i):
            ends[owner].append(end)
    costs: list[float] = []  # of each part
    having: list[int] = []  # samples that have it
    for one, far in zip(drawn, map(sorted, ends), strict=True):
        costs += [(end - start) * _rate(one) for start, end in pairwise([one.shared, *far])]
        having += range(len(far), 0, -1)
    return np.asarray(costs) @ pass_at_k(len(drawn), np.asarray(having)[:, None], np.asarray(sizes)[None, :])


def _path(drawn: Sequence[Drawn], i: int) -> Iterator[tuple[int, int]]:
    """Yield the parts that a sample consists of: whose they are, and where they end; those behind the point at which it left are not."""
    owner, end = i, drawn[i].tokens
    while owner is not None:
        one = drawn[owner]
        if end > one.shared:
            yield owner, end
        owner, end = one.like, min(end, one.shared)


def _rate(one: Drawn) -> float:
    """Return what a token of a sample's own part cost."""
    own = one.tokens - one.shared
    return one.verifier_tokens / own if own else 0.0
