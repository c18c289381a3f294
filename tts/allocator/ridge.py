"""Ridge regression whose penalty is chosen by the error on rows left out, one at a time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from tts.allocator.difficulty import Floats
from tts.errors import ConfigError

_PENALTIES = np.geomspace(1e-3, 1e5, 25)


def ridge(rows: ArrayLike, wanted: Floats, name: str) -> tuple[Floats, float, Floats]:
    """Return weights [D], a bias, and the prediction for each row by the fit to all others, [P].

    The penalty is the one whose predictions of rows left out are best.

    Args:
        rows: [P, D].
        wanted: [P].
        name: The name of the rows, for messages.

    Raises:
        ConfigError: there are fewer than ten problems, or a row has something that is no number.
    """
    x = np.asarray(rows, np.float64)
    if x.ndim != 2 or len(x) < 10 or not np.isfinite(x).all():
        raise ConfigError(
            f"{name} is of shape {x.shape}, but must be numbers [problems, width] of at least 10 problems"
        )
    center, scale = x.mean(axis=0), float(x.std()) or 1.0
    x, y = (x - center) / scale, wanted - wanted.mean()
    value, vector = np.linalg.eigh(x @ x.T)
    value, along = np.maximum(value, 0.0), vector.T @ y
    best, kept, says = math.inf, 1.0, y
    for penalty in _PENALTIES:
        share = value / (value + penalty)
        hat = (vector**2) @ share + 1 / len(y)
        left_out = y - (y - vector @ (share * along)) / np.maximum(1e-9, 1 - hat)
        if (error := float(((left_out - y) ** 2).mean())) < best:
            best, kept, says = error, float(penalty), left_out
    weight = x.T @ (vector @ (along / (value + kept))) / scale
    return weight, float(wanted.mean() - center @ weight), says + wanted.mean()
