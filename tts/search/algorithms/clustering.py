"""Which vectors are near: agglomerative clustering by average linkage on cosine distance.

Source: as ETS's code uses it (algorithm A7: average linkage, cosine, a distance threshold). Differs: a vector of zeros
has no direction, so its cosine is undefined. It is at distance 1 from all others, and at 0 from other vectors of zeros.
Beyond 2,000 vectors memory is bounded: the mean cosine distance of two clusters is 1 less the product of their mean
unit vectors, so that no matrix of distances is kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

_FEW = 2000  # vectors with a matrix of all distances
_AT_ONCE = 4_000_000  # products of more vectors in memory


def clusters(vectors: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
    """Return the cluster of each vector, numbered from 0 in order of first appearance.

    Args:
        vectors: [N, dimensions], of any length.
        threshold: Clusters are joined up to this mean distance, in [0, 2].
    """
    return _join(vectors, threshold, "distance") if len(vectors) <= _FEW else _join_in_rounds(vectors, threshold)


def most_clusters(vectors: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the cluster of each vector, of at most `count` clusters and at least 1.

    Vectors and numbers are as in `clusters`.
    """
    return _join(vectors, count, "maxclust")


def _join(vectors: NDArray[np.float64], limit: float, criterion: str) -> NDArray[np.int64]:
    if len(vectors) < 2:
        return np.zeros(len(vectors), dtype=np.int64)
    units = _units(vectors)
    cosines = units @ units.T
    distances = np.clip(1.0 - (cosines + cosines.T) / 2, 0.0, 2.0)
    np.fill_diagonal(distances, 0.0)
    return _number(fcluster(linkage(squareform(distances, checks=False), "average"), limit, criterion=criterion))


def _join_in_rounds(vectors: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
    """Return what `_join` does, by rounds that join all pairs of mutual nearest clusters.

    That is the same tree as of single joins, since a joined cluster is no nearer to others than its nearer part (F.
    Murtagh, "A survey of recent advances in hierarchical clustering algorithms", 1983). For the same reason a cluster
    whose nearest is too far stays as it is.
    """
    means, of, sizes = np.unique(_units(vectors), axis=0, return_inverse=True, return_counts=True)
    of = of.reshape(-1)
    still = np.arange(len(means))  # clusters that may be joined
    while len(still) > 1:
        nearest, distances = _nearest(means[still])
        here = np.arange(len(still))
        pairs = np.flatnonzero((nearest[nearest] == here) & (here < nearest) & (distances <= threshold))
        if len(pairs) == 0 and distances.min() <= threshold:  # a distance was rounded otherwise in the other order
            pairs = np.array([distances.argmin()])
        kept, gone = still[pairs], still[nearest[pairs]]
        both = sizes[kept] + sizes[gone]
        means[kept] = (means[kept] * sizes[kept, None] + means[gone] * sizes[gone, None]) / both[:, None]
        sizes[kept] = both
        into = np.arange(len(means))
        into[gone] = kept
        of = into[of]
        still = np.setdiff1d(still[distances <= threshold], gone)
    return _number(of)


def _nearest(means: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the nearest other one of each mean vector, and its distance."""
    nearest, products = np.zeros(len(means), np.int64), np.zeros(len(means))
    rows = max(1, _AT_ONCE // len(means))
    for first in range(0, len(means), rows):
        found = means[first : first + rows] @ means.T
        places = np.arange(len(found))
        found[places, first + places] = -np.inf
        nearest[first : first + rows] = best = found.argmax(axis=1)
        products[first : first + rows] = found[places, best]
    return nearest, np.clip(1.0 - products, 0.0, 2.0)


def _units(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return vectors of length 1, with one direction more, which is that of vectors of zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.hstack([np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0), lengths == 0])


def _number(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return labels as numbers from 0, in order of first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]
