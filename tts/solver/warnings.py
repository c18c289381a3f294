"""The end of a search, and the warnings of its solution."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tts.budget.units import LENGTH_UNITS, PLACE_UNITS
from tts.errors import TROUBLES, CapabilityError, ConfigError, TTSError, VerifierError
from tts.search.ends import CallNotes, StopDecision
from tts.search.parts import Selected
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.search.writer import Writer
from tts.solver.setup import OnError, Setup
from tts.tasks.base import Task
from tts.tasks.text import TextTask
from tts.types import Candidate, Usage

_FEWEST_VOTES = 3  # votes of which a warning says that they are all alone
_REPORTED_SHARE = 0.1  # share of a limit, or of the tokens, that may be left over or lost without a warning


@dataclass(slots=True)
class SearchOutcome:
    """How a search ended, filled in on the way.

    Attributes:
        candidates: The candidates among which the selection chooses.
        stopped_by: Why the search ended.
        stop: The decision of the stop rule that ended it; None: none did.
        error: The first failure.
        held: What was held for scores and not spent, by unit.
        cheaper: The part of what was held that the last scores did not need, because they cost less, by unit.
    """

    candidates: Sequence[Candidate] = ()
    stopped_by: str = "done"
    stop: StopDecision | None = None
    error: TTSError | None = None
    held: Mapping[str, int] = field(default_factory=dict)
    cheaper: Mapping[str, int] = field(default_factory=dict)

    def fail(self, failure: TTSError, search: Search) -> None:
        """Note a failure; the first one is the error of the solution.

        A ConfigError means that nothing was spent. After samples or scores it is replaced by an error that states what
        they took.
        """
        spent = search.account.ledger.total()
        if isinstance(failure, ConfigError) and (spent.tokens or spent.samples or spent.verifier_calls):
            samples = "1 sample" if spent.samples == 1 else f"{spent.samples:,} samples"
            hints = [failure.hint]
            if isinstance(failure, CapabilityError):
                hints.append("a strategy that declares this in its method needs is refused before anything is spent")
            replacement = TTSError(
                f"{failure.cause}; until then, {samples} took {spent.tokens:,} tokens",
                hint="; ".join(hint for hint in hints if hint),
            )
            replacement.__cause__ = failure
            failure = replacement
        self.error = self.error or failure
        self.stopped_by = "failed"

    def is_unjudged(self, on_error: OnError) -> bool:
        """Return whether a verifier failed under `on_error` of "raise".

        The verifier is then not called again, and the vote in its place has no confidence.
        """
        return isinstance(self.error, VerifierError) and on_error == "raise"


def solution_warnings(
    setup: Setup, search: Search, outcome: SearchOutcome, selected: Selected, usage: Usage
) -> Iterator[str]:
    """Yield the warnings of a solution.

    Args:
        setup: The setup of the run.
        search: The search.
        outcome: The outcome of the search.
        selected: The choice of the selection.
        usage: The usage of the whole run.
    """
    yield from search.notes.warnings
    yield from _failures("rows", search.rows)
    yield from _failures("replies or scores of verifiers", search.scoring.notes)
    if outcome.error is not None:
        yield f"the run failed: {outcome.error.cause}"
    count = len(outcome.candidates)
    if selected.abstained:
        yield selected.abstained
    elif not selected.answers and count:
        yield f"no answer was found in {count} candidate{'' if count == 1 else 's'}: see {TROUBLES}"
    elif not selected.answers and outcome.error is None:
        yield "no candidate was completed, so there is no answer"
    yield from _unknown_scores(search)
    if isinstance(setup.selection, Majority):
        is_text = isinstance(search.task, TextTask)
        yield from _free_text_votes(outcome.candidates) if is_text else _lone_votes(outcome.candidates, search.task)
    unpaid = sum([c.trajectory.node in search.scoring.unpaid for c in outcome.candidates])
    if unpaid:
        yield f"{unpaid} of {count} candidates could not be scored within the budget"
    yield from _cut_short(search, usage, capped=setup.sampling.max_tokens is not None)
    num_thinking = sum([c.answer is None and c.trajectory.is_thinking for c in outcome.candidates])
    if num_thinking:
        yield (
            f"{num_thinking} of {count} candidates did not end their thought: give a larger budget, or, where the "
            "model's backend can continue text, strategy='budget_forcing(thought_tokens=…)' below the budget, which "
            "ends thoughts"
        )
    reserves = [
        *_reserves(search, outcome.held, f"verifier calls that {setup.selection} did not make"),
        *_reserves(search, outcome.cheaper, "scores that cost less: what candidates have in common is read once"),
    ]
    yield from _left_over(search, outcome, explained=bool(reserves))
    yield from _left_over_by_one_start(search, outcome)
    yield from reserves


def _unknown_scores(search: Search) -> Iterator[str]:
    """Yield a warning for each kind of unknown scores, with their number."""
    unknown = search.scoring.notes.unknown
    for (label, kind), number in unknown.items():
        if kind == "number" and number:
            excess = unknown[label, "over"]
            excess_text = f": the longest by {excess:,} tokens" if excess else ""
            yield f"{number} of {unknown[label, 'of']} {label}{excess_text}"
    for role, value in search.scoring.strays.items():
        low, high = search.scoring.range_of(role)
        yield (
            f"the first scores of the verifier {role!r} lay in [{low:g}, {high:g}], which was taken as its range, "
            f"but a later one is {value:g}: such scores count as the nearest end; state the range, by "
            "FunctionVerifier(fn, range=(low, high))"
        )


def _reserves(search: Search, amounts: Mapping[str, int], label: str) -> Iterator[str]:
    """Yield a warning for each unit of which a large share was held for a purpose and not used."""
    for unit, amount in amounts.items():
        share = amount / search.account.limit(unit)
        if share >= _REPORTED_SHARE:
            yield f"{share:.0%} of the {unit} were held for {label}"


def _free_text_votes(candidates: Sequence[Candidate]) -> Iterator[str]:
    """Yield the warning that no answer has more than half of the votes on free texts."""
    classes = Counter(c.answer_class for c in candidates if c.answer is not None)
    agreed = max(classes.values(), default=0)
    if classes.total() >= 2 and 2 * agreed <= classes.total():
        yield (
            f"votes on free text count equal texts, which means nothing here: {agreed} of {classes.total()} agree; "
            "give verifier='judge' with the selection best or pairwise, or take the selection medoid"
        )


def _lone_votes(candidates: Sequence[Candidate], task: Task) -> Iterator[str]:
    """Yield the warning that no two candidates agree, where at least three vote without weights of their strategy.

    Of JSON whose members all vote, it is also told that no answer has more than half of the votes.
    """
    voters = [c.answer_class for c in candidates if c.answer_class is not None and math.isnan(c.weight)]
    agreed = max(Counter(voters).values(), default=0)
    is_whole = task.name.startswith("json") and "vote=" not in task.name.rpartition("}")[2]
    if len(voters) >= _FEWEST_VOTES and (agreed == 1 or (is_whole and 2 * agreed <= len(voters))):
        hint = "let the members that must agree vote: json(…, vote=('…',))" if is_whole else "draw more"
        yield f"{'every vote is alone' if agreed == 1 else f'{agreed} votes agree'} of {len(voters)}: {hint}"


def _cut_short(search: Search, usage: Usage, *, capped: bool) -> Iterator[str]:
    """Yield the warning that many tokens went into solutions that were cut short without an answer.

    The warning states the length that solutions need.

    Args:
        search: The search.
        usage: The usage of the whole run.
        capped: Whether the caller's `max_tokens` ends rows.
    """
    share = usage.truncated_tokens / max(1, usage.generated_tokens)
    if share <= _REPORTED_SHARE:
        return
    lengths = search.rows.lengths.get("solve")
    about = f"; they take about {lengths.expected_length():,} tokens" if lengths.ended else ""
    if not about and (capped or not search.left.keys().isdisjoint(LENGTH_UNITS)):  # else no limit cut a text
        about = f"; they take more than {lengths.longest:,} tokens"
    num_cut = sum(c.truncated and c.answer is None for c in search.candidates)
    yield (
        f"{share:.0%} of the generated tokens went into {num_cut} of {len(search.candidates)} candidates that were cut "
        f"short without an answer{about}: give a larger budget{', or max_tokens' if capped else ''}"
    )


def _left_over(search: Search, outcome: SearchOutcome, *, explained: bool) -> Iterator[str]:
    """Yield the warning that much is left of the limit that ended the search.

    Such an amount may not pay another solution, or not the strategy's next call.

    Args:
        search: The search.
        outcome: The outcome of the search.
        explained: Whether another warning states what the remaining amount was held for.
    """
    account = search.account
    unit = outcome.stopped_by.removeprefix("budget: ")  # a unit only if a limit ended the search
    if unit not in account.units or unit == "samples":
        return
    available = account.available(unit)
    if not available or available < _REPORTED_SHARE * account.limit(unit):
        return
    price = search.rows.sample_price()
    tokens = search.rows.lengths.get("solve").expected_length()
    needed, needed_for_score = (
        price.amount(unit, tokens) + int(unit in PLACE_UNITS),
        price.reserve(unit, tokens),
    )  # the latter is a part of the former
    remainder, needed_text = f"{available:,} {unit}", f"{needed:,}"
    if unit == "usd":
        remainder, needed_text = f"{available / account.limit(unit):.0%} of the usd", "more"
    elif needed_for_score:
        needed_text = f"{needed:,}, {needed_for_score:,} of them for its score"
    if needed > available:
        yield f"{remainder} are left, but one more solution may take {needed_text}"
    elif not explained:
        yield f"{remainder} are left, but what the strategy would do next may take more"


def _left_over_by_one_start(search: Search, outcome: SearchOutcome) -> Iterator[str]:
    """Yield the warning that solutions which all began at once left much of every limit."""
    account = search.account
    remainder = account.remainder()  # seconds included
    if outcome.stopped_by != "done" or not search.rows.begins_all_at_once or not remainder:
        return
    limits = account.limits
    shares_left = {unit: left / limits[unit] for unit, left in remainder.items()}
    unit = min(shares_left, key=shares_left.__getitem__)
    if shares_left[unit] >= _REPORTED_SHARE:
        explanation = "all solutions begin at once under this stop rule, and none begins later"
        yield f"{shares_left[unit]:.0%} of the {unit} are left: {explanation}"


def _failures(label: str, source: Writer | CallNotes) -> Iterator[str]:
    """Yield the warnings of failed and of repeated rows, replies or scores; `label` names them."""
    for kind, count in source.failures.items():
        repeats, cause = source.repeats[kind], cause_of(kind, source.causes)
        if count > repeats:
            yield f"{count - repeats} {label} failed: {cause}"
        if repeats:
            yield f"{repeats} {label} were repeated after {cause}"


def cause_of(kind: str, causes: Mapping[str, str]) -> str:
    """Return a kind of failure with the cause of its first failure."""
    cause = causes.get(kind)
    return f"{kind}: {cause}" if cause else kind
