"""A forecast of the length of a problem's solutions, from its prompt alone.

    v_p = what the text of prompt p shows ; y_p = the mean of the logarithm of its solutions' tokens
    w, b = ridge regression of y on v ; l_p = the prediction for p by the fit to all others
    c = the q-quantile of log t - l_p over all recorded solutions, each problem counted once
    forecast(p) = exp(clip(w v_p + b) + c) , the length that a share q of its solutions stay within

Source: lengths by prompt and model as in Perez-Ramirez et al., "CASTILLO: Characterizing Response Length Distributions
of Large Language Models" (2505.16881), from memory, which predicts nothing itself. c is a split-conformal quantile
(Vovk et al.) of predictions left out, so that the share holds for problems of the same kind whatever the fit is worth.
Features are ours.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tts._common.characters import join_surrogates
from tts._common.files import read_small
from tts.allocator.difficulty import Floats
from tts.allocator.ridge import ridge
from tts.checks import check_number
from tts.errors import ConfigError, quote
from tts.search.algorithms.embedding import HashedNgrams
from tts.search.lengths import QUANTILE
from tts.types import Problem

_NGRAMS = HashedNgrams(size=3, dimensions=128)
_FORMAT = 1
_FIELDS = ("weight", "bias", "low", "high", "above")
_REFIT = "make it again with LengthForecast.fit"


@dataclass(frozen=True, slots=True, eq=False)
class LengthForecast:
    """Forecasts the length of a problem's solutions in tokens from its prompt.

    It is given to a solver as `Solver(expected_tokens=forecast)`.

    Use `fit` to make one from recorded solutions. It is a linear model of the logarithm of the length.

    Args:
        weight: [D], the weights of the prompt's features.
        bias: The intercept.
        low: The lower bound of a prediction: the least for the problems of the fit.
        high: The upper bound of a prediction: the greatest for the problems of the fit.
        above: Added to the prediction, so that the share `quantile` of solutions is at most as long as the forecast.

    Example:
        >>> import tts
        >>> prompts = [" + ".join(["3"] * n) for n in range(2, 22)]
        >>> forecast = tts.LengthForecast.fit(prompts, [[6 * n, 6 * n + 2] for n in range(2, 22)])
        >>> forecast(tts.Problem("3 + 3 + 3 + 3"))
        26
    """

    weight: Floats
    bias: float
    low: float
    high: float
    above: float

    @classmethod
    def fit(
        cls, prompts: Sequence[str], tokens: Sequence[Sequence[int]], *, quantile: float = QUANTILE
    ) -> LengthForecast:
        """Return a forecast fitted to recorded solutions.

        Args:
            prompts: Texts of problems, at least 10.
            tokens: The numbers of tokens of each problem's solutions, at least one. Solutions that a cap cut must be
                left out.
            quantile: The share of solutions that the forecast covers, above 0 and below 1.

        Raises:
            ConfigError: a value is not of this kind, or the numbers of problems differ.
        """
        check_number("quantile", quantile, 1e-6, 1 - 1e-6, optional=False)
        if len(prompts) != len(tokens):
            raise ConfigError(f"tokens has {len(tokens)} problems, but prompts has {len(prompts)}")
        for place, lengths in enumerate(tokens):
            if not len(lengths) or not all(length >= 1 for length in lengths):
                raise ConfigError(
                    f"tokens[{place}] is {quote(lengths)}, but must be lengths of at least 1, one or more"
                )
        log_lengths = [np.log(np.asarray(lengths, np.float64)) for lengths in tokens]
        mean_logs = np.array([logs.mean() for logs in log_lengths])  # [P]
        weight, bias, predictions = ridge(features(prompts), mean_logs, "prompts")
        errors = np.concatenate([logs - mean for logs, mean in zip(log_lengths, predictions, strict=True)])
        shares = np.concatenate([np.full(len(logs), 1 / len(logs)) for logs in log_lengths])  # each problem has 1
        order = np.argsort(errors, kind="stable")
        num_covered = quantile * (len(log_lengths) + 1)  # of the problems and the one to be forecast
        is_reached = np.cumsum(shares[order]) >= num_covered - 1e-9
        place = int(is_reached.argmax()) if is_reached.any() else -1
        above = float(errors[order][place])
        return cls(weight=weight, bias=bias, low=float(predictions.min()), high=float(predictions.max()), above=above)

    def __call__(self, problem: Problem) -> int:
        """Return the expected tokens of a problem's solution, at least 1."""
        said = float(features([problem.text])[0] @ self.weight + self.bias)
        return max(1, math.ceil(math.exp(min(max(said, self.low), self.high) + self.above)))

    def save(self, path: str | Path) -> None:
        """Write the forecast as JSON."""
        numbers = {name: getattr(self, name) for name in _FIELDS[1:]}
        data = {"format": _FORMAT, "weight": self.weight.tolist(), **numbers}
        Path(path).write_text(json.dumps(data) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> LengthForecast:
        """Return the forecast that `save` wrote.

        Raises:
            ConfigError: the file cannot be read, or is damaged.
        """
        try:
            data: Any = json.loads(read_small(Path(path)))
        except (OSError, ValueError, RecursionError) as failure:
            reason = failure.strerror if isinstance(failure, OSError) else str(failure)
            raise ConfigError(f"the forecast {str(path)!r} cannot be read: {reason}", hint=_REFIT) from None
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise ConfigError(f"{str(path)!r} is no forecast of lengths of format {_FORMAT}", hint=_REFIT)
        weight: Any = data.get("weight")
        weights: list[Any] = weight if isinstance(weight, list) else [None]
        other_numbers: list[Any] = [data.get(name) for name in _FIELDS[1:]]
        numbers: list[Any] = [*weights, *other_numbers]
        width = features(["x"]).shape[1]
        are_finite = all(type(number) in (int, float) and math.isfinite(number) for number in numbers)
        if len(weights) != width or not are_finite:
            raise ConfigError(
                f"{str(path)!r} must hold {width} finite weights, and {', '.join(_FIELDS[1:])}", hint=_REFIT
            )
        return cls(np.array(weights, np.float64), *map(float, other_numbers))


def features(prompts: Sequence[str]) -> Floats:
    """Return the features of prompts, [P, D].

    They are logarithms of sizes and of counts of numbers and operators, and hashed n-grams of characters.
    """
    prompts = [join_surrogates(text) for text in prompts]
    counts = [
        (
            len(text),
            len(text.split()),
            len(re.findall(r"\d+(?:\.\d+)?", text)),
            len(re.findall(r"[-+*/^=<>]", text)),
            text.count("\n"),
        )
        for text in prompts
    ]
    log_counts = np.log1p(np.array(counts, np.float64).reshape(len(prompts), 5))
    return np.hstack([log_counts, _NGRAMS.vectors(prompts)])
