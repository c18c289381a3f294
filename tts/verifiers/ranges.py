"""The range of a verifier's scores, also where it is not stated."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tts.blame import Blame
from tts.errors import VerifierError
from tts.verifiers.base import Verifier, traits_of


def range_of(verifier: Verifier, scores: NDArray[np.float64]) -> tuple[float, float]:
    """Return the range by which scores are mapped: the verifier's.

    Where no range is stated, the result is [0, 1] if all known scores lie there, else unbounded.
    """
    with Blame(f"the verifier {verifier.name!r}", VerifierError):
        if not traits_of(verifier).range_by_scores:
            return verifier.range
    known = scores[~np.isnan(scores)]
    return (0.0, 1.0) if bool(((known >= 0) & (known <= 1)).all()) else (-math.inf, math.inf)
