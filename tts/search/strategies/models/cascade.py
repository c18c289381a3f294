"""Cascade: cheap models first, and dearer models only where needed.

A dearer model is asked where the samples of the cheaper models are not sure enough.

    for each model, the cheapest first: draw its samples ; score them
    return where the score reaches the model's threshold ; the last model's samples are returned as they are

Source: Chen, Zaharia, Zou, "FrugalGPT: How to Use Large Language Models While Reducing Cost and Improving Performance"
(2305.05176), from memory: an order of models, a score of query and answer, a threshold for each model, chosen on
labelled data under a limit of cost. Without a verifier the score is the agreement of a few samples: Yue et al., "Large
Language Model Cascades with Mixture of Thoughts Representations for Cost-efficient Reasoning" (2310.03094), from
memory. Differs:
- Several samples of a model may be drawn; with a verifier their best score counts.
- Order and thresholds are given, not learnt here. Choose thresholds on validation problems.
- The samples of the model that is stopped at choose the answer; those of cheaper models do not vote.
- Where the budget does not pay the next model's samples, the last model with an answer has the vote.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from tts.backends.base import Sampling
from tts.checks import Rule, Text, check_parameters
from tts.errors import ConfigError, quote
from tts.search.ends import SearchEnded
from tts.search.needs import Needs, writers
from tts.search.parameters import Aggregate, Temperature, check_roles
from tts.search.parts import Selection, Strategy
from tts.search.search import Search
from tts.search.selections.best import Best
from tts.search.selections.majority import Majority
from tts.types import Candidate

_SAMPLES, _THRESHOLD = 3, 0.6  # defaults of each model but the last: two of three samples must agree


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade(Strategy):
    """One model after another, until one is sure enough.

    Args:
        models: The roles of the models in the order in which they are asked, at least one. A role may come again, with
            more samples. The policy reads the problem in any case, so it should be the cheapest.
        samples: The samples of each model, a list of whole numbers of at least 1; None: three, and for the last model
            as many as the budget pays.
        thresholds: The scores, in [0, 1], at which the cascade stops, one for each model but the last; None: .6.
        verifier: The role whose best score counts; None: the share of a model's samples with its most frequent answer
            counts.
        aggregate: The aggregate that makes one score of the scores of steps.
        temperature: The temperature of all models; None: the run's.
        efforts: The effort of thoughts at each stage, one word a model ("low", "high"), so that a model may first be
            asked with little thought; "" and None: the run's.
        thought_tokens: The most tokens of a thought, by stage, where the server limits thoughts; 0: no thought; None:
            the run's limit.

    Cost: the samples of all models that are asked, each at its model's price; with a verifier a call each.
    Random: none of its own.

    Example:
        >>> import tts
        >>> asked = "cascade(models=['policy', 'large'], samples=[2, 4], thresholds=[1.0])"
        >>> with tts.Solver({"policy": "toy", "large": "toy"}, task="arithmetic") as solver:
        ...     found = solver.solve("3 + 4 - 2 + 9", 600, strategy=asked, seed=2)
        >>> found.answer, found.usage.samples
        ('14', 2)
    """

    registered_as = "cascade"
    sized_by_budget = ("samples",)
    models: Annotated[tuple[str, ...], Rule(check_roles)] = ("policy", "large")
    samples: tuple[int, ...] | None = None
    thresholds: tuple[float, ...] | None = None
    verifier: Text | None = None
    aggregate: Aggregate = "last"
    temperature: Temperature | None = None
    efforts: tuple[str, ...] | None = None
    thought_tokens: tuple[int | None, ...] | None = None

    def __post_init__(self) -> None:
        check_parameters(self)
        count = len(self.models)
        if self.samples is not None:
            rule = f"a list of {count} whole numbers of at least 1, one a model"
            object.__setattr__(self, "samples", _numbers("samples", self.samples, count, int, (1, 2**63 - 1), rule))
        if self.thresholds is not None:
            rule = f"a list of {count - 1} numbers between 0 and 1, one a model but the last"
            object.__setattr__(
                self, "thresholds", _numbers("thresholds", self.thresholds, count - 1, float, (0, 1), rule)
            )
        if self.efforts is not None:
            efforts: Any = self.efforts
            is_list = isinstance(efforts, list | tuple) and len(efforts) == count
            if not is_list or not all(isinstance(word, str) for word in efforts):
                raise ConfigError(
                    f"efforts is {quote(efforts)}, but must be a list of {count} words, one a model",
                    hint="'' for the run's effort",
                )
            object.__setattr__(self, "efforts", tuple(efforts))
        if self.thought_tokens is not None:
            limits: Any = self.thought_tokens
            is_list = isinstance(limits, list | tuple) and len(limits) == count
            if not is_list or not all(limit is None or _is_limit(limit) for limit in limits):
                raise ConfigError(
                    f"thought_tokens is {quote(limits)}, but must be a list of {count} whole numbers of at least 0, "
                    "one a model",
                    hint="0 for no thought, None for the run's limit",
                )
            object.__setattr__(self, "thought_tokens", tuple(limits))
        if self.verifier is None and any(self._count(i) == 1 and self._threshold(i) > 0 for i in range(count - 1)):
            raise ConfigError(
                f"samples is {quote(self.samples)}, but one sample always agrees with itself",
                hint="give two samples or more of each model but the last, or a verifier",
            )

    def needs(self) -> Needs:
        """Return the needs: the models with their settings, and the verifier if a verifier decides."""
        # role -> its capabilities, as the keys of a dictionary in order
        capabilities_of: dict[str, dict[str, None]] = {role: {} for role in ("policy", *self.models)}
        for i, role in enumerate(self.models):
            sampling = Sampling(effort=self._effort(i) or "", thought_tokens=self._thought(i))
            capabilities_of[role] |= dict.fromkeys(sampling.needs.values())
        limits = [limit for limit in self.thought_tokens or () if limit is not None]
        return Needs(
            capabilities=tuple(capabilities_of["policy"]),
            verifiers=() if self.verifier is None else (self.verifier,),
            scaled=True,
            models={role: tuple(capabilities_of[role]) for role in writers(*self.models)},
            thought_tokens=max(limits, default=None),
        )

    def _effort(self, i: int) -> str | None:
        """Return the effort of a stage; None: the run's."""
        if self.efforts is None or self.efforts[i] == "":
            return None
        return self.efforts[i]

    def _thought(self, i: int) -> int | None:
        """Return the limit of a stage's thoughts, in tokens; None: the run's."""
        return None if self.thought_tokens is None else self.thought_tokens[i]

    def _count(self, i: int) -> int | None:
        """Return the number of samples of a model; None: as many as the budget pays."""
        if self.samples is not None:
            return self.samples[i]
        return _SAMPLES if i + 1 < len(self.models) else None

    def _threshold(self, i: int) -> float:
        return _THRESHOLD if self.thresholds is None else self.thresholds[i]

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Ask model after model."""
        earlier_start = stage_start = 0
        for i, role in enumerate(self.models):
            earlier_start, stage_start = stage_start, len(search.candidates)
            is_last = i + 1 == len(self.models)
            try:
                thought_settings: dict[str, Any] = {"effort": self._effort(i), "thought_tokens": self._thought(i)}
                await search.complete(
                    [search.root], self._count(i), temperature=self.temperature, model=role, **thought_settings
                )
                score = math.nan if is_last else await self._score(search, search.candidates[stage_start:])
            except SearchEnded as end:
                has_answer = any(c.answer is not None for c in search.candidates[stage_start:])
                start = stage_start if has_answer else earlier_start
                raise end.restrict_candidates(slice(start, None)) from None
            if not is_last and score >= self._threshold(i):
                threshold = f"{self._threshold(i):g}"
                reason = f"the model {role!r} has the score {score:.2f}, which reaches its threshold {threshold}"
                raise SearchEnded(reason).restrict_candidates(slice(stage_start, None))
        return search.candidates[stage_start:] or search.candidates[earlier_start:]

    async def _score(self, search: Search, candidates: Sequence[Candidate]) -> float:
        """Return the confidence of a model's samples, in [0, 1]; NaN where scores are unknown or every row failed."""
        if not candidates:
            return math.nan
        if self.verifier is None:
            votes = Counter(c.answer_class for c in candidates if c.answer_class is not None)
            return max(votes.values(), default=0) / len(candidates)
        scores = await search.score([c.trajectory for c in candidates], self.verifier, self.aggregate, scale="unit")
        return math.nan if np.isnan(scores).all() else float(np.nanmax(scores))

    def default_selection(self, *, verified: bool) -> Selection:
        """Return `best` by the verifier that decides; without one, `majority`."""
        if self.verifier is not None and verified:
            return Best(verifier=self.verifier, aggregate=self.aggregate)
        return Majority()


def _is_limit(value: object) -> bool:
    return type(value) is int and value >= 0


def _numbers(name: str, value: Any, count: int, kind: type, bounds: tuple[float, float], rule: str) -> tuple[Any, ...]:
    """Return a list of numbers as a tuple.

    Raises:
        ConfigError: the value is no list of `count` numbers within the bounds.
    """
    accepted_kinds = (int,) if kind is int else (int, float)
    low, high = bounds
    is_list = isinstance(value, list | tuple) and len(value) == count
    if not is_list or not all(type(number) in accepted_kinds and low <= number <= high for number in value):
        raise ConfigError(f"{name} is {quote(value)}, but must be {rule}")
    return tuple(kind(number) for number in value)
