"""Step scores to one score: last, minimum, product, mean, or the verifier's own score of the whole.

Source: the aggregations of Snell et al. (2408.03314) and Puri et al. (2502.01618); "model" is one score of the whole
partial answer. Differs: a score of the whole (an outcome verifier) is its own aggregate under every name. An empty
list of steps is unknown (NaN), where others write -1 or 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tts.checks import check_text
from tts.errors import ConfigError, unknown_name
from tts.verifiers.base import StepScores

AGGREGATIONS: Mapping[str, Callable[[tuple[float, ...]], float]] = {
    "last": lambda steps: steps[-1],
    "min": min,
    "prod": math.prod,
    "mean": lambda steps: math.fsum(steps) / len(steps),
}


def check_aggregate(name: str) -> None:
    """Raise ConfigError for a name that is no aggregation."""
    check_text("aggregate", name)
    if name != "model" and name not in AGGREGATIONS:
        raise unknown_name("aggregate", name, [*AGGREGATIONS, "model"])


def aggregate_scores(scores: StepScores, how: str) -> float:
    """Return one score; NaN without steps, and where an unknown step score counts.

    Args:
        scores: The scores of the steps, or of the whole.
        how: The name of the aggregation.

    Raises:
        ConfigError: "model" is asked of a verifier that only scores steps.
    """
    if scores.steps is None or how == "model":
        if scores.whole is None:
            raise ConfigError(
                "aggregate is 'model', but the verifier does not score the whole", hint="use last, min, prod or mean"
            )
        return scores.whole
    has_unknown = any(map(math.isnan, scores.steps))
    if not scores.steps or (has_unknown and how != "last"):
        return math.nan
    return AGGREGATIONS[how](scores.steps)
