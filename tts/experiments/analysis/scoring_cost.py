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
    """Return the number of tokens that a verifier computes to score samples.

    Args:
        drawn: All samples of a pool.
        samples: The numbers of the scored samples.
    """
    ends: dict[int, int] = {}  # by owner, the last token of its own part that is read
    for i in samples:
        for owner, end in _path(drawn, i):
            ends[owner] = max(ends.get(owner, 0), end)
    return sum((end - drawn[owner].shared) * _rate(drawn[owner]) for owner, end in ends.items())


def mean_costs(drawn: Sequence[RecordedSample], sizes: Sequence[int]) -> NDArray[np.float64]:
    """Return the mean of `cost_of` over all subsets of each size, [S].

    A subset pays for a part of the tree if it has one of the c samples that contain the part. The share of subsets
    that pay is therefore pass@k with c right samples.
    """
    ends_by_owner: list[list[int]] = [[] for _ in drawn]
    for i in range(len(drawn)):
        for owner, end in _path(drawn, i):
            ends_by_owner[owner].append(end)
    part_costs: list[float] = []
    sample_counts: list[int] = []  # the number of samples that contain each part
    for sample, ends in zip(drawn, ends_by_owner, strict=True):
        ends.sort()
        for num_shorter, (start, end) in enumerate(pairwise([sample.shared, *ends])):
            part_costs.append((end - start) * _rate(sample))
            sample_counts.append(len(ends) - num_shorter)
    shares = pass_at_k(len(drawn), np.asarray(sample_counts)[:, None], np.asarray(sizes)[None, :])  # [parts, S]
    return np.asarray(part_costs) @ shares


def _path(drawn: Sequence[RecordedSample], i: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a sample, from the last part to the first.

    A part is given by its owner, the first sample that has the part, and by the number of the part's last token.
    """
    owner, end = i, drawn[i].tokens
    while owner is not None:
        sample = drawn[owner]
        if end > sample.shared:
            yield owner, end
        owner, end = sample.like, min(end, sample.shared)


def _rate(sample: RecordedSample) -> float:
    """Return the verifier tokens for each token of a sample's own part."""
    own_tokens = sample.tokens - sample.shared
    return sample.verifier_tokens / own_tokens if own_tokens else 0.0
