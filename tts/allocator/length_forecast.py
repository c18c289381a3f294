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

from tts.allocator.difficulty import Floats
from tts.allocator.ridge import ridge
from tts.characters import join_surrogates
from tts.checks import check_number
from tts.errors import ConfigError, HintsKeywords, quote
from tts.files import read_small
from tts.renamed import refuse_old_members
from tts.search.algorithms.embedding import HashedNgrams
from tts.search.lengths import QUANTILE
from tts.types import Problem

_NGRAMS = HashedNgrams(size=3, dimensions=128)
_FORMAT = 1
_FIELDS = ("weight", "bias", "low", "high", "above")
_REFIT = "make it again with LengthForecast.fitted"


@refuse_old_members
@dataclass(frozen=True, slots=True, eq=False)
class LengthForecast(HintsKeywords):
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
            tokens: The tokens of the solutions of each, at least one. Leave out solutions that a cap cut.
            quantile: The share of solutions that the forecast covers, above 0 and below 1.

        Raises:
            ConfigError: a value is none of these.
        """
        check_number("quantile", quantile, 1e-6, 1 - 1e-6, optional=False)
        if len(prompts) != len(tokens):
            raise ConfigError(f"tokens has {len(tokens)} problems, but prompts has {len(prompts)}")
        for place, of in enumerate(tokens):
            if not len(of) or not all(count >= 1 for count in of):
                raise ConfigError(f"tokens[{place}] is {quote(of)}, but must be lengths of at least 1, one or more")
        logs = [np.log(np.asarray(of, np.float64)) for of in tokens]
        weight, bias, says = ridge(features(prompts), np.array([one.mean() for one in logs]), "prompts")
        errors = np.concatenate([one - said for one, said in zip(logs, says, strict=True)])
        shares = np.concatenate([np.full(len(one), 1 / len(one)) for one in logs])
        order = np.argsort(errors, kind="stable")
        reached = np.cumsum(shares[order]) >= quantile * (len(logs) + 1) - 1e-9  # one more for the problem to come
        above = float(errors[order][int(reached.argmax()) if reached.any() else -1])
        return cls(weight, bias, float(says.min()), float(says.max()), above)

    def __call__(self, problem: Problem) -> int:
        """Return the expected tokens of a problem's solution, at least 1."""
        said = float(features([problem.text])[0] @ self.weight + self.bias)
        return max(1, math.ceil(math.exp(min(max(said, self.low), self.high) + self.above)))

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        data = {
            "format": _FORMAT,
            "weight": self.weight.tolist(),
            **{name: getattr(self, name) for name in _FIELDS[1:]},
        }
        Path(path).write_text(json.dumps(data) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> LengthForecast:
        """Return what was saved.

        Raises:
            ConfigError: the file is not there, or damaged.
        """
        try:
            data: Any = json.loads(read_small(Path(path)))
        except (OSError, ValueError, RecursionError) as failure:
            why = failure.strerror if isinstance(failure, OSError) else str(failure)
            raise ConfigError(f"the forecast {str(path)!r} cannot be read: {why}", hint=_REFIT) from None
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise ConfigError(f"{str(path)!r} is no forecast of lengths of format {_FORMAT}", hint=_REFIT)
        weight: Any = data.get("weight")
        numbers: list[Any] = [
            *(weight if isinstance(weight, list) else [None]),
            *(data.get(name) for name in _FIELDS[1:]),
        ]
        width = features(["x"]).shape[1]
        if len(numbers) != width + 4 or not all(type(n) in (int, float) and math.isfinite(n) for n in numbers):
            raise ConfigError(
                f"{str(path)!r} must hold {width} finite weights, and {', '.join(_FIELDS[1:])}", hint=_REFIT
            )
        return cls(np.array(numbers[:width], np.float64), *map(float, numbers[width:]))


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
    return np.hstack([np.log1p(np.array(counts, np.float64).reshape(len(prompts), 5)), _NGRAMS.vectors(prompts)])
