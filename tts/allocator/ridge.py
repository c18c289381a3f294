"""Ridge regression whose penalty is chosen by the error on rows left out, one at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from tts.allocator.difficulty import Floats
from tts.errors import ConfigError

_PENALTIES = np.geomspace(1e-3, 1e5, 25)


def ridge(rows: ArrayLike, wanted: Floats, name: str) -> tuple[Floats, float, Floats]:
    """Return the weights [D] and the bias of a ridge regression, and predictions of rows left out, [P].

    The prediction of a row is that of a fit to all other rows. The penalty is the one with the best such predictions.

    Args:
        rows: The features of each problem, [P, D].
        wanted: The value of each problem, [P].
        name: The name of the rows, for messages.

    Raises:
        ConfigError: there are fewer than ten problems, or an entry is no number.
    """
    x = np.asarray(rows, np.float64)
    if x.ndim != 2 or len(x) < 10 or not np.isfinite(x).all():
        raise ConfigError(
            f"{name} is of shape {x.shape}, but must be numbers [problems, width] of at least 10 problems"
        )
    center, scale = x.mean(axis=0), float(x.std()) or 1.0
    x, y = (x - center) / scale, wanted - wanted.mean()
    eigenvalues, eigenvectors = np.linalg.eigh(x @ x.T)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    projection = eigenvectors.T @ y
    best_error, best_penalty, best_predictions = math.inf, 1.0, y
    for penalty in _PENALTIES:
        shrinkage = eigenvalues / (eigenvalues + penalty)
        leverage = (eigenvectors**2) @ shrinkage + 1 / len(y)  # the diagonal of the hat matrix, with the intercept
        residual = y - eigenvectors @ (shrinkage * projection)
        predictions = y - residual / np.maximum(1e-9, 1 - leverage)  # of each row by a fit to all others
        error = float(((predictions - y) ** 2).mean())
        if error < best_error:
            best_error, best_penalty, best_predictions = error, float(penalty), predictions
    weight = x.T @ (eigenvectors @ (projection / (eigenvalues + best_penalty))) / scale
    return weight, float(wanted.mean() - center @ weight), best_predictions + wanted.mean()
