"""Clusters of near vectors: agglomerative clustering by average linkage on cosine distance.

Source: as ETS's code uses it (algorithm A7: average linkage, cosine, a distance threshold). Differs: a vector of zeros
has no direction, so its cosine is undefined. It is at distance 1 from all others, and at 0 from other vectors of zeros.
Memory grows with the square of the number of vectors: 10,000 vectors take about 1 GB.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist


def clusters(vectors: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
    """Return the cluster of each vector, numbered from 0 in order of first appearance.

    Args:
        vectors: The vectors, [N, dimensions], of any length.
        threshold: Clusters are joined up to this mean distance, in [0, 2].
    """
    return _join(vectors, threshold, "distance")


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
    distances = pdist(_units(vectors), "sqeuclidean") / 2  # of vectors of length 1: 1 less their cosine
    joins = linkage(distances, "average")
    return _number(fcluster(joins, limit, criterion=criterion))


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
