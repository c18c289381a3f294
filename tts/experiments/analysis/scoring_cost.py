"""The cost of scoring some of a pool's samples, where a verifier reads common steps only once.

The samples form a tree: each sample shares its first tokens (`RecordedSample.shared`) with an earlier sample
(`RecordedSample.like`). A subset of samples pays for each part of the tree that one of its samples contains, as much
as the pool paid. Where the verifier shares nothing between samples, each sample is a tree of its own, and costs are
sums.

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
    """Return the number of tokens that scoring these samples computes."""
    ends: dict[int, int] = {}  # by sample, the end of the part that is read
    for i in samples:
        for owner, end in _path(drawn, i):
            ends[owner] = max(ends.get(owner, 0), end)
    return sum((end - drawn[i].shared) * _rate(drawn[i]) for i, end in ends.items())


def mean_costs(drawn: Sequence[RecordedSample], sizes: Sequence[int]) -> NDArray[np.float64]:
    """Return the mean of `cost_of` over all subsets of each size, [S].

    A part of the tree that c samples contain counts with pass@k of c right samples.
    """
    ends: list[list[int]] = [[] for _ in drawn]
    for i in range(len(drawn)):
        for owner, end in _path(drawn, i):
            ends[owner].append(end)
    costs: list[float] = []  # cost of each part of the tree
    counts: list[int] = []  # number of samples that contain each part
    for sample, sorted_ends in zip(drawn, map(sorted, ends), strict=True):
        costs += [(end - start) * _rate(sample) for start, end in pairwise([sample.shared, *sorted_ends])]
        counts += range(len(sorted_ends), 0, -1)
    return np.asarray(costs) @ pass_at_k(len(drawn), np.asarray(counts)[:, None], np.asarray(sizes)[None, :])


def _path(drawn: Sequence[RecordedSample], i: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a sample: the sample that owns each part, and the part's end."""
    owner, end = i, drawn[i].tokens
    while owner is not None:
        sample = drawn[owner]
        if end > sample.shared:
            yield owner, end
        owner, end = sample.like, min(end, sample.shared)


def _rate(one: RecordedSample) -> float:
    """Return the verifier tokens for each token of a sample's own part."""
    own_tokens = one.tokens - one.shared
    return one.verifier_tokens / own_tokens if own_tokens else 0.0
