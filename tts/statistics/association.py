"""Association of a score with labels and with other quantities, such as length.

It is how well the score ranks within each problem, and whether it follows something else.
"""

from __future__ import annotations

from typing import Any

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
    """Return the mean over clusters of the AUC within each cluster.

    The mean shows how well a score ranks observations of one problem.

    The AUC of all observations together is also high for a score that only tells hard problems from easy ones. Such a
    score is of no use in choosing among samples of one problem.

    Args:
        scores: As in `roc_auc`.
        labels: As in `roc_auc`.
        clusters: [N], the problem of each observation.
        rng: As in `clustered_mean`.
        level: As in `clustered_mean`.
        resamples: As in `clustered_mean`.

    Returns:
        The mean in [0, 1] over clusters that have both labels, and their number as `num`; NaN where no cluster has
        both.

    Raises:
        ConfigError: lengths that differ, a score that is not known, or another label.
    """
    score_values, label_values = scores_and_labels(scores, labels)
    cluster_of, _ = number_clusters(clusters, len(score_values))
    aucs = _aucs(score_values, label_values, cluster_of)
    known_aucs = aucs[~np.isnan(aucs)]
    return clustered_mean(known_aucs, rng=rng, level=level, resamples=resamples, bounds=(0, 1))


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

    With `given` the result is the partial correlation: among observations of one kind.

    Idea: the sums behind a correlation are added up by cluster and kind, so that a resample is one product of matrices.
        Kinds are held fixed by taking the mean of a kind out of its observations. With two kinds the result is the
        partial correlation given an indicator, with a kind for each problem the correlation within problems.
    Differs: ranks are those among all observations, and are not made anew for a resample.

    Args:
        first: [N], one value of each observation.
        second: [N], the other value of each observation.
        clusters: [N], the problem of each observation.
        given: [N], the kind of each observation as any number, such as 1 for right; None: all are of one kind.
        rng: As in `bootstrap`.
        level: As in `bootstrap`.
        resamples: As in `bootstrap`.

    Returns:
        A correlation in [-1, 1]; NaN where `first` or `second` does not vary within kinds.

    Raises:
        ConfigError: lengths that differ, or a value that is not known.
    """
    x_ranks, y_ranks = stats.rankdata(vector("first", first)), stats.rankdata(vector("second", second))
    _, cluster_of = np.unique(np.asarray(clusters), return_inverse=True)
    kinds = np.zeros(len(x_ranks)) if given is None else np.asarray(given)
    _, kind_of = np.unique(kinds, return_inverse=True)
    lengths = [len(x_ranks), len(y_ranks), len(cluster_of), len(kind_of)]
    if len(set(lengths)) > 1:
        raise ConfigError(
            f"first, second, clusters and given are of lengths {', '.join(map(str, lengths[:3]))} and {lengths[3]}"
        )
    if not len(x_ranks):
        return bootstrap(lambda counts: counts[:, 0], 0, rng, level=level, resamples=resamples)
    x, y = x_ranks / len(x_ranks) - 0.5, y_ranks / len(y_ranks) - 0.5
    num_clusters, num_kinds = int(cluster_of.max()) + 1, int(kind_of.max()) + 1
    if len(np.unique(cluster_of * num_kinds + kind_of)) == num_kinds:  # each kind lies within one cluster
        x, y = _without_kind_means(x, kind_of), _without_kind_means(y, kind_of)
        products = (np.ones(len(x)), x * x, y * y, x * y)  # in the order of the parameters of `_quotient`
        moments = np.stack([np.bincount(cluster_of, values, num_clusters) for values in products], axis=1)
        return bootstrap(
            lambda counts: _quotient(*(counts @ moments).T),
            num_clusters,
            rng,
            level=level,
            resamples=resamples,
            width=4,
        )

    def sum_by_kind(values: Floats) -> Any:  # a sparse table [clusters, kinds]
        return sparse.csr_array((values, (cluster_of, kind_of)), (num_clusters, num_kinds))

    sizes, x_sums, y_sums = sum_by_kind(np.ones(len(x))), sum_by_kind(x), sum_by_kind(y)
    xx_sums, yy_sums, xy_sums = sum_by_kind(x * x), sum_by_kind(y * y), sum_by_kind(x * y)

    def correlation(counts: Floats) -> Floats:
        n, x_sum, y_sum = counts @ sizes, counts @ x_sums, counts @ y_sums  # [R, kinds]
        divisor = np.where(n > 0, n, 1)
        xx = counts @ xx_sums - x_sum**2 / divisor
        yy = counts @ yy_sums - y_sum**2 / divisor
        xy = counts @ xy_sums - x_sum * y_sum / divisor
        return _quotient(n.sum(axis=1), xx.sum(axis=1), yy.sum(axis=1), xy.sum(axis=1))

    return bootstrap(correlation, num_clusters, rng, level=level, resamples=resamples, width=6 * num_kinds)


def _without_kind_means(values: Floats, kind_of: NDArray[np.int64]) -> Floats:
    means = np.bincount(kind_of, values) / np.bincount(kind_of)
    return values - means[kind_of]


def _quotient(n: Floats, xx: Floats, yy: Floats, xy: Floats) -> Floats:
    """Return correlations from sums of squares and products about their means, [R].

    A correlation is NaN where one side does not vary.
    """
    varies = np.minimum(xx, yy) > _NO_SPREAD * n
    return ratio(xy, np.where(varies, np.sqrt(np.maximum(xx * yy, 0)), 0))


def _aucs(scores: Floats, labels: Floats, cluster_of: NDArray[np.int64]) -> Floats:
    """Return the AUC of each cluster, [P], by ranks within the cluster; tied scores have their mean rank."""
    if not len(scores):
        return np.zeros(0)
    order = np.lexsort((scores, cluster_of))
    scores, labels, cluster_of = scores[order], labels[order], cluster_of[order]
    # a level: the observations of one cluster with one score
    starts = np.flatnonzero(np.r_[True, (cluster_of[1:] != cluster_of[:-1]) | (scores[1:] != scores[:-1])])
    sizes = np.diff(np.r_[starts, len(scores)])
    # the mean rank of each level among all observations, less the observations of earlier clusters
    ranks = np.repeat(starts + (sizes + 1) / 2, sizes) - np.searchsorted(cluster_of, cluster_of)
    positives, cluster_sizes = np.bincount(cluster_of, labels), np.bincount(cluster_of).astype(np.float64)
    # pairs of a cluster in which the positive scores higher
    wins = np.bincount(cluster_of, ranks * labels) - positives * (positives + 1) / 2
    return ratio(wins, positives * (cluster_sizes - positives))
