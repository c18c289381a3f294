"""Scaling curves: accuracy against what it cost, with what is needed to draw one and to compare two.

Shapes: B points, P problems.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError, unknown_name
from tts.statistics import Estimate, clustered_mean
from tts.types import Usage

Floats = NDArray[np.float64]
Kind = Literal["live", "replayed"]
Role = Literal["strategy", "uniform", "allocator", "oracle"]


@dataclass(frozen=True, slots=True)
class Axis:
    """Something that accuracy is drawn against.

    Args:
        title: of the axis. unit: as it stands after a number in a sentence. of: reads it from a usage; None: unknown.
    """

    title: str
    unit: str
    of: Callable[[Usage], float | None]


# Costs of one problem. What was cancelled was computed, so it counts.
AXES: Final[Mapping[str, Axis]] = {
    "samples": Axis("samples per problem", "samples", lambda usage: usage.samples),
    "generated_tokens": Axis(
        "generated tokens per problem", "generated tokens", lambda usage: usage.generated_tokens + usage.cancelled_tokens
    ),
    "tokens": Axis("tokens per problem, verifier included", "tokens", lambda usage: usage.tokens),
    "verifier_tokens": Axis("verifier tokens per problem", "verifier tokens", lambda usage: usage.verifier_tokens),
    "flops": Axis("FLOPs per problem, prompts included", "FLOPs", lambda usage: usage.flops),
    "seconds": Axis("seconds per problem (critical path, waiting included)", "seconds", lambda usage: usage.seconds),
    "work_seconds": Axis("seconds of work per problem", "seconds of work", lambda usage: usage.work_seconds),
    "usd": Axis("dollars per problem", "dollars", lambda usage: usage.usd),
    "kv_bytes": Axis("bytes of keys and values at the peak", "KV bytes", lambda usage: usage.peak_kv_bytes),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """One line of a figure: a strategy at several budgets, on the same problems.

    Args:
        label: what it is called in a legend. dataset, model, verifier: what it was measured with; verifier "none": there is none.
        costs: by name in `AXES`, the mean cost of a problem at each point, [B]; an axis that is unknown for the curve is left out.
        accuracy: at each point, with an interval over problems (`accuracies`).
        shares: [B, P], how often a problem was solved at a point: its mean over seeds; NaN: it was not run there.
        problems: [P], their ids: two curves are compared on the ids they share. seeds: of the runs, or of the recorded pools.
        kind: "live": each point is a run. "replayed": points are computed from recorded samples.
        role: "uniform", "allocator" and "oracle" are drawn as reference lines. group: what small multiples are drawn by.
        failed: runs that failed and are in no point. strategy: its text, where the label says more.
        units, setting: what tells it from curves of the same strategy beside model and verifier: limits of its budgets; see `Cell`.
    """

    label: str
    dataset: str
    model: str
    verifier: str = "none"
    costs: Mapping[str, Floats]
    accuracy: Sequence[Estimate]
    shares: Floats
    problems: Sequence[str]
    seeds: Sequence[int]
    kind: Kind = "live"
    role: Role = "strategy"
    group: str | None = None
    failed: int = 0
    strategy: str = ""
    units: str = ""
    setting: str = ""

    def __post_init__(self) -> None:
        shape = (len(self.accuracy), len(self.problems))
        if self.shares.shape != shape:
            raise ConfigError(f"shares is of shape {self.shares.shape}, but must be of {shape}: points, problems")
        for name, cost in self.costs.items():
            if name not in AXES or cost.shape != shape[:1]:
                raise ConfigError(f"costs has {name!r} of shape {cost.shape}, but must have one value a point under a name in AXES")

    def cost(self, axis: str) -> Floats:
        """Return the mean cost of a problem at each point, [B].

        Raises:
            ConfigError: there is no such axis, or it is unknown for this curve.
        """
        if axis not in AXES:
            raise unknown_name("axis", axis, AXES)
        if axis not in self.costs:
            raise ConfigError(f"axis is {axis!r}, but that is unknown for {self.label!r}", hint=_known(self.costs))
        return self.costs[axis]


def _known(costs: Mapping[str, Floats]) -> str:
    return f"known for it: {', '.join(name for name in AXES if name in costs)}"


def accuracies(shares: Floats, rng: np.random.Generator) -> tuple[Estimate, ...]:
    """Return the accuracy at each point of shares [B, P]; problems that are NaN do not count."""
    return tuple(accuracy(row[~np.isnan(row)], rng) for row in shares)


def accuracy(shares: Sequence[float] | Floats, rng: np.random.Generator) -> Estimate:
    """Return the accuracy of tables, curves and replays alike: the mean over problems of each one's mean over seeds, with an interval
    over problems. So a problem counts once, however many of its runs are finished.

    Args:
        shares: [P], how often each problem was solved.

    Random: a copy of the generator, so that equal shares, in any order, have equal intervals wherever they are shown.
    """
    return clustered_mean(np.sort(shares), rng=copy.deepcopy(rng), bounds=(0.0, 1.0))
