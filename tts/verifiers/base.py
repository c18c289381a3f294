"""Verifiers: the class `Verifier`, the scores that it returns, and the metered models it may call.

    class Brevity(tts.Verifier):
        async def score(self, problem, trajectories, calls):
            return [tts.StepScores(whole=1 / (1 + len(t.full_text))) for t in trajectories]

    tts.solve(problem, budget, verifier=Brevity())

A verifier with parameters is a frozen dataclass; its fields are the parameters of its text form. One that calls a model
states the capabilities that it needs, the role of the model, and the most tokens that one score takes:

    @dataclass(frozen=True)
    class Doubt(tts.Verifier):
        question: str = "Restart?"
        model: str = "policy"
        needs = ("next_logprobs",)

        async def score(self, problem, trajectories, calls):
            found = await calls.next_logprobs(trajectories, self.question, (" no", " yes"))
            return [StepScores(whole=no / (no + yes)) for no, yes in np.exp(found).tolist()]

        def bound(self, prefix_tokens, new_tokens):
            return len(self.question.encode())  # a token of the question has at least one byte

    tts.solve("12 + 7 * 3", 1000, verifier=Doubt(), strategy="best_of_n(n=4) | best")

`StepScores.whole` is one score of the text as it stands, complete or partial. `StepScores.steps` is one score for each
step of `calls.task.split(text)`. Searches and selections aggregate steps by "last", "min", "prod" or "mean". A whole
without steps is used under each of these names. With both, "model" takes the whole.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from tts._common.blame import Blame
from tts.backends.base import Backend, Reply, Sampling
from tts.budget.budget import Rates
from tts.checks import check_int, check_parameters, check_text
from tts.errors import ConfigError, VerifierError, quote
from tts.models.registry import ModelRecord
from tts.registry import ClassName
from tts.tasks.base import Task
from tts.types import Problem, Prompt, Trajectory


@dataclass(frozen=True, slots=True)
class StepScores:
    """The scores of one trajectory, each in the verifier's range, or NaN if unknown.

    Args:
        steps: One score for each step, that is, each piece of the trajectory's text from `Task.split`; None: the
            verifier scored no steps.
        whole: One score for the whole trajectory; None: the verifier scored only steps.
        tests: The outcome of each test of the trajectory's program, for the selection `codet`: 1 if passed, 0 if
            failed, NaN if unknown. None: the verifier has no tests.
        note: What the verifier says of the trajectory in words, such as which test fails; "" for nothing. A strategy
            may show it to the model (`sequential_revision(feedback=)`). The note of an oracle never has expected
            values.

    Example:
        >>> import tts
        >>> scores = tts.StepScores(steps=(0.9, 0.4), whole=0.4)
        >>> min(scores.steps), scores.whole
        (0.4, 0.4)
    """

    steps: tuple[float, ...] | None = None
    whole: float | None = None
    tests: tuple[float, ...] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A prompt of a verifier to a model, and the replies.

    Args:
        role: The role of the verifier.
        prompt: The text of the prompt.
        replies: The replies; None in place of a failed reply.
        over: The tokens by which the prompt was too long to be shown; 0: it was shown.
    """

    role: str
    prompt: str
    replies: tuple[str | None, ...] = ()
    over: int = 0


class Calls(Protocol):
    """The metered models that a verifier may call.

    Their tokens are charged to the problem as verifier tokens.

    Attributes:
        task: The task of the problem; splits text into steps and compares answers.
        seconds_left: The seconds left of the budget; None: time is not limited.
    """

    task: Task
    seconds_left: Callable[[], float | None]

    async def value(self, trajectories: Sequence[Trajectory], head: str) -> list[NDArray[np.float64]]:
        """Return a value head's readings for each trajectory, one at each step boundary."""
        ...

    async def next_logprobs(
        self, trajectories: Sequence[Trajectory], text: str, tokens: Sequence[str]
    ) -> NDArray[np.float64]:
        """Return the log-probabilities of next tokens, [trajectories, tokens], after an appended `text`."""
        ...

    async def generate(self, prompts: Sequence[Prompt], *, max_tokens: int, sampling: Sampling) -> list[str | None]:
        """Return one generated response for each prompt, without its thought; None where the model failed.

        A failure is recorded as by `note_failures`. Each prompt is one request of the budget. One score may take one,
        unless the verifier states another bound (`Traits.requests`).

        Args:
            prompts: A reply depends on its prompt alone, not on other prompts or calls.
            max_tokens: The most tokens of each reply.
            sampling: The sampling of each reply.
        """
        ...

    async def replies(
        self, prompts: Sequence[Prompt], *, votes: int, max_tokens: int, sampling: Sampling
    ) -> list[tuple[str | None, ...]]:
        """Return `votes` generated responses for each prompt, without thoughts; each prompt is read once.

        A reply that ends within its thought has the response "". The first k replies are those of votes=k. All replies
        to one prompt are one request (see `generate`).
        """
        ...

    async def choices(self, prompts: Sequence[Prompt], tokens: Sequence[str]) -> NDArray[np.float64]:
        """Return the log-probabilities [prompts, tokens] of next tokens after prompts of the verifier's own."""
        ...

    async def bounded_choices(
        self, prompts: Sequence[Prompt], tokens: Sequence[str]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return `choices`, and a bound on the probability that is not shown.

        The bound [prompts] is the most probability that the tokens have together beyond what is shown.

        A model that gives any next token's log-probability shows all, and the bound is 0. A server that shows the most
        likely tokens alone writes one token for it; a token of `tokens` that it does not show has -inf.
        """
        ...

    def count(self, prompt: Prompt) -> int:
        """Return the number of tokens of a prompt; no model is called."""
        ...

    def note_unread(self, what: str, number: int, of: int) -> None:
        """Record `number` unreadable items out of `of`; the solution's warnings list the sums for each `what`."""
        ...

    def leave_out(self, what: str, prompt: Prompt, over: int) -> None:
        """Record a prompt that was not shown, for the trace; the warning on `what` states the longest.

        Args:
            what: The label of such prompts in the warnings; as in `note_unread`.
            prompt: The prompt.
            over: The tokens by which the prompt is too long.
        """
        ...

    def note_failures(self, error: str, number: int = 1) -> None:
        """Record `number` replies or scores that are unknown because a model or its server failed.

        Args:
            error: "kind: cause", as `Sample.error`; the solution counts failures by kind.
            number: The number of replies or scores.
        """
        ...

    def part(self, verifier: Verifier) -> Calls:
        """Return calls for one member of a composition; their tokens are charged at that member's rates."""
        ...

    def charge(self, replies: Sequence[Reply[Any]], *, estimated: bool = False) -> list[Any]:
        """Charge the tokens of replies of the verifier's own model, and return the replies' values.

        With `estimated` the charges are upper bounds. `OwnModel` describes such models.
        """
        ...


@dataclass(frozen=True, slots=True)
class PairComparison:
    """How a verifier compares pairs of trajectories.

    Args:
        compare: A function that returns, for each pair, how far the first is better, from 0 to 1; NaN where unknown. A
            swapped pair gives 1 minus this value, unless the verifier shows pairs in one order alone.
        pair_bound: The most verifier tokens that comparing one pair computes.
        requests: The most prompts to which a model replies for one pair; None: 1, or 0 where `pair_bound` is 0.
    """

    compare: Callable[[Problem, Sequence[tuple[Trajectory, Trajectory]], Calls], Awaitable[list[float]]]
    pair_bound: int
    requests: int | None = None

    @property
    def most_requests(self) -> int:
        """The most requests of comparing one pair."""
        return int(self.pair_bound > 0) if self.requests is None else self.requests


@dataclass(frozen=True, slots=True)
class ListChoice:
    """How a verifier chooses among several trajectories that it sees at once.

    Args:
        choose: A function of the problem, the trajectories, the calls and the criterion, "quality" or "consensus". It
            returns for each trajectory the share of replies that name the trajectory, from 0 to 1, over both orders.
            All shares are NaN if unknown.
        bound: The most verifier tokens that one choice computes.
        requests: The most prompts to which a model replies for one choice; None: 1, or 0 where `bound` is 0.
    """

    choose: Callable[[Problem, Sequence[Trajectory], Calls, str], Awaitable[list[float]]]
    bound: int
    requests: int | None = None

    @property
    def most_requests(self) -> int:
        """The most requests of one choice."""
        return int(self.bound > 0) if self.requests is None else self.requests


@dataclass(frozen=True, slots=True)
class Composition:
    """The members of a verifier that calls other verifiers, each with `Calls.part` of its own.

    Args:
        members: The verifiers that it calls.
        rebuilt: A function that returns the same composition with other members in their places.
    """

    members: tuple[Verifier, ...]
    rebuilt: Callable[[Sequence[Verifier]], Verifier]


@dataclass(frozen=True, slots=True)
class OwnModel:
    """A model that has no role because the verifier runs it itself; `Calls.charge` books its tokens.

    Args:
        rates: Cost of a token of the model.
        opened: A function that returns the verifier for the search of one problem, with a cache of the texts that its
            model has read. The search drops the verifier with its cache.
        loads: A function that returns the record of the model that this process loads; None: it loads no model.
    """

    rates: Rates
    opened: Callable[[], Verifier]
    loads: Callable[[], ModelRecord] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Optional traits of a verifier. None means that the verifier lacks the trait.

    Args:
        head: Name of the value head that it reads. The backend must have this head, read at the task's steps. A search
            checks this before anything is spent.
        window: Tokens of the groups that its score averages over; a shorter trajectory has no full group.
        prompt_bound: A function that maps a prompt's number of policy tokens to the most tokens that the verifier's
            model reads of the prompt. These tokens are booked as prompt tokens each time the prompt is opened, apart
            from `Verifier.bound`.
        requests: The most prompts to which a model replies for one score: 0 for a verifier that only reads. If it is
            None, the bound is 1, or 0 where the verifier does not define `bound`.
        filled: A function of the model's record (None for a backend of the caller's) and the backend, which returns the
            verifier with all parameters set. A solver calls it once. It raises ConfigError if a parameter is missing or
            does not fit the model.
        check: A function that raises ConfigError for a problem whose solutions the verifier cannot score. A search
            calls the function before anything is spent. The problem has its answer only if the verifier is an oracle.
        proves: Whether its greatest score means that the answer is right, although it has no reference answer. `auto`
            ends a problem there.
        range_by_scores: Whether its range is unknown. The first scores of a problem decide: those in [0, 1] are used
            unchanged, others by their ranks, or as log-odds if one is below 0.
        comparison: How it compares pairs.
        choice: How it chooses among several.
        composition: Its members.
        own_model: The model that it runs itself.
        calls_models: Whether a score may read or write by a model. If not, limits in FLOPs and dollars keep nothing for
            its scores.

    Raises:
        ConfigError: a trait is of the wrong type.
    """

    head: str | None = None
    window: int | None = None
    prompt_bound: Callable[[int], int] | None = None
    requests: int | None = None
    filled: Callable[[ModelRecord | None, Backend], Verifier] | None = None
    check: Callable[[Problem], None] | None = None
    proves: bool = False
    range_by_scores: bool = False
    comparison: PairComparison | None = None
    choice: ListChoice | None = None
    composition: Composition | None = None
    own_model: OwnModel | None = None
    calls_models: bool = True

    def __post_init__(self) -> None:
        check_text("the trait head", self.head, optional=True)
        check_int("the trait window", self.window, 1)
        check_int("the trait requests", self.requests, 0)
        for name in ("proves", "range_by_scores", "calls_models"):
            value = getattr(self, name)
            if type(value) is not bool:
                raise ConfigError(f"the trait {name} is {quote(value)}, but must be True or False")
        for name in ("prompt_bound", "filled", "check"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ConfigError(f"the trait {name} is {quote(value)}, but must be a function or None")
        for name, kind in (
            ("comparison", PairComparison),
            ("choice", ListChoice),
            ("composition", Composition),
            ("own_model", OwnModel),
        ):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"the trait {name} is {quote(value)}, but must be a {kind.__name__} or None")


class Verifier(ABC):
    """Scores trajectories of a problem. A subclass defines `score`; the rest has defaults.

    Attributes:
        name: Name in results and messages; by default the name of the class in snake case.
        range: Least and greatest score; infinite ends are allowed.
        oracle: Whether it needs the reference answer. Only an oracle is given the answer and the metadata of a problem.
        needs: Capabilities (`Caps`) of the backend that `calls` uses.
        model: The role of that backend.

    Example:
        >>> import tts
        >>> class Short(tts.Verifier):
        ...     async def score(self, problem, trajectories, calls):
        ...         return [tts.StepScores(whole=1 / (1 + len(t.full_text))) for t in trajectories]
        >>> tts.solve("3 + 4 - 2", 400, model="toy", verifier=Short(), strategy="best_of_n(n=4) | best").answer
        '5'
    """

    __slots__ = ()
    name: str = cast("str", ClassName())
    range: tuple[float, float] = (0.0, 1.0)
    oracle: bool = False
    needs: tuple[str, ...] = ()
    model: str = "policy"

    def __post_init__(self) -> None:
        """Check the parameters by the rules in their annotations; a dataclass calls it."""
        check_parameters(self)

    @property
    def traits(self) -> Traits:
        """Optional traits; none by default."""
        return _NO_TRAITS

    @abstractmethod
    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return the scores of each trajectory, in order.

        Args:
            problem: The problem without answer and metadata, unless the verifier is an oracle.
            trajectories: Complete or partial; the scores of one do not depend on the others.
            calls: The models that it may call.
        """
        ...

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return the most verifier tokens that scoring one trajectory computes.

        The default is 0, for a verifier that calls no model.

        Args:
            prefix_tokens: Tokens, prompt included, up to the last ancestor that this verifier has scored, else up to
                the prompt's end.
            new_tokens: Tokens after those. The bound never decreases in them. `Traits.prompt_bound` covers the prompt.
        """
        del prefix_tokens, new_tokens
        return 0


_NO_TRAITS = Traits()


def traits_of(verifier: Verifier) -> Traits:
    """Return the optional traits of a verifier; none for an object without the attribute `traits`.

    Raises:
        ConfigError: the attribute is not of the class `Traits`.
    """
    traits: Any = getattr(verifier, "traits", _NO_TRAITS)
    if not isinstance(traits, Traits):
        raise ConfigError(
            f"the verifier {verifier.name!r} has the traits {quote(traits)}, but they must be of the class Traits",
            hint="for example Traits(window=2048), from tts.verifiers.base",
        )
    return traits


def most_requests(verifier: Verifier) -> int:
    """Return the most requests of one score; see `Traits.requests`."""
    stated = traits_of(verifier).requests
    if stated is not None:
        return stated
    return int(getattr(type(verifier), "bound", None) is not Verifier.bound)


def members_of(verifier: Verifier) -> tuple[Verifier, ...]:
    """Return the members of a composition; () for any other verifier."""
    composition = traits_of(verifier).composition
    return () if composition is None else composition.members


# A verifier bound to its problem. A search holds no other reference to it, so it cannot reach the reference answer.
Scorer = Callable[[Sequence[Trajectory], Calls], Awaitable[list[StepScores]]]


def bind(verifier: Verifier, problem: Problem) -> Scorer:
    """Return a verifier as a function of trajectories.

    Only an oracle gets the answer and metadata of the problem.

    Raises:
        ConfigError: the verifier is an oracle and the problem has no reference answer, or `Traits.check` refuses the
            problem.
    """
    if verifier.oracle and problem.answer is None:
        raise ConfigError(
            f"the verifier {verifier.name!r} needs the reference answer, but problem "
            f"{problem.id or problem.text[:40]!r} has none",
            hint="give Problem(answer=…), or another verifier",
        )
    visible = problem if verifier.oracle else problem.without_answer()
    _check_problem(verifier, problem)
    opened = _open_verifier(verifier)

    async def scorer(trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        scores = await opened.score(visible, trajectories, calls)
        if len(scores) != len(trajectories):
            raise VerifierError(
                f"the verifier {verifier.name!r} returned {len(scores)} scores for {len(trajectories)} trajectories"
            )
        for trajectory, score in zip(trajectories, scores, strict=True):
            _check(verifier, trajectory, score, calls.task)
        return scores

    return scorer


def stated_bound(verifier: Verifier, prefix_tokens: int, new_tokens: int) -> int:
    """Return a verifier's bound on the tokens of one score.

    Args:
        verifier: The verifier that states the bound.
        prefix_tokens: Tokens at the start of the path that the verifier has read before.
        new_tokens: Tokens after the prefix.

    Raises:
        VerifierError: The bound is no whole number of at least 0, or the verifier failed.
    """
    # A search asks often, and to enter `Blame` costs more than most bounds. So it is entered only after a failure.
    try:
        bound: Any = verifier.bound(prefix_tokens, new_tokens)
    except BaseException:
        with Blame(f"the verifier {verifier.name!r}", VerifierError):
            raise
    if not isinstance(bound, int) or bound < 0 <= new_tokens:
        raise VerifierError(
            f"the verifier {verifier.name!r} states the bound {quote(bound)}, but must state a whole number from 0 on"
        )
    return bound


def _check_problem(verifier: Verifier, problem: Problem) -> None:
    for member in members_of(verifier):
        _check_problem(member, problem)
    check = traits_of(verifier).check
    if check is not None:
        check(problem if verifier.oracle else problem.without_answer())


def _open_verifier(verifier: Verifier) -> Verifier:
    """Return a verifier for one search: with a cache of its own where it, or a member, runs a model itself."""
    traits = traits_of(verifier)
    if traits.composition is not None:
        return traits.composition.rebuilt([_open_verifier(member) for member in traits.composition.members])
    return verifier if traits.own_model is None else traits.own_model.opened()


def _check(verifier: Verifier, trajectory: Trajectory, score: Any, task: Task) -> None:
    """Refuse a score of the wrong type, outside of the verifier's range, or of another number of steps."""
    if not isinstance(score, StepScores):
        raise VerifierError(
            f"the verifier {verifier.name!r} returned {quote(score)} for a trajectory, but must return StepScores",
            hint="for example StepScores(whole=0.5)",
        )
    note: Any = score.note
    if not isinstance(note, str):
        raise VerifierError(f"the verifier {verifier.name!r} returned the note {quote(note)}, but must return a text")
    low, high = verifier.range
    values = [*(score.steps or ())]
    if score.whole is not None:
        values.append(score.whole)
    for value in values:
        is_in_range = math.isfinite(value) and low <= value <= high
        if not is_in_range and not math.isnan(value):
            raise VerifierError(
                f"the verifier {verifier.name!r} returned {value}, but states the range [{low}, {high}]",
                hint="a score is finite, or NaN where it is unknown",
            )
    if score.steps is None:
        return
    num_steps = len(task.split(trajectory.full_text))
    if len(score.steps) not in (num_steps, len(task.split(trajectory.judged_text))):
        raise VerifierError(
            f"the verifier {verifier.name!r} returned {len(score.steps)} step scores for a trajectory of {num_steps} "
            f"steps (node {trajectory.node})"
        )


Scale = Literal["raw", "unit", "log_odds"]  # of scores, as `Search.score` maps them


def to_unit(scores: NDArray[np.float64], bounds: tuple[float, float]) -> NDArray[np.float64]:
    """Map scores from a verifier's range to [0, 1], so that they can be summed as weights; NaN stays NaN.

    A finite range is mapped linearly, with its least score at 0. A range without ends is mapped by the logistic
    function. A range with one end has no scale, so that scores are mapped by their ranks among the given ones.
    """
    low, high = bounds
    if is_half_infinite(bounds):
        return _rank_shares(scores)
    if math.isinf(low):
        return logistic(scores)
    return np.clip((scores - low) / (high - low), 0.0, 1.0)


def is_half_infinite(bounds: tuple[float, float]) -> bool:
    """Whether exactly one end of a range is infinite."""
    return math.isinf(bounds[0]) != math.isinf(bounds[1])


def _rank_shares(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank of each known score among N, divided by N; equal scores share their mean rank."""
    is_known = ~np.isnan(scores)
    _values, place, counts = np.unique(scores[is_known], return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    shares = np.full(scores.shape, math.nan)
    shares[is_known] = (mean_ranks / max(1, int(is_known.sum())))[place]
    return shares


def estimate_unknown(
    scores: NDArray[np.float64], known: NDArray[np.float64] | None = None, otherwise: float = math.nan
) -> NDArray[np.float64]:
    """Return scores with the mean of the known ones in place of each unknown one (NaN).

    An unknown score says nothing of its solution. So it is neither the least score nor left out, which would make the
    others certain.

    Args:
        scores: The scores, of any shape.
        known: Scores of the same problem and scale, for the case that `scores` has no known one.
        otherwise: The value where no score at all is known.
    """
    is_unknown = np.isnan(scores)
    if not is_unknown.any():
        return scores
    source = known if is_unknown.all() and known is not None else scores
    known_scores = source[~np.isnan(source)]
    return np.where(is_unknown, known_scores.mean() if len(known_scores) else otherwise, scores)


def logistic(odds: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return probabilities from their log-odds; NaN stays NaN."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -700.0, 700.0))))  # exp overflows outside of these


_LEAST_UNIT = 1e-7  # scores are clipped to [_LEAST_UNIT, 1 - _LEAST_UNIT]
_MOST_LOG_ODDS = float(np.log1p(-_LEAST_UNIT) - np.log(_LEAST_UNIT))


def to_log_odds(scores: NDArray[np.float64], bounds: tuple[float, float]) -> NDArray[np.float64]:
    """Return ln(r / (1 - r)) of scores in a verifier's range, mapped to [0, 1] and clipped to r.

    Scores in a range without ends count as log-odds, and are clipped.
    """
    if np.isinf(bounds).all():
        return np.clip(scores, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
    r = np.clip(to_unit(scores, bounds), _LEAST_UNIT, 1 - _LEAST_UNIT)
    return np.log(r) - np.log1p(-r)
