"""Evidence of a problem's difficulty besides votes and verdicts.

It is a guess, log-probabilities, or a probe of the prompt.

Idea: every estimator answers one question, how likely what it read is on each kind of problem, so that all of them are
    added up, and to votes and verdicts, in one posterior (`ProblemStates.evidence`). A gauge reads one number, a probe
    makes such a number of the policy's hidden state; both are fitted to problems whose difficulty is known as a
    posterior. What is not known is no evidence.
Source: one number for a problem's difficulty is that of algorithm A14 (Snell et al. 2408.03314), which has mean scores
for it; `auto`
    lets scores weigh votes instead. A linear head on the hidden state of the prompt's last token is the predictor of
    A16 (Damani et al. 2410.04707) and B18, which have a small network in its place. The laws of readings are our
    choice.

Shapes: P problems, Z kinds, G success rates, D width of hidden states.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike

from tts.allocator.difficulty import RATES, Floats, Population
from tts.allocator.ridge import ridge
from tts.errors import ConfigError
from tts.renamed import refuse_old_members

# that `auto` makes: mean log-probability of the samples so far, and the probe of the prompt
Reading = Literal["logprob", "probe"]
READINGS = get_args(Reading)
_ROUNDS = 50


class Estimator(Protocol):
    """A source of evidence of difficulty."""

    def evidence(self, population: Population, reading: Floats, samples: Floats) -> Floats:
        """Return the log-likelihood [P, Z], up to a constant a problem; 0 where the reading is NaN.

        Args:
            population: Its kinds; their weights play no part.
            reading: [P].
            samples: [P], that the reading is a mean of.
        """
        ...


@dataclass(frozen=True, slots=True)
class Guess:
    """A guess of the success rate: as good as so many samples, of which that share was right.

    Args:
        mean: The mean in (0, 1).
        strength: Samples, above 0.

    Raises:
        ConfigError: a value is outside its range.
    """

    mean: float
    strength: float = 4.0

    def __post_init__(self) -> None:
        if not (0 < self.mean < 1 and 0 < self.strength < math.inf):
            raise ConfigError(
                f"mean is {self.mean} and strength {self.strength}, but must be in (0, 1) and a number above 0"
            )

    def evidence(self, population: Population, reading: Floats, samples: Floats) -> Floats:
        """Return the same for every problem, whatever was read."""
        del samples
        rate = np.clip(population.rate, 1e-6, 1 - 1e-6)  # a guess rules nothing out
        known = self.mean * np.log(rate) + (1 - self.mean) * np.log1p(-rate)
        return np.broadcast_to(self.strength * known, (len(reading), len(rate)))


@refuse_old_members
@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that is linear in the angle of the success rate, with normal errors.

    It rises or falls with the success rate; `RATES` has the angle.

    Args:
        intercept: The reading of the line at angle 0, which is that of a problem that is never right.
        slope: What the line gains up to angle 1, which is that of a problem that is always right.
        deviation: Standard error of a problem around it, above 0.
        spread: Standard deviation of one sample's reading within a problem; its share falls with their number.
        low: The least reading that it was fitted to. Readings below count as this one, so that an extreme reading is no
            stronger evidence.
        high: The greatest reading that it was fitted to. Readings above count as this one.
    """

    intercept: float
    slope: float
    deviation: float
    spread: float
    low: float
    high: float

    def __post_init__(self) -> None:
        values = dataclasses.astuple(self)
        if not all(map(math.isfinite, values)) or self.deviation <= 0 or self.spread < 0 or self.low > self.high:
            raise ConfigError(
                f"a gauge has the numbers {values}, but they must be finite, with a deviation above 0 and low <= high"
            )

    @classmethod
    def fit(cls, reading: ArrayLike, posterior: Floats, *, spread: float = 0.0, samples: float = 1.0) -> Gauge:
        """Return the gauge of maximum likelihood for readings.

        It is found by expectation and maximisation over the problems' success rates.

        Args:
            reading: [P]; NaN: unknown.
            posterior: [P, G] over `RATES`, from what is known without the reading.
            spread: The spread of one sample's reading within a problem.
            samples: The number of samples that each reading is a mean of.

        Raises:
            ConfigError: fewer than three readings are known, or all are the same.
        """
        values = np.asarray(reading, np.float64)
        known = np.isfinite(values)
        x, prior, angle = values[known], np.asarray(posterior, np.float64)[known], _angle(RATES)
        if len(x) < 3 or np.ptp(x) == 0:
            raise ConfigError(
                f"there are {len(x)} readings, {len(np.unique(x))} of them different, but a gauge needs 3, not all "
                "the same"
            )
        weight, least = prior, 1e-3 * float(x.std())
        intercept = slope = deviation = 0.0
        for _ in range(_ROUNDS):
            mean, square = weight @ angle, weight @ angle**2
            variance = square.mean() - mean.mean() ** 2
            slope = float(((x * mean).mean() - x.mean() * mean.mean()) / variance) if variance > 1e-12 else 0.0
            intercept = float(x.mean() - slope * mean.mean())
            error = (weight * (x[:, None] - intercept - slope * angle) ** 2).sum(axis=1)
            deviation = max(least, math.sqrt(float(error.mean())))
            near = np.log(np.maximum(prior, 1e-300)) - (x[:, None] - intercept - slope * angle) ** 2 / (
                2 * deviation**2
            )
            weight = np.exp(near - near.max(axis=1, keepdims=True))
            weight /= weight.sum(axis=1, keepdims=True)
        between = max(least, math.sqrt(max(0.0, deviation**2 - spread**2 / samples)))
        return cls(intercept, slope, between, spread, float(x.min()), float(x.max()))

    def evidence(self, population: Population, reading: Floats, samples: Floats) -> Floats:
        """Return the normal log-likelihood of each reading."""
        variance = self.deviation**2 + self.spread**2 / np.maximum(1.0, samples)
        error = np.clip(reading, self.low, self.high)[:, None] - self.intercept - self.slope * _angle(population.rate)
        return np.where(np.isfinite(reading)[:, None], -(error**2) / (2 * variance[:, None]), 0.0)


@refuse_old_members
@dataclass(frozen=True, slots=True, eq=False)
class PromptProbe:
    """A linear reading of the policy's hidden state at the end of the prompt, before any sample.

    It is the expected angle of the problem's success rate.

    Args:
        weight: [D].
        bias: Added.

    Cost: one forward pass of the prompt's last token, where the backend has not kept it; charged as input.
    """

    weight: Floats
    bias: float

    @classmethod
    def fit(cls, hidden: ArrayLike, posterior: Floats) -> tuple[PromptProbe, Floats]:
        """Return the probe by ridge regression, and its reading of each problem when fitted to all others.

        The penalty is the one whose predictions of problems left out are best; these predictions, [P], are what a gauge
        is fitted to.

        Args:
            hidden: [P, D].
            posterior: [P, G] over `RATES`.

        Raises:
            ConfigError: there are fewer than ten problems, or a state is no number.
        """
        weight, bias, says = ridge(hidden, np.asarray(posterior, np.float64) @ _angle(RATES), "hidden")
        return cls(weight, bias), says

    def reading(self, hidden: Floats) -> Floats:
        """Return the reading of each state [P, D]; NaN where a state is of another width."""
        if hidden.shape[-1] != len(self.weight):
            return np.full(len(hidden), math.nan)
        return hidden @ self.weight + self.bias


def evidence_of(
    estimators: Mapping[str, Estimator], population: Population, readings: Mapping[str, Floats], samples: Floats
) -> Floats | None:
    """Return the sum of the estimators' log-likelihoods, [P, Z]; None: there are none.

    Args:
        estimators: The estimators by the name of what they read, or any other name where they read nothing.
        population: The population, with Z difficulties.
        readings: [P] each, NaN where unknown.
        samples: [P], drawn.
    """
    found: Floats | None = None
    for name, one in estimators.items():
        each = one.evidence(population, readings.get(name, np.full(len(samples), math.nan)), samples)
        found = each if found is None else found + each
    return found


def to_data(gauges: Mapping[str, Gauge], probe: PromptProbe | None) -> dict[str, Any]:
    """Return gauges and a probe as JSON has them."""
    data: dict[str, Any] = {
        name: [round(value, 6) for value in dataclasses.astuple(one)] for name, one in gauges.items()
    }
    return {
        "gauges": data,
        "probe": None if probe is None else [float(f"{v:.6g}") for v in (*probe.weight.tolist(), probe.bias)],
    }


def _angle(rate: Floats) -> Floats:
    return np.arcsin(np.sqrt(rate)) * (2 / np.pi)
