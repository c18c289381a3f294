"""The base class of studies and pools, whose recorded samples can be replayed."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence

from tts.experiments.analysis.averaging import MEASURES
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.replay import (
    DRAWS,
    Prices,
    ReplayedCurve,
    fitting_strategies,
    have_answers,
    problems_without_answer,
    replay,
    sizes_of,
)
from tts.experiments.analysis.table import SEED


class PartialResults(UserWarning):
    """A table, figure or replay lacks some of a study's results. The text says how many, and why."""


class Replayable(ABC):
    """A base class of objects with recorded samples of problems."""

    @abstractmethod
    def _pools(self) -> Sequence[ProblemPool]:
        """Return the samples of each problem."""

    def replay(
        self,
        strategies: Sequence[str] = (),
        sizes: Sequence[int] = (),
        *,
        first: bool = False,
        draws: int = DRAWS,
        by_group: bool = False,
        shared: bool = False,
        prices: Prices | None = None,
    ) -> list[ReplayedCurve]:
        """Return the curves of selections and stop rules on recorded samples. Nothing is generated.

        Args:
            strategies: Texts such as "best_of_n | weighted", with any stop rule, "auto", or the measures "pass@k",
                "pass^k" and "random choice"; none: the strategies that the samples have scores for.
            sizes: The numbers of samples of runs; none: powers of two up to the largest pool.
            first: Whether to take only the first samples, as one live run draws them, without averaging.
            draws: The number of random orders of a pool, at least 2, where a mean has no closed form.
            by_group: Whether each group of problems has its own curve.
            shared: Whether `auto` divides one total among the problems; a size is then the mean over problems.
            prices: The prices for costs in dollars.

        Raises:
            ConfigError: there are no pools (see `Study.sample`) of problems with a reference answer, a strategy or
                size cannot be replayed, or `shared` is given without `auto`.

        Warns:
            PartialResults: results that are no pools, or problems without a reference answer, are left out; or no
                sample has an answer, which all but the measures need.
        """
        pools = self._pools()
        curves = replay(
            pools,
            strategies or fitting_strategies(pools),
            sizes or sizes_of(pools),
            first=first,
            draws=draws,
            by_group=by_group,
            seed=SEED,
            shared=shared,
            prices=prices,
        )
        if not have_answers(pools) and not (strategies and MEASURES.keys() >= set(strategies)):
            warnings.warn(
                PartialResults("no sample has an answer, so that no vote can be right; name the texts in the import"),
                stacklevel=2,
            )
        unanswered_problems = problems_without_answer(pools)
        if unanswered_problems:
            warnings.warn(
                PartialResults(
                    f"{len(unanswered_problems):,} of the problems have no reference answer and are left out, such as "
                    f"{unanswered_problems[0]!r}"
                ),
                stacklevel=2,
            )
        return curves
