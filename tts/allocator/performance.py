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
from typing import Final

import numpy as np

from tts.allocator.difficulty import RATES, Floats, Population, Whole
from tts.allocator.gauges import Gauge, PromptProbe, to_data
from tts.allocator.performance_file import FORMAT, REFIT
from tts.errors import ConfigError, unknown_name
from tts.files import read_small

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


@dataclass(frozen=True, slots=True, eq=False)
class PilotedCurve:
    """The accuracy of `auto` with its pilots, on the problems of the fit.

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

        The sizes are 0 to `MOST` samples, and those measured beyond.

        The accuracy is interpolated in ln(size). Beyond the greatest size that was measured it stays what it is there;
        below the least it rises from 0 in proportion.

        Raises:
            ConfigError: it has no curve of that strategy.
        """
        if strategy not in self._tables:
            if strategy not in self.curves:
                raise unknown_name("strategy of the performance model", strategy, list(self.curves))
            curve = self.curves[strategy]
            sizes = np.union1d(np.arange(1, MOST + 1), np.ceil(curve.sizes[curve.sizes > MOST]).astype(np.int64))
            found = np.stack([np.interp(np.log(sizes), np.log(curve.sizes), row) for row in curve.accuracy])
            found *= np.minimum(1.0, sizes / curve.sizes[0])
            self._tables[strategy] = np.insert(sizes, 0, 0), np.concatenate([np.zeros((len(found), 1)), found], axis=1)
        return self._tables[strategy]

    def cost(self, strategy: str) -> Floats | None:
        """Return the mean cost of a strategy at each success rate and size of its table, [G, B].

        The unit is plain samples.

        Returns:
            None where a size is spent at every success rate, as far as is known.

        Raises:
            ConfigError: it has no curve of that strategy.
        """
        sizes, _ = self.table(strategy)
        curve = self.curves[strategy]
        if curve.costs is None:
            return None
        if strategy not in self._costs:
            at, share = np.log(np.maximum(sizes, 1)), curve.costs / curve.sizes
            shares = np.stack([np.interp(at, np.log(curve.sizes), row) for row in share])
            self._costs[strategy] = sizes.astype(np.float64) * shares
        return self._costs[strategy]

    def limit(self, strategy: str, sizes: Whole) -> Floats:
        """Return the limits with which a strategy spends the given sizes on average.

        Both are in plain samples.

        Raises:
            ConfigError: it has no curve of that strategy.
        """
        self.table(strategy)
        curve = self.curves[strategy]
        if curve.limits is None:
            return sizes.astype(np.float64)
        spare = np.interp(np.log(np.maximum(sizes, 1)), np.log(curve.sizes), curve.limits / curve.sizes)
        return sizes * spare

    def direct(self, left: float, strategies: Sequence[str]) -> tuple[str, int] | None:
        """Return the strategy that reaches more from the start than `auto` with pilots, and its size.

        The size is in plain samples. None stands for no such strategy.

        What each reaches is a mean over the problems of the fit, at the same limit. A strategy must be ahead by
        `AHEAD`.

        Args:
            left: What a problem may spend, in plain samples. Below the least limit at which `auto` was measured,
                nothing is known.
            strategies: Those that may be chosen.
        """
        if self.piloted is None or left < self.piloted.limits[0]:
            return None
        found: tuple[str, int] | None = None
        best = float(np.interp(math.log(left), np.log(self.piloted.limits), self.piloted.accuracy)) + AHEAD
        weight = self.population.weight.reshape(len(RATES), -1).sum(axis=1)
        for text in strategies:
            curve = self.curves[text]
            limits = curve.sizes if curve.limits is None else curve.limits
            chance = float(np.interp(math.log(left), np.log(limits), weight @ curve.accuracy))
            if left >= limits[0] and chance > best:
                found, best = (text, math.ceil(left)), chance  # which is all that may be spent
        return found

    def fits(
        self, model: str, task: str, verifiers: Mapping[str, str], models: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """Return why the model does not fit a policy, task, verifiers and other models; "" where it fits.

        The other models are those beside the policy.
        """
        others = ((f"model of the role {role!r},", name, models.get(role)) for role, name in self.models.items())
        for what, own, wanted in (("model", self.model, model), ("task", self.task, task), *others):
            if own != wanted:
                return f"it was fitted to the {what} {own!r}, and this is {wanted!r}"
        if dict(self.verifiers) != dict(verifiers):
            return (
                f"it was fitted with the verifiers {_verifier_words(self.verifiers)}, and these are "
                f"{_verifier_words(verifiers)}"
            )
        return ""

    def to_json(self) -> str:
        """Return it as JSON, a few kilobytes a strategy."""
        lures = self.population.weight.reshape(len(RATES), -1)
        return json.dumps(
            {
                "format": FORMAT,
                "model": self.model,
                "task": self.task,
                "verifiers": dict(self.verifiers),
                "source": self.source,
                "problems": self.problems,
                "tokens": self.tokens,
                "first": self.first,
                **({"models": dict(self.models), "unit": self.unit} if self.models else {}),
                "population": {
                    "rates": _short(RATES),
                    "share": [_short(row) for row in lures],
                    "problems": self.population.problems,
                },
                "curves": {
                    text: {
                        "sizes": _short(curve.sizes),
                        "accuracy": [_short(row) for row in curve.accuracy],
                        "error": [_short(row) for row in curve.error],
                        **({} if curve.limits is None else {"limits": _short(curve.limits)}),
                        **({} if curve.costs is None else {"costs": [_short(row) for row in curve.costs]}),
                    }
                    for text, curve in self.curves.items()
                },
                **({} if self.piloted is None else {"piloted": self.piloted.to_data()}),
                **to_data(self.gauges, self.probe),
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: str, *, file: str = "", cure: str = REFIT) -> PerformanceModel:
        """Return the model that `to_json` wrote.

        Args:
            text: The JSON text.
            file: Where the text is from; "": nowhere.
            cure: The cure for what is damaged.

        Raises:
            ConfigError: it is none, or of another format; the first field that is not as it must be is named, with the
                file and the rule.
        """
        from tts.allocator.performance_schema import fields_of

        found = fields_of(text, file=file, cure=cure)
        curves = {name: PerformanceCurve(*each) for name, each in found.pop("curves").items()}
        piloted = found.pop("piloted")
        return cls(**found, curves=curves, piloted=None if piloted is None else PilotedCurve(*piloted))

    def save(self, path: str | Path) -> None:
        """Write the model to a file, which is replaced as a whole.

        A reader, or a process that is killed, sees the old file or the new one.

        Raises:
            ConfigError: the place cannot be written.
        """
        target = Path(path)
        try:
            target = target.resolve()
            if target.exists() and not target.is_file():  # a pipe or a device is no file to replace
                target.write_text(self.to_json() + "\n", encoding="utf-8")
                return
            part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
            try:
                part.write_text(self.to_json() + "\n", encoding="utf-8")
                part.replace(target)
            finally:
                part.unlink(missing_ok=True)
        except OSError as failure:
            raise ConfigError(f"the performance model cannot be written to {str(path)!r}: {failure.strerror}") from None

    @classmethod
    def load(cls, path: str | Path, *, cure: str = REFIT) -> PerformanceModel:
        """Return the model in a file.

        Raises:
            ConfigError: the file cannot be read, or `from_json`.
        """
        try:
            text = read_small(Path(path))
        except UnicodeDecodeError:
            raise ConfigError(
                f"the performance model {str(path)!r} cannot be read: it is not UTF-8 text", hint=cure
            ) from None
        except (OSError, ValueError) as failure:  # a path with a character that no path may have is a ValueError
            why = failure.strerror if isinstance(failure, OSError) else str(failure)
            raise ConfigError(
                f"the performance model {str(path)!r} cannot be read: {why}", hint="make one with tts fit"
            ) from None
        return cls.from_json(text, file=str(path), cure=cure)


def falling(gains: Floats) -> tuple[Floats, Whole]:
    """Return the isotonic (falling) regression of each row of gains [P, B], and its blocks.

    A block is given by the unit at which its equal gains begin.

    Pool adjacent violators, all rows at once. Blocks are made of violators only: gains that are equal as given stay
    apart.
    """
    units = gains.shape[1]
    concave = (np.diff(gains, axis=1) <= 0).all(axis=1)
    start = np.broadcast_to(np.arange(units), gains.shape)
    bent = np.flatnonzero(~concave)
    if not len(bent):
        return gains, start
    start = start.copy()
    # of the blocks on each row's stack
    total, size = np.zeros((len(bent), units)), np.zeros((len(bent), units), np.int64)
    top = np.full(len(bent), -1)
    for unit in range(units):
        top += 1
        total[np.arange(len(bent)), top], size[np.arange(len(bent)), top] = gains[bent, unit], 1
        rising = np.arange(len(bent))
        while len(rising):
            rising = rising[top[rising] > 0]
            last = top[rising]
            over = total[rising, last] * size[rising, last - 1] > total[rising, last - 1] * size[rising, last]
            rising, last = rising[over], last[over]
            total[rising, last - 1] += total[rising, last]
            size[rising, last - 1] += size[rising, last]
            top[rising] -= 1
    held = np.arange(units) <= top[:, None]
    size, mean = np.where(held, size, 0), np.where(held, total / np.maximum(size, 1), 0.0)
    first = np.cumsum(size, axis=1) - size
    found = gains.copy()
    found[bent] = np.repeat(mean.ravel(), size.ravel()).reshape(len(bent), units)
    start[bent] = np.repeat(first.ravel(), size.ravel()).reshape(len(bent), units)
    return found, start


def monotone(accuracy: Floats, weight: Floats) -> Floats:
    """Return the nearest table that rises with success rate (rows) and with size (columns).

    Rows are weighted.

    Isotonic regression along either axis in turn, with Dykstra's corrections (Dykstra and Robertson 1982), which
    converges to it.
    """
    found = accuracy
    by_rate, by_size = np.zeros_like(found), np.zeros_like(found)
    for _ in range(50):
        before = found
        rising = _rising_rows(found + by_rate, weight)
        by_rate, found = found + by_rate - rising, rising
        rising = -falling(-(found + by_size))[0]
        by_size, found = found + by_size - rising, rising
        if np.abs(found - before).max() < 1e-6:
            break
    return np.clip(found, 0.0, 1.0)


def _rising_rows(table: Floats, weight: Floats) -> Floats:
    """Return the isotonic regression of each column, rows weighted."""
    out = np.empty_like(table)
    for column in range(table.shape[1]):
        stack: list[list[float]] = []  # value, weight, rows
        for value, mass in zip(table[:, column].tolist(), weight.tolist(), strict=True):
            stack.append([value, max(mass, 1e-9), 1])
            while len(stack) > 1 and stack[-2][0] > stack[-1][0]:
                last, other = stack.pop(), stack[-1]
                other[0] = (other[0] * other[1] + last[0] * last[1]) / (other[1] + last[1])
                other[1], other[2] = other[1] + last[1], other[2] + last[2]
        out[:, column] = np.concatenate([np.full(int(rows), value) for value, _, rows in stack])
    return out


def smooth(
    posterior: Floats, right: Floats, rng: np.random.Generator, *, resamples: int = 200
) -> tuple[Floats, Floats]:
    """Return accuracy and standard error [G, B] of a strategy.

    Each problem counts at each success rate by its posterior.

    Args:
        posterior: [P, G], over `RATES`, of each problem.
        right: [P, B], share of right answers at each size; NaN: not measured.
        rng: Draws the problems again for the error.
        resamples: How often.
    """
    known, value = ~np.isnan(right), np.nan_to_num(right)

    nearness = _nearness()

    def table(count: Floats) -> tuple[Floats, Floats]:
        weighted = posterior * count[:, None]
        mass = weighted.T @ known
        # where problems are few, neighbours count
        borrowed, of_right = nearness @ mass, nearness @ (weighted.T @ value)
        return of_right / np.maximum(borrowed, 1e-12), mass.sum(axis=1)

    found, mass = table(np.ones(len(right)))
    draws = rng.multinomial(len(right), np.full(len(right), 1 / len(right)), resamples).astype(np.float64)
    error = np.stack([table(count)[0] for count in draws]).std(axis=0, ddof=1)
    return monotone(found, mass), error


def costs_by_rate(posterior: Floats, spent: Floats, plain: Floats) -> Floats:
    """Return the cost of a strategy at each success rate and size, [G, B].

    The unit is plain samples of such problems.

    Args:
        posterior: [P, G], over `RATES`, of each problem.
        spent: [P, B], what it spent at each size, in mean plain samples; NaN: not measured.
        plain: [P], what a plain sample of each problem costs, in mean plain samples; above 0.
    """
    nearness, known = _nearness(), ~np.isnan(spent)
    total, of_plain = (nearness @ (posterior.T @ each) for each in (np.nan_to_num(spent), known * plain[:, None]))
    return np.maximum(total / np.maximum(of_plain, 1e-12), 1e-6)


def _nearness() -> Floats:
    """Return how far each of `RATES` counts for each other, [G, G]."""
    angle = np.arcsin(np.sqrt(RATES))
    return 1.0 / (1.0 + np.abs(np.subtract.outer(angle, angle)) / 0.07) ** 4


def _short(values: Floats | Sequence[float]) -> list[float]:
    return [round(float(value), 6) for value in values]


def _verifier_words(verifiers: Mapping[str, str]) -> str:
    return ", ".join(f"{role}={text}" for role, text in verifiers.items()) or "none"
