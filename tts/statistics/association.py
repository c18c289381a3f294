"""Association of a score with labels and with other quantities, such as length.

It is how well the score ranks within each problem, and whether it follows something else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, stats

from tts.errors import ConfigError
from tts.statistics.discrimination import scores_and_labels
from tts.statistics.proportions import LEVEL, Estimate
from tts.statistics.resampling import RESAMPLES, Floats, bootstrap, clustered_mean, number_clusters, ratio, vector

_NO_SPREAD = 1e-12  # mean square of ranks in [-1/2, 1/2] below which they are all alike but for rounding


def clustered_auc_within(
    scores: ArrayLike,
    labels: ArrayLike,
    clusters: ArrayLike,
    *,
    rng: np.random.Generator,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Return the mean over clusters of each one's own AUC.

    It shows how well a score ranks observations of one problem.

    The AUC of all observations together is also high for a score that only tells hard problems from easy ones. Such a
    score is of no use in choosing among samples of one problem.

    Args:
        scores: As in `roc_auc`.
        labels: As in `roc_auc`.
        clusters: [N], which problem each observation is of.
        rng: As in `clustered_mean`.
        level: As in `clustered_mean`.
        resamples: As in `clustered_mean`.

    Returns:
        In [0, 1]; its `num` is that of the clusters that have both labels, which are those it is of; NaN where none
        has.

    Raises:
        ConfigError: lengths that differ, a score that is not known, or another label.
    """
    score, label = scores_and_labels(scores, labels)
    at, _ = number_clusters(clusters, len(score))
    aucs = _aucs(score, label, at)
    known = aucs[~np.isnan(aucs)]
    return clustered_mean(known, rng=rng, level=level, resamples=resamples, bounds=(0, 1))


def clustered_correlation(
    first: ArrayLike,
    second: ArrayLike,
    clusters: ArrayLike,
    given: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Return Spearman's rank correlation with an interval from clusters drawn again.

    With `given` it is the correlation among observations of one kind.

    Idea: the sums behind a correlation are added up by cluster and kind, so that a resample is one product of matrices.
        Kinds are held fixed by taking each one's mean out of its observations: with two kinds that is the partial
        correlation given an indicator, with a kind for each problem the correlation within problems.
    Differs: ranks are those among all observations, and are not made anew for a resample.

    Args:
        first: [N], one value of each observation.
        second: [N], the other value of each observation.
        clusters: [N], which problem each observation is of.
        given: [N], the kind of each, such as whether it is right, by whatever numbers.
        rng: As in `bootstrap`.
        level: As in `bootstrap`.
        resamples: As in `bootstrap`.

    Returns:
        In [-1, 1]; NaN where one of the two does not vary (within a kind).

    Raises:
        ConfigError: lengths that differ, or a value that is not known.
    """
    one, other = (stats.rankdata(vector(name, values)) for name, values in (("first", first), ("second", second)))
    _, at = np.unique(np.asarray(clusters), return_inverse=True)
    _, kind = np.unique(np.zeros(len(one)) if given is None else np.asarray(given), return_inverse=True)
    if not len(one) == len(other) == len(at) == len(kind):
        raise ConfigError(
            f"first, second, clusters and given are of lengths {len(one)}, {len(other)}, {len(at)} and {len(kind)}"
        )
    if not len(one):
        return bootstrap(lambda counts: counts[:, 0], 0, rng, level=level, resamples=resamples)
    x, y = (ranks / len(ranks) - 0.5 for ranks in (one, other))
    num_clusters = int(at.max()) + 1
    if len(np.unique(at * (kind.max() + 1) + kind)) == kind.max() + 1:  # each kind is of one cluster, whatever is drawn
        x, y = (values - (np.bincount(kind, values) / np.bincount(kind))[kind] for values in (x, y))
        moments = np.stack(
            [np.bincount(at, values, num_clusters) for values in (np.ones(len(x)), x * x, y * y, x * y)], axis=1
        )
        return bootstrap(
            lambda counts: _quotient(*(counts @ moments).T),
            num_clusters,
            rng,
            level=level,
            resamples=resamples,
            width=4,
        )
    num_kinds = int(kind.max()) + 1
    size, sum_x, sum_y, xx, yy, xy = (
        sparse.csr_array((values, (at, kind)), (num_clusters, num_kinds))
        for values in (np.ones(len(x)), x, y, x * x, y * y, x * y)
    )

    def correlation(counts: Floats) -> Floats:
        n, left, right = counts @ size, counts @ sum_x, counts @ sum_y  # [R, kinds]
        divisor = np.where(n > 0, n, 1)
        sums = (counts @ xx - left**2 / divisor, counts @ yy - right**2 / divisor, counts @ xy - left * right / divisor)
        return _quotient(n.sum(axis=1), *(each.sum(axis=1) for each in sums))

    return bootstrap(correlation, num_clusters, rng, level=level, resamples=resamples, width=6 * num_kinds)


def _quotient(n: Floats, xx: Floats, yy: Floats, xy: Floats) -> Floats:
    """Return correlations from sums of squares and products about their means, [R].

    A correlation is NaN where one side does not vary.
    """
    varied = np.minimum(xx, yy) > _NO_SPREAD * n
    return ratio(xy, np.where(varied, np.sqrt(np.maximum(xx * yy, 0)), 0))


def _aucs(score: Floats, label: Floats, at: NDArray[np.int64]) -> Floats:
    """Return the AUC of each cluster, [P]: ranks are counted from each one's beginning, ties by their mean."""
    if not len(score):
        return np.zeros(0)
    order = np.lexsort((score, at))
    score, label, at = score[order], label[order], at[order]
    # of levels of one score and cluster
    starts = np.flatnonzero(np.r_[True, (at[1:] != at[:-1]) | (score[1:] != score[:-1])])
    sizes = np.diff(np.r_[starts, len(score)])
    ranks = np.repeat(starts + (sizes + 1) / 2, sizes) - np.searchsorted(at, at)
    positives, num = np.bincount(at, label), np.bincount(at).astype(np.float64)
    return ratio(np.bincount(at, ranks * label) - positives * (positives + 1) / 2, positives * (num - positives))
