"""Clusters of near vectors: agglomerative clustering by average linkage on cosine distance.

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

_SMALL = 2000  # the most vectors for which the matrix of all distances is kept
_MOST_PRODUCTS = 4_000_000  # the most products of mean vectors in memory


def clusters(vectors: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
    """Return the cluster of each vector, numbered from 0 in order of first appearance.

    Args:
        vectors: The vectors, [N, dimensions], of any length.
        threshold: Clusters are joined up to this mean distance, in [0, 2].
    """
    return _join(vectors, threshold, "distance") if len(vectors) <= _SMALL else _join_in_rounds(vectors, threshold)


def most_clusters(vectors: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the cluster of each vector, numbered as in `clusters`.

    Args:
        vectors: As in `clusters`.
        count: The most clusters, at least 1.
    """
    return _join(vectors, count, "maxclust")


def _join(vectors: NDArray[np.float64], limit: float, criterion: str) -> NDArray[np.int64]:
    """Return the cluster of each vector, by the matrix of all distances.

    Args:
        vectors: [N, dimensions].
        limit: The threshold of the criterion: a distance, or a number of clusters.
        criterion: The criterion of `scipy.cluster.hierarchy.fcluster`.
    """
    if len(vectors) < 2:
        return np.zeros(len(vectors), dtype=np.int64)
    units = _units(vectors)
    cosines = units @ units.T  # [N, N]
    distances = np.clip(1.0 - (cosines + cosines.T) / 2, 0.0, 2.0)  # the mean makes rounding symmetric
    np.fill_diagonal(distances, 0.0)
    joins = linkage(squareform(distances, checks=False), "average")
    return _number(fcluster(joins, limit, criterion=criterion))


def _join_in_rounds(vectors: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
    """Return the clusters of `_join` at a distance, by rounds that join all pairs of mutual nearest clusters.

    The tree is the same as with one join after another, because a joined cluster is no nearer to others than its nearer
    part (F. Murtagh, "A survey of recent advances in hierarchical clustering algorithms", 1983). For the same reason a
    cluster whose nearest cluster is too far stays as it is.
    """
    means, labels, sizes = np.unique(_units(vectors), axis=0, return_inverse=True, return_counts=True)
    labels = labels.reshape(-1)  # [N]: the cluster of each vector
    open_clusters = np.arange(len(means))  # clusters that may still be joined
    while len(open_clusters) > 1:
        nearest, distances = _nearest(means[open_clusters])
        places = np.arange(len(open_clusters))
        is_mutual = nearest[nearest] == places
        pairs = np.flatnonzero(is_mutual & (places < nearest) & (distances <= threshold))
        if len(pairs) == 0 and distances.min() <= threshold:  # rounding may leave no mutual pair: join the nearest
            pairs = np.array([distances.argmin()])
        kept, merged = open_clusters[pairs], open_clusters[nearest[pairs]]
        joined_sizes = sizes[kept] + sizes[merged]
        weighted_sums = means[kept] * sizes[kept, None] + means[merged] * sizes[merged, None]
        means[kept] = weighted_sums / joined_sizes[:, None]
        sizes[kept] = joined_sizes
        new_label = np.arange(len(means))
        new_label[merged] = kept
        labels = new_label[labels]
        open_clusters = np.setdiff1d(open_clusters[distances <= threshold], merged)
    return _number(labels)


def _nearest(means: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the index of the other mean vector that is nearest to each, and the distance to it."""
    nearest, cosines = np.zeros(len(means), np.int64), np.zeros(len(means))
    block_size = max(1, _MOST_PRODUCTS // len(means))
    for start in range(0, len(means), block_size):
        block = slice(start, start + block_size)
        products = means[block] @ means.T  # [block, means]
        rows = np.arange(len(products))
        products[rows, start + rows] = -np.inf  # no vector is its own nearest
        nearest[block] = products.argmax(axis=1)
        cosines[block] = products.max(axis=1)
    return nearest, np.clip(1.0 - cosines, 0.0, 2.0)


def _units(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return vectors of length 1, with one dimension more, in whose direction vectors of zeros point."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return np.hstack([units, lengths == 0])


def _number(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return labels as numbers from 0, in order of first appearance."""
    distinct, first_places, inverse = np.unique(labels, return_index=True, return_inverse=True)
    ranks = np.empty(len(distinct), dtype=np.int64)
    ranks[np.argsort(first_places)] = np.arange(len(distinct))
    return ranks[inverse]
