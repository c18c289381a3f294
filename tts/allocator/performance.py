"""Performance models: what strategies achieve at each difficulty and size.

A model is measured once, kept as a small file, and read by the allocator.

Idea: a problem's difficulty is the policy's own success rate. For every strategy the model holds the share of right
    answers as a table over success rates and sizes, with its standard error. Sizes are counted in plain samples: what
    the strategy costs, divided by what one plain sample of the same problems costs; so models, and units of cost, can
    be compared. A strategy may name models beside the policy by their roles, `best_of_n(writer='large')`: the
    difficulty is the policy's, and the cost is at each model's price.
Source: algorithm A14 (Snell et al. 2408.03314) has five quantile bins, which `bins` keeps as the simplest form; A15
(Liu et al.
    2502.06703) has it that the best strategy depends on the verifier too, which is why a model names its verifiers. The
    smooth form, each problem counted at every success rate by its posterior, then made monotone, is our choice.

Shapes: G success rates, B sizes, P problems.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tts._common.files import read_small
from tts.allocator.difficulty import RATES, Floats, Population, Whole
from tts.allocator.gauges import Gauge, PromptProbe, to_data
from tts.allocator.performance_file import FORMAT, REFIT
from tts.errors import ConfigError, unknown_name

MOST: Final = 128  # size of the greatest table, in samples
# by which a strategy must beat `auto` with pilots: about a standard error of the difference on 400 problems
AHEAD: Final = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class PerformanceCurve:
    """The accuracy of one strategy.

    Args:
        sizes: What it spent on average, [B], rising, above 0, in plain samples.
        accuracy: The share of right answers at each of `RATES`, [G, B].
        error: The standard error of the accuracy, [G, B].
        limits: What it was allowed to spend, [B], in plain samples; None: what it spent. A search that ends by itself
            leaves a part.
        costs: What it spent at each of `RATES`, [G, B], in plain samples of such problems; None: `sizes` at every rate.
            A search that stops early on easy problems costs more on hard ones.
    """

    sizes: Floats
    accuracy: Floats
    error: Floats
    limits: Floats | None = None
    costs: Floats | None = None

    def to_data(self) -> dict[str, list[Any]]:
        """Return the curve as JSON has it."""
        data: dict[str, list[Any]] = {
            "sizes": _short(self.sizes),
            "accuracy": [_short(row) for row in self.accuracy],
            "error": [_short(row) for row in self.error],
        }
        if self.limits is not None:
            data["limits"] = _short(self.limits)
        if self.costs is not None:
            data["costs"] = [_short(row) for row in self.costs]
        return data


@dataclass(frozen=True, slots=True, eq=False)
class PilotedCurve:
    """The accuracy of `auto` with its pilots, on the problems of the fit.

    `tts fit` takes that of plain samples, where no strategy of the file searches.

    Args:
        limits: What it was allowed to spend on a problem, [B], rising, above 0, in plain samples.
        accuracy: The share of right answers, [B].
    """

    limits: Floats
    accuracy: Floats

    def to_data(self) -> dict[str, list[float]]:
        """Return it as JSON has it."""
        return {"limits": _short(self.limits), "accuracy": _short(self.accuracy)}


@dataclass(frozen=True, eq=False, kw_only=True)
class PerformanceModel:
    """What was measured of one policy with its verifiers on one task.

    Args:
        model: The policy's name.
        task: The task's.
        verifiers: The verifiers by role, as text.
        source: The study it was fitted to.
        problems: How many.
        tokens: The mean cost of one plain sample, in tokens.
        population: The population of the problems.
        curves: The curves by the strategy's text, with its selection and without its size.
        first: Temperature of the first sample of a problem, where one such was found better than one of the run's;
            None: the run's.
        models: Names of the models beside the policy that the strategies use, by role.
        unit: The unit of the cost that sizes compare, "tokens", "flops" or "usd".
        gauges: The gauges by what they read (`tts.allocator.gauges.READINGS`).
        probe: What makes the reading "probe".
        piloted: What `auto` reaches that begins with pilots; None: it was not measured, and `auto` always begins with
            them.
    """

    model: str
    task: str
    verifiers: Mapping[str, str]
    source: str
    problems: int
    tokens: float
    population: Population
    curves: Mapping[str, PerformanceCurve]
    first: float | None = None
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    unit: str = "tokens"
    gauges: Mapping[str, Gauge] = field(default_factory=dict[str, Gauge])
    probe: PromptProbe | None = None
    piloted: PilotedCurve | None = None
    _tables: dict[str, tuple[Whole, Floats]] = field(default_factory=dict[str, "tuple[Whole, Floats]"], repr=False)
    _costs: dict[str, Floats] = field(default_factory=dict[str, Floats], repr=False)

    def table(self, strategy: str) -> tuple[Whole, Floats]:
        """Return the sizes [B] of a strategy's table, and its accuracy [G, B] at each of them.

        The sizes are 0 to `MOST` samples, and greater sizes that were measured. The accuracy is interpolated in
        ln(size). It is constant beyond the greatest measured size, and rises from 0 in proportion below the least.

        Raises:
            ConfigError: the model has no curve of that strategy.
        """
        if strategy not in self._tables:
            if strategy not in self.curves:
                raise unknown_name("strategy of the performance model", strategy, list(self.curves))
            curve = self.curves[strategy]
            great_sizes = np.ceil(curve.sizes[curve.sizes > MOST]).astype(np.int64)
            sizes = np.union1d(np.arange(1, MOST + 1), great_sizes)
            accuracy = np.stack([np.interp(np.log(sizes), np.log(curve.sizes), row) for row in curve.accuracy])
            accuracy *= np.minimum(1.0, sizes / curve.sizes[0])
            accuracy_at_0 = np.zeros((len(accuracy), 1))
            self._tables[strategy] = np.insert(sizes, 0, 0), np.concatenate([accuracy_at_0, accuracy], axis=1)
        return self._tables[strategy]

    def cost(self, strategy: str) -> Floats | None:
        """Return the mean cost of a strategy at each success rate and size of its table, [G, B].

        The unit is plain samples. None: as far as is known, the cost is the size at every success rate.

        Raises:
            ConfigError: the model has no curve of that strategy.
        """
        sizes, _ = self.table(strategy)
        curve = self.curves[strategy]
        if curve.costs is None:
            return None
        if strategy not in self._costs:
            log_sizes = np.log(np.maximum(sizes, 1))
            measured_ratios = curve.costs / curve.sizes  # [G, measured sizes]
            ratios = np.stack([np.interp(log_sizes, np.log(curve.sizes), row) for row in measured_ratios])
            self._costs[strategy] = sizes.astype(np.float64) * ratios
        return self._costs[strategy]

    def limit(self, strategy: str, sizes: Whole) -> Floats:
        """Return the limits with which a strategy spends the given sizes on average.

        Limits and sizes are in plain samples.

        Raises:
            ConfigError: the model has no curve of that strategy.
        """
        self.table(strategy)
        curve = self.curves[strategy]
        if curve.limits is None:
            return sizes.astype(np.float64)
        ratios = np.interp(np.log(np.maximum(sizes, 1)), np.log(curve.sizes), curve.limits / curve.sizes)
        return sizes * ratios

    def direct(self, left: float, strategies: Sequence[str]) -> tuple[str, int] | None:
        """Return the strategy with a greater accuracy than `auto` with pilots, and its size in plain samples.

        Accuracies are means over the problems of the fit, at the same limit. A strategy must be ahead by `AHEAD`. None:
        there is no such strategy.

        Args:
            left: The credit of a problem, in plain samples. Below the least limit at which `auto` was measured,
                nothing is known.
            strategies: The texts of the possible strategies.
        """
        if self.piloted is None or left < self.piloted.limits[0]:
            return None
        best: tuple[str, int] | None = None
        best_accuracy = float(np.interp(math.log(left), np.log(self.piloted.limits), self.piloted.accuracy)) + AHEAD
        weight = self.population.weight.reshape(len(RATES), -1).sum(axis=1)  # of each of `RATES`
        for text in strategies:
            curve = self.curves[text]
            limits = curve.sizes if curve.limits is None else curve.limits
            accuracy = float(np.interp(math.log(left), np.log(limits), weight @ curve.accuracy))
            if left >= limits[0] and accuracy > best_accuracy:
                best, best_accuracy = (text, math.ceil(left)), accuracy  # the size is all the credit
        return best

    def fits(
        self, model: str, task: str, verifiers: Mapping[str, str], models: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """Return the reason why the performance model does not fit a run; "": it fits.

        Args:
            model: The name of the run's policy.
            task: The name of the run's task.
            verifiers: The run's verifiers by role, as text.
            models: The names of the run's models beside the policy, by role.
        """
        # each entry has what is named, the name at the fit, and the name in the run
        names: list[tuple[str, str, str | None]] = [("model", self.model, model), ("task", self.task, task)]
        names += [
            (f"model of the role {role!r},", fitted_name, models.get(role)) for role, fitted_name in self.models.items()
        ]
        for kind, fitted_name, run_name in names:
            if fitted_name != run_name:
                return f"it was fitted to the {kind} {fitted_name!r}, and this is {run_name!r}"
        if dict(self.verifiers) != dict(verifiers):
            return (
                f"it was fitted with the verifiers {_verifier_words(self.verifiers)}, and these are "
                f"{_verifier_words(verifiers)}"
            )
        return ""

    def to_json(self) -> str:
        """Return the model as JSON, a few kilobytes a strategy."""
        data: dict[str, Any] = {
            "format": FORMAT,
            "model": self.model,
            "task": self.task,
            "verifiers": dict(self.verifiers),
            "source": self.source,
            "problems": self.problems,
            "tokens": self.tokens,
            "first": self.first,
        }
        if self.models:
            data["models"] = dict(self.models)
            data["unit"] = self.unit
        weights = self.population.weight.reshape(len(RATES), -1)  # [rates, lures]
        data["population"] = {
            "rates": _short(RATES),
            "share": [_short(row) for row in weights],
            "problems": self.population.problems,
            "others": self.population.others,
        }
        data["curves"] = {text: curve.to_data() for text, curve in self.curves.items()}
        if self.piloted is not None:
            data["piloted"] = self.piloted.to_data()
        data.update(to_data(self.gauges, self.probe))
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str, *, file: str = "", cure: str = REFIT) -> PerformanceModel:
        """Return the model that `to_json` wrote.

        Args:
            text: The JSON text.
            file: The name of the file with the text, for errors; "": there is no file.
            cure: The cure for a damaged text, for errors.

        Raises:
            ConfigError: the text is no performance model, or one of another format. The error names the file, the first
                field that is wrong, and its rule.
        """
        from tts.allocator.performance_schema import fields_of

        fields = fields_of(text, file=file, cure=cure)
        curves = {name: PerformanceCurve(*arrays) for name, arrays in fields.pop("curves").items()}
        piloted_arrays = fields.pop("piloted")
        piloted = None if piloted_arrays is None else PilotedCurve(*piloted_arrays)
        return cls(**fields, curves=curves, piloted=piloted)

    def save(self, path: str | Path) -> None:
        """Write the model to a file, which is replaced as a whole.

        Even if the process is killed, the file is the old one or the new one.

        Raises:
            ConfigError: the place cannot be written.
        """
        target = Path(path)
        try:
            target = target.resolve()
            if target.exists() and not target.is_file():  # a pipe or a device is no file to replace
                target.write_text(self.to_json() + "\n", encoding="utf-8")
                return
            partial_file = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
            try:
                partial_file.write_text(self.to_json() + "\n", encoding="utf-8")
                partial_file.replace(target)
            finally:
                partial_file.unlink(missing_ok=True)
        except OSError as failure:
            raise ConfigError(f"the performance model cannot be written to {str(path)!r}: {failure.strerror}") from None

    @classmethod
    def load(cls, path: str | Path, *, cure: str = REFIT) -> PerformanceModel:
        """Return the model in a file.

        Raises:
            ConfigError: the file cannot be read, or has no such model (`from_json`).
        """
        try:
            text = read_small(Path(path))
        except (OSError, ValueError) as failure:  # a path with a character that no path may have is a ValueError
            reason, hint = getattr(failure, "strerror", str(failure)), "make one with tts fit"
            if isinstance(failure, UnicodeDecodeError):
                reason, hint = "it is not UTF-8 text", cure
            raise ConfigError(f"the performance model {str(path)!r} cannot be read: {reason}", hint=hint) from None
        return cls.from_json(text, file=str(path), cure=cure)


def falling(gains: Floats) -> tuple[Floats, Whole]:
    """Return the isotonic (falling) regression of each row of gains [P, B], and the blocks of equal gains.

    The second result, [P, B], has for each unit the first unit of its block.

    The method is to pool adjacent violators, all rows at once. Only violators are pooled: gains that are equal as given
    stay in blocks of their own.
    """
    units = gains.shape[1]
    is_falling = (np.diff(gains, axis=1) <= 0).all(axis=1)
    start = np.broadcast_to(np.arange(units), gains.shape)
    bent = np.flatnonzero(~is_falling)  # the rows with a violator
    if not len(bent):
        return gains, start
    start = start.copy()
    # a stack of blocks for each bent row: the sum of each block's gains, and its number of units
    total, size = np.zeros((len(bent), units)), np.zeros((len(bent), units), np.int64)
    top = np.full(len(bent), -1)  # the place of the last block on each stack
    every_stack = np.arange(len(bent))
    for unit in range(units):
        top += 1
        total[every_stack, top] = gains[bent, unit]
        size[every_stack, top] = 1
        stacks = every_stack  # those whose last two blocks may have to be pooled
        while len(stacks):
            stacks = stacks[top[stacks] > 0]
            last = top[stacks]
            # the mean of the last block is above that of the block before; compared without a division
            is_violated = total[stacks, last] * size[stacks, last - 1] > total[stacks, last - 1] * size[stacks, last]
            stacks, last = stacks[is_violated], last[is_violated]
            total[stacks, last - 1] += total[stacks, last]
            size[stacks, last - 1] += size[stacks, last]
            top[stacks] -= 1
    is_block = np.arange(units) <= top[:, None]
    size = np.where(is_block, size, 0)
    mean = np.where(is_block, total / np.maximum(size, 1), 0.0)
    first_unit = np.cumsum(size, axis=1) - size
    regression = gains.copy()
    regression[bent] = np.repeat(mean.ravel(), size.ravel()).reshape(len(bent), units)
    start[bent] = np.repeat(first_unit.ravel(), size.ravel()).reshape(len(bent), units)
    return regression, start


def monotone(accuracy: Floats, weight: Floats) -> Floats:
    """Return the nearest table that rises with the success rate (rows) and with the size (columns).

    Isotonic regression is done along either axis in turn, with Dykstra's corrections (Dykstra and Robertson 1982). It
    converges to that table.

    Args:
        accuracy: The table, [G, B].
        weight: The weight of each row, [G].
    """
    table = accuracy
    rate_correction, size_correction = np.zeros_like(table), np.zeros_like(table)
    for _ in range(50):
        table_before = table
        corrected = table + rate_correction
        table = _rising_rows(corrected, weight)
        rate_correction = corrected - table
        corrected = table + size_correction
        falling_table, _blocks = falling(-corrected)
        table = -falling_table
        size_correction = corrected - table
        if np.abs(table - table_before).max() < 1e-6:
            break
    return np.clip(table, 0.0, 1.0)


def _rising_rows(table: Floats, weight: Floats) -> Floats:
    """Return the isotonic (rising) regression of each column, with weighted rows, by pooling adjacent violators."""
    regression = np.empty_like(table)
    for column in range(table.shape[1]):
        # for each block of equal rows: its value, its weight, and its number of rows
        values, weights, sizes = list[float](), list[float](), list[int]()
        for row_value, row_weight in zip(table[:, column].tolist(), weight.tolist(), strict=True):
            values.append(row_value)
            weights.append(max(row_weight, 1e-9))
            sizes.append(1)
            while len(values) > 1 and values[-2] > values[-1]:
                last_value, last_weight, last_size = values.pop(), weights.pop(), sizes.pop()
                pooled_weight = weights[-1] + last_weight
                values[-1] = (values[-1] * weights[-1] + last_value * last_weight) / pooled_weight
                weights[-1] = pooled_weight
                sizes[-1] += last_size
        regression[:, column] = np.repeat(values, sizes)
    return regression


def smooth(
    posterior: Floats, right: Floats, rng: np.random.Generator, *, resamples: int = 200
) -> tuple[Floats, Floats]:
    """Return the accuracy and its standard error, [G, B] each, of a strategy.

    Each problem counts at each success rate by its posterior.

    Args:
        posterior: The posterior of each problem over `RATES`, [P, G].
        right: The share of right answers of each problem at each size, [P, B]; NaN: not measured.
        rng: The generator that draws the problems again for the error.
        resamples: The number of such draws.
    """
    is_known, value = ~np.isnan(right), np.nan_to_num(right)
    nearness = _nearness()

    def table(count: Floats) -> tuple[Floats, Floats]:
        """Return the accuracy [G, B] where problems count so often, and the weight of each row."""
        weighted = posterior * count[:, None]
        mass = weighted.T @ is_known
        # neighbouring rates count too, for problems at one rate may be few
        near_mass, near_right = nearness @ mass, nearness @ (weighted.T @ value)
        return near_right / np.maximum(near_mass, 1e-12), mass.sum(axis=1)

    accuracy, row_weight = table(np.ones(len(right)))
    counts = rng.multinomial(len(right), np.full(len(right), 1 / len(right)), resamples).astype(np.float64)
    resampled = np.stack([table(count)[0] for count in counts])  # [resamples, G, B]
    error = resampled.std(axis=0, ddof=1)
    return monotone(accuracy, row_weight), error


def costs_by_rate(posterior: Floats, spent: Floats, plain: Floats) -> Floats:
    """Return the cost of a strategy at each success rate and size, [G, B].

    The unit is a plain sample of a problem with that success rate.

    Args:
        posterior: The posterior of each problem over `RATES`, [P, G].
        spent: The cost of the strategy at each size, [P, B], in mean plain samples; NaN: not measured.
        plain: The cost of a plain sample of each problem, [P], in mean plain samples; above 0.
    """
    nearness, is_known = _nearness(), ~np.isnan(spent)
    strategy_cost = nearness @ (posterior.T @ np.nan_to_num(spent))
    plain_cost = nearness @ (posterior.T @ (is_known * plain[:, None]))
    return np.maximum(strategy_cost / np.maximum(plain_cost, 1e-12), 1e-6)


def _nearness() -> Floats:
    """Return how far each of `RATES` counts for each other, [G, G]."""
    angle = np.arcsin(np.sqrt(RATES))
    return 1.0 / (1.0 + np.abs(np.subtract.outer(angle, angle)) / 0.07) ** 4


def _short(values: Floats | Sequence[float]) -> list[float]:
    return [round(float(value), 6) for value in values]


def _verifier_words(verifiers: Mapping[str, str]) -> str:
    return ", ".join(f"{role}={text}" for role, text in verifiers.items()) or "none"
