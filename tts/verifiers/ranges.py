"""The range of a verifier's scores, also where it is not stated."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tts.blame import Blame
from tts.errors import VerifierError
from tts.verifiers.base import Verifier, traits_of


def range_of(verifier: Verifier, scores: NDArray[np.float64]) -> tuple[float, float]:
    """Return the verifier's range, by which scores are mapped.

    For a verifier without a stated range, the result is [0, 1] if all known scores lie there, else unbounded.
    """
    with Blame(f"the verifier {verifier.name!r}", VerifierError):
        if not traits_of(verifier).range_by_scores:
            return verifier.range
    known_scores = scores[~np.isnan(scores)]
    are_in_unit_range = bool(((known_scores >= 0) & (known_scores <= 1)).all())
    return (0.0, 1.0) if are_in_unit_range else (-math.inf, math.inf)
