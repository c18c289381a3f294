"""The range of a verifier's scores, also where it is not stated."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tts._common.blame import Blame
from tts.errors import ConfigError, VerifierError
from tts.verifiers.base import Verifier, is_half_infinite, traits_of


def range_of(verifier: Verifier, scores: NDArray[np.float64]) -> tuple[float, float]:
    """Return the verifier's range, by which scores are mapped.

    For a verifier without a stated range, the known scores decide: [0, 1] if all lie there, from 0 on if none is below
    0, else unbounded.
    """
    with Blame(f"the verifier {verifier.name!r}", VerifierError):
        if not traits_of(verifier).range_by_scores:
            return verifier.range
    known_scores = scores[~np.isnan(scores)]
    are_in_unit_range = bool(((known_scores >= 0) & (known_scores <= 1)).all())
    if are_in_unit_range:
        return 0.0, 1.0
    return (-math.inf if (known_scores < 0).any() else 0.0), math.inf


def no_scale(verifier: Verifier, bounds: tuple[float, float]) -> ConfigError:
    """Return the error that the scores of a verifier cannot be mapped to [0, 1] or to log-odds."""
    low, high = bounds
    cure = "FunctionVerifier(fn, range=(low, high))" if traits_of(verifier).range_by_scores else "odds=(scale, shift)"
    return ConfigError(
        f"the verifier {verifier.name!r} scores from {low:g} to {high:g}, which has no scale: between two such scores "
        "no step is large or small",
        hint=f"give it a range, by {cure}, or take the measure 'probability' of confidence; selections go by ranks",
    )


def check_scale(verifier: Verifier) -> None:
    """Raise ConfigError if a verifier states a range with one infinite end; see `no_scale`."""
    bounds = range_of(verifier, np.empty(0))
    if is_half_infinite(bounds):
        raise no_scale(verifier, bounds)
