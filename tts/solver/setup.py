"""What a run is made of: a setup that is equal for many problems, and the run of one problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from tts.backends.base import Backend, Sampling
from tts.budget.account import Account
from tts.budget.budget import Budget, Rates
from tts.search.algorithms.embedding import Embedder
from tts.search.needs import Needs, needs_of
from tts.search.parts import Plan, Selection
from tts.tasks.base import Task
from tts.types import Candidate, Problem
from tts.verifiers.base import Verifier
from tts.verifiers.compatibility import token_rates

if TYPE_CHECKING:
    from tts.solver.live import Event
    from tts.solver.shared_budget import BudgetShare

OnError = Literal["raise", "keep"]  # what a failed verifier does to a solution


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What solves problems: a plan, a task, models and verifiers, equal for all problems.

    What follows from these values is made once, on first use.

    Args:
        plan: The plan.
        task: The task.
        backends: The backends by role.
        verifiers: The verifiers by role.
        sampling: The sampling of all rows, except where the strategy sets its own.
        clock: The clock, in seconds.
        model_names: The names of the models by role, as calibrations state them; "policy" is required.
        verifier_texts: The verifiers by role, as text, as calibrations state them.
        allow_oracle: Whether a verifier may see the reference answer.
        notes: Warnings from before the run.
        task_given: Whether the caller chose the task; if not, a text that looks like mathematics gets a warning.
        embedder: The embedder for strategies that cluster; None: the default.
        on_error: As in `Solver`.
        scored_by: The roles that score all candidates after the choice, for a record of them.
        sampling_logprobs: Whether the trace has the probabilities under the law that drew the tokens.
    """

    plan: Plan
    task: Task
    backends: Mapping[str, Backend]
    verifiers: Mapping[str, Verifier]
    sampling: Sampling
    clock: Callable[[], float]
    model_names: Mapping[str, str]
    verifier_texts: Mapping[str, str] = field(default_factory=dict[str, str])
    allow_oracle: bool = False
    notes: tuple[str, ...] = ()
    task_given: bool = True
    embedder: Embedder | None = None
    on_error: OnError = "raise"
    scored_by: tuple[str, ...] = ()
    sampling_logprobs: bool = False
    # the sets of limited units under which the parts were checked
    checked: set[frozenset[str]] = field(default_factory=set[frozenset[str]], init=False, repr=False, compare=False)

    @property
    def model(self) -> str:
        """The policy's name."""
        return self.model_names["policy"]

    @cached_property
    def selection(self) -> Selection:
        """The plan's selection, or its strategy's default."""
        return self.plan.selection or self.plan.strategy.default_selection(verified=bool(self.verifiers))

    @cached_property
    def text(self) -> str:
        """The plan with its selection, as a text."""
        return str(dataclasses.replace(self.plan, selection=self.selection))

    @cached_property
    def needs(self) -> Needs:
        """The needs of the strategy."""
        return needs_of(self.plan.strategy)

    @cached_property
    def stop_needs(self) -> Needs:
        """The needs of the stop rule."""
        return Needs() if self.plan.stopping is None else needs_of(self.plan.stopping)

    @cached_property
    def selection_needs(self) -> Needs:
        """The needs of the selection."""
        return needs_of(self.selection)

    @cached_property
    def judged(self) -> tuple[str, str] | None:
        """The role and the aggregation of the scores that the stop rule reads; None: it reads none."""
        needs = self.stop_needs
        return (needs.verifiers[0], needs.aggregate) if needs.verifiers else None

    @cached_property
    def chosen_by(self) -> Sequence[str]:
        """The roles that the selection scores with, without those whose scores the strategy gives itself."""
        return [role for role in self.selection_needs.verifiers if role not in self.needs.scores]

    @cached_property
    def declared(self) -> tuple[str, ...]:
        """The roles that strategy, stop rule, selection and record score with.

        Roles whose scores the strategy gives itself are left out.
        """
        roles = [*self.needs.verifiers, *self.stop_needs.verifiers[:1], *self.chosen_by, *self.scored_by]
        return tuple(dict.fromkeys(roles))  # without duplicates

    @cached_property
    def compared_by(self) -> Mapping[str, int]:
        """The comparisons whose cost is reserved with every row, by role.

        Roles by which the strategy or the stop rule scores are left out.
        """
        scoring_roles = {*self.needs.verifiers, *self.stop_needs.verifiers}
        pairs = self.selection_needs.pairs
        return {role: count for role, count in pairs.items() if count and role not in scoring_roles}

    @cached_property
    def asked_of_all(self) -> Sequence[str]:
        """The roles that will score every candidate, whatever comes of the search."""
        return self.chosen_by if self.selection_needs.scores_all and not self.needs.verifiers else ()

    @cached_property
    def may_score(self) -> Callable[[Candidate, int], bool] | None:
        """The function that tells whether the selection may score a candidate; None: the strategy scores."""
        if self.needs.verifiers:
            return None
        return self.selection.may_score if self.selection_needs.verifiers else lambda _candidate, _agreeing: False

    @cached_property
    def token_rates(self) -> Mapping[str, Rates]:
        """The rates of the verifiers' tokens, by role."""
        return {role: token_rates(scorer, self.backends[scorer.model]) for role, scorer in self.verifiers.items()}


@dataclass(frozen=True, kw_only=True)
class ProblemRun:
    """The run of one problem: a setup, a problem and a budget.

    Args:
        setup: What solves the problem.
        problem: The problem as given.
        budget: The limits, or an account that pays.
        seed: The seed.
        expected_tokens: The expected tokens of a solution; None: the task's constant.
        started: When the budget's seconds began; None: now.
        share: The problem's share of a total for many problems, which is its strategy and pays; None: the strategy is
            the plan's, and the budget pays.
        on_event: A function that is called with the progress after each call.
        live: Whether `on_event` also reports what rows under way have written, ten times a second.
        refuses: A function that returns why an answer of a confidence is not given, or "" where it is given; None:
            every answer is given.
    """

    setup: Setup
    problem: Problem
    budget: Budget | Account
    seed: int = 0
    expected_tokens: int | None = None
    started: float | None = None
    share: BudgetShare | None = None
    on_event: Callable[[Event], None] | None = None
    live: bool = False
    refuses: Callable[[float], str] | None = None

    @property
    def limits(self) -> Mapping[str, float]:
        """The limits of the budget, by unit."""
        return self.budget.limits


def read_limits(given: Budget | float | Mapping[str, float] | Account) -> Budget | Account:
    """Return an account unchanged, and any other value as `Budget.of` reads it.

    Raises:
        ConfigError: The value is neither an account nor a budget.
    """
    return given if isinstance(given, Account) else Budget.of(given)


def divide_account(total: Account, parts: int) -> list[Account]:
    """Return equal parts of the amounts that are left of an account.

    A part may have nothing. A remainder goes to the first parts, one unit to each.
    """
    available = {unit: total.available(unit) for unit in total.units}
    return [
        total.reserve_part({unit: left // parts + int(place < left % parts) for unit, left in available.items()})
        for place in range(parts)
    ]
