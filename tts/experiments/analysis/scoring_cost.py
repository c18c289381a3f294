"""The cost of scoring some of a pool's samples.

A verifier reads steps that samples share only once.

The samples form a tree: each shares its first tokens (`RecordedSample.shared`) with an earlier one
(`RecordedSample.like`). A subset of samples pays for each part of the tree that one of them contains, as much as the
pool paid. Where the verifier shares nothing between samples, each sample is a tree of its own, and costs are sums.

Shapes: N samples, S sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tts.experiments.study.record import RecordedSample
from tts.statistics import pass_at_k


def cost_of(drawn: Sequence[RecordedSample], samples: Iterable[int]) -> float:
    """Return the tokens that scoring these samples computes."""
    reach: dict[int, int] = {}  # how far the path of each is read
    for i in samples:
        for owner, end in _path(drawn, i):
            reach[owner] = max(reach.get(owner, 0), end)
    return sum((end - drawn[i].shared) * _rate(drawn[i]) for i, end in reach.items())


def mean_costs(drawn: Sequence[RecordedSample], sizes: Sequence[int]) -> NDArray[np.float64]:
    """Return the mean of `cost_of` over all subsets of each size, [S].

    A part of c samples counts with pass@k of c right samples.
    """
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


def _path(drawn: Sequence[RecordedSample], i: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a sample: the sample that owns each, and where it ends."""
    owner, end = i, drawn[i].tokens
    while owner is not None:
        one = drawn[owner]
        if end > one.shared:
            yield owner, end
        owner, end = one.like, min(end, one.shared)


def _rate(one: RecordedSample) -> float:
    """Return the verifier tokens for each token of a sample's own part."""
    own = one.tokens - one.shared
    return one.verifier_tokens / own if own else 0.0
