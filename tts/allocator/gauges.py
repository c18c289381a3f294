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

# that `auto` makes: mean log-probability of the samples so far, and the probe of the prompt
Reading = Literal["logprob", "probe"]
READINGS = get_args(Reading)
_ROUNDS = 50


class Estimator(Protocol):
    """A source of evidence of difficulty."""

    def evidence(self, population: Population, reading: Floats, samples: Floats) -> Floats:
        """Return the log-likelihood [P, Z], up to a constant a problem; 0 where the reading is NaN.

        Args:
            population: The population, of which only the kinds count, not their weights.
            reading: The reading of each problem, [P].
            samples: The number of samples that each reading is a mean of, [P].
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
            reading: The reading of each problem, [P]; NaN: unknown.
            posterior: The posterior of each problem over `RATES` without the reading, [P, G].
            spread: The standard deviation of one sample's reading within a problem.
            samples: The number of samples that each reading is a mean of.

        Raises:
            ConfigError: fewer than three readings are known, or all are the same.
        """
        values = np.asarray(reading, np.float64)
        is_known = np.isfinite(values)
        x, prior = values[is_known], np.asarray(posterior, np.float64)[is_known]
        angle = _angle(RATES)  # [G]
        if len(x) < 3 or np.ptp(x) == 0:
            raise ConfigError(
                f"there are {len(x)} readings, {len(np.unique(x))} of them different, but a gauge needs 3, not all "
                "the same"
            )
        weight = prior  # [P, G], the posterior of each problem with its reading
        least_deviation = 1e-3 * float(x.std())
        intercept = slope = deviation = 0.0
        for _ in range(_ROUNDS):
            mean_angle, mean_square = weight @ angle, weight @ angle**2  # [P] each
            variance = mean_square.mean() - mean_angle.mean() ** 2
            covariance = (x * mean_angle).mean() - x.mean() * mean_angle.mean()
            slope = float(covariance / variance) if variance > 1e-12 else 0.0
            intercept = float(x.mean() - slope * mean_angle.mean())
            square_error = (x[:, None] - intercept - slope * angle) ** 2  # [P, G]
            mean_error = (weight * square_error).sum(axis=1)
            deviation = max(least_deviation, math.sqrt(float(mean_error.mean())))
            log_weight = np.log(np.maximum(prior, 1e-300)) - square_error / (2 * deviation**2)
            weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
            weight /= weight.sum(axis=1, keepdims=True)
        deviation_between = max(least_deviation, math.sqrt(max(0.0, deviation**2 - spread**2 / samples)))
        return cls(
            intercept=intercept,
            slope=slope,
            deviation=deviation_between,
            spread=spread,
            low=float(x.min()),
            high=float(x.max()),
        )

    def evidence(self, population: Population, reading: Floats, samples: Floats) -> Floats:
        """Return the normal log-likelihood of each reading."""
        variance = self.deviation**2 + self.spread**2 / np.maximum(1.0, samples)
        error = np.clip(reading, self.low, self.high)[:, None] - self.intercept - self.slope * _angle(population.rate)
        return np.where(np.isfinite(reading)[:, None], -(error**2) / (2 * variance[:, None]), 0.0)


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

        The penalty is the one with the best predictions of problems left out. A gauge is fitted to these predictions.

        Args:
            hidden: The hidden state of each problem, [P, D].
            posterior: The posterior of each problem over `RATES`, [P, G].

        Returns:
            The probe, and the readings, [P].

        Raises:
            ConfigError: there are fewer than ten problems, or a state has an entry that is no number.
        """
        expected_angle = np.asarray(posterior, np.float64) @ _angle(RATES)
        weight, bias, left_out_readings = ridge(hidden, expected_angle, "hidden")
        return cls(weight, bias), left_out_readings

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
        estimators: The estimators by the name of their reading; an estimator without a reading has any other name.
        population: The population, with Z difficulties.
        readings: The readings of the problems by name, [P] each; NaN where unknown.
        samples: The samples of each problem, [P].
    """
    total: Floats | None = None
    for name, estimator in estimators.items():
        reading = readings.get(name, np.full(len(samples), math.nan))
        evidence = estimator.evidence(population, reading, samples)
        total = evidence if total is None else total + evidence
    return total


def to_data(gauges: Mapping[str, Gauge], probe: PromptProbe | None) -> dict[str, Any]:
    """Return gauges and a probe as JSON has them."""
    gauge_numbers = {name: [round(value, 6) for value in dataclasses.astuple(gauge)] for name, gauge in gauges.items()}
    numbers = [] if probe is None else [float(f"{value:.6g}") for value in (*probe.weight.tolist(), probe.bias)]
    return {"gauges": gauge_numbers, "probe": numbers or None}


def _angle(rate: Floats) -> Floats:
    return np.arcsin(np.sqrt(rate)) * (2 / np.pi)
