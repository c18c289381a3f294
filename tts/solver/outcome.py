"""The results of the parts of a search, its end, and the warnings of its solution."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tts._common.blame import Blame
from tts.budget.account import Exhausted
from tts.budget.units import PLACE_UNITS
from tts.errors import TROUBLES, CapabilityError, ConfigError, TTSError, VerifierError, quote
from tts.search.ends import SearchEnded, StopDecision
from tts.search.parts import Selected, Selection, StopRule, Strategy
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.types import Candidate, Usage

OnError = Literal["raise", "keep"]  # what a failed verifier does to a solution

_WORTH_SAYING = 0.1  # share of a limit, or of the tokens, that may be left over or lost without a warning


def blame_context() -> Blame:
    """Return the context in which unnamed parts of a run are called.

    Ends of a search pass through it.
    """
    return Blame("something that the run called", passes=(SearchEnded,))


async def candidates_of(strategy: Strategy, search: Search) -> Sequence[Candidate]:
    """Run a strategy and return its candidates.

    Where the strategy returns None, they are all candidates of the search.

    Raises:
        ConfigError: the strategy returned something other than candidates.
    """
    result: Any = await _await_part(lambda: strategy.run(search), lambda: f"the strategy {strategy}", search, 1.0)
    if result is None:
        return search.candidates
    listed: list[Any] = list(result) if isinstance(result, Iterable) else [result]
    for item in listed:
        if not isinstance(item, Candidate):
            raise ConfigError(
                f"the strategy {strategy} returned {quote(item)}, but must return candidates",
                hint="search.finish(t) makes them",
            )
    return result if isinstance(result, Sequence) else listed  # not a copy: the search's own list may still grow


async def select(selection: Selection, candidates: Sequence[Candidate], search: Search) -> Selected:
    """Return the choice of a selection.

    Raises:
        TTSError: the selection returned no `Selected`, or one whose answers are no texts.
    """
    result = await _await_part(
        lambda: selection.select(candidates, search), lambda: f"the selection {selection}", search, 5.0
    )
    if not isinstance(result, Selected):
        raise TTSError(f"the selection {selection} returned {quote(result)}, but must return a tts.Selected")
    answers: Any = result.answers
    if isinstance(answers, str) or not all(isinstance(answer, str) for answer in answers):
        raise TTSError(
            f"the selection {selection} chose the answers {quote(answers)}, but they must be a tuple of texts"
        )
    return result


def decision_of(rule: StopRule, candidates: Sequence[Candidate]) -> StopDecision | None:
    """Return the decision of a stop rule; None: the search goes on.

    Raises:
        TTSError: the rule returned something else.
    """
    decision: Any = rule.should_stop(candidates)
    if decision is not None and not isinstance(decision, StopDecision):
        raise TTSError(
            f"the stop rule {type(rule).__qualname__} returned {quote(decision)}, but must return a tts.StopDecision "
            "or None",
            hint="for example tts.StopDecision('why')",
        )
    return decision


async def _await_part(call: Callable[[], Any], what: Callable[[], str], search: Search, grace_s: float) -> Any:
    """Call a part's method and await its result.

    An exception is a failure of the part, except one that ends the search.

    Args:
        call: A function that calls the method.
        what: A function that returns the name of the part in errors.
        search: The search, whose `seconds` end the part.
        grace_s: The seconds after that end in which the part may return.

    Raises:
        SearchEnded: The time is over, and the part awaits something else than the search.
    """
    with Blame(what, passes=(SearchEnded, Exhausted)):
        result = call()
        if not inspect.isawaitable(result):
            raise ConfigError(
                f"{what()} returned {quote(result)} without being awaited, but must be async", hint="write async def"
            )
        if search.account.seconds_left is None:
            return await result
        task = asyncio.ensure_future(result)
        try:
            while not task.done():
                seconds_left = search.account.seconds_left or 0.0
                await asyncio.wait({task}, timeout=seconds_left + grace_s)
                if not task.done() and search.account.seconds_left == 0 and not search.is_busy:
                    raise SearchEnded("budget: seconds")
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=grace_s)


@dataclass(slots=True)
class SearchOutcome:
    """How a search ended, filled in on the way."""

    candidates: Sequence[Candidate] = ()
    stopped_by: str = "done"
    stop: StopDecision | None = None
    error: TTSError | None = None
    held: Mapping[str, int] = field(default_factory=dict)  # unused verifier reservation, by unit
    # the part of the reservation that the last scores did not need, because they cost less, by unit
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


def warnings_of(
    search: Search,
    outcome: SearchOutcome,
    selected: Selected,
    *,
    usage: Usage,
    selection: Selection,
    capped: bool,
) -> list[str]:
    """Return the warnings of a solution.

    Args:
        search: The search.
        outcome: The outcome of the search.
        selected: The choice of the selection.
        usage: The usage of the whole run.
        selection: The selection.
        capped: Whether the caller's `max_tokens` ends rows.
    """
    notes = list(search.notes.warnings)
    for label, source in (("rows", search.rows), ("replies or scores of verifiers", search.scoring.notes)):
        notes += [f"{count} {label} failed: {cause_of(kind, source.causes)}" for kind, count in source.failures.items()]
    if outcome.error is not None:
        notes.append(f"the run failed: {outcome.error.cause}")
    if selected.abstained:
        notes.append(selected.abstained)
    elif not selected.answers and outcome.candidates:
        count = len(outcome.candidates)
        notes.append(f"no answer was found in {count} candidate{'' if count == 1 else 's'}: see {TROUBLES}")
    elif not selected.answers and outcome.error is None:
        notes.append("no candidate was completed, so there is no answer")
    notes += _unknown_score_warnings(search)
    notes += _free_text_warning(search, outcome, selection)
    unpaid = sum(c.trajectory.node in search.scoring.unpaid for c in outcome.candidates)
    if unpaid:
        notes.append(f"{unpaid} of {len(outcome.candidates)} candidates could not be scored within the budget")
    notes += _cut_short(search, usage, capped=capped)
    notes += _endless_thoughts(outcome.candidates)
    reserve_notes = [
        *_reserve_warnings(search, outcome.held, f"verifier calls that {selection} did not make"),
        *_reserve_warnings(
            search, outcome.cheaper, "scores that cost less: what candidates have in common is read once"
        ),
    ]
    notes += _left_over(search, outcome, explained=bool(reserve_notes))
    notes += _left_over_by_one_start(search, outcome)
    return [*notes, *reserve_notes]


def _unknown_score_warnings(search: Search) -> list[str]:
    """Return a warning for each kind of unknown scores, with their number."""
    unknown = search.scoring.notes.unknown
    notes: list[str] = []
    for (label, kind), number in unknown.items():
        if kind == "number" and number:
            excess = unknown[label, "over"]
            excess_text = f": the longest by {excess:,} tokens" if excess else ""
            notes.append(f"{number} of {unknown[label, 'of']} {label}{excess_text}")
    for role, value in search.scoring.strays.items():
        low, high = search.scoring.range_of(role)
        notes.append(
            f"the first scores of the verifier {role!r} lay in [{low:g}, {high:g}], which was taken as its range, "
            f"but a later one is {value:g}: such scores count as the nearest end; state the range, by "
            "FunctionVerifier(fn, range=(low, high))"
        )
    return notes


def _reserve_warnings(search: Search, amounts: Mapping[str, int], label: str) -> list[str]:
    """Return a warning for each unit of which a large share was held for a purpose and not used."""
    shares = {unit: amount / search.account.limit(unit) for unit, amount in amounts.items()}
    return [
        f"{share:.0%} of the {unit} were held for {label}" for unit, share in shares.items() if share >= _WORTH_SAYING
    ]


def _free_text_warning(search: Search, outcome: SearchOutcome, selection: Selection) -> list[str]:
    """Return the warning that no answer has more than half of the votes on free texts."""
    if search.task.name != "text" or not isinstance(selection, Majority):
        return []
    voters = [c for c in outcome.candidates if c.answer is not None]
    agreed = max(Counter(c.answer_class for c in voters).values(), default=0)
    if len(voters) < 2 or 2 * agreed > len(voters):
        return []
    return [
        f"votes on free text count equal texts, which means nothing here: {agreed} of {len(voters)} agree; give "
        "verifier='judge' with the "
        "selection best or pairwise, or take the selection medoid"
    ]


def _cut_short(search: Search, usage: Usage, *, capped: bool) -> list[str]:
    """Return the warning that many tokens went into solutions that were cut short without an answer.

    The warning states the length that solutions need.
    """
    share = usage.truncated_tokens / max(1, usage.generated_tokens)
    if share <= _WORTH_SAYING:
        return []
    lengths = search.rows.lengths.of("solve")
    num_cut = sum(c.truncated and c.answer is None for c in search.candidates)
    length = (
        f"they take about {lengths.expected_length():,} tokens"
        if lengths.ended
        else f"they take more than {lengths.longest:,} tokens"
    )
    return [
        f"{share:.0%} of the generated tokens went into {num_cut} of {len(search.candidates)} candidates that were cut "
        "short "
        f"without an answer; {length}: give a larger budget{', or max_tokens' if capped else ''}"
    ]


def _endless_thoughts(candidates: Sequence[Candidate]) -> list[str]:
    """Return the warning that solutions never came to the end of their thought."""
    count = sum(c.answer is None and c.trajectory.is_thinking for c in candidates)
    if not count:
        return []
    return [
        f"{count} of {len(candidates)} candidates did not end their thought: give a larger budget, or, where the "
        "model's backend can "
        "continue text, strategy='budget_forcing(thought_tokens=…)' below the budget, which ends thoughts"
    ]


def _left_over(search: Search, outcome: SearchOutcome, *, explained: bool) -> list[str]:
    """Return the warning that much is left of the limit that ended the search; an empty list if little is left.

    Such an amount may not pay another solution, or not the strategy's next call.

    Args:
        search: The search.
        outcome: The outcome of the search.
        explained: Whether another warning states what the remaining amount was held for.
    """
    account = search.account
    unit = outcome.stopped_by.removeprefix("budget: ")  # a unit only if a limit ended the search
    if unit not in account.units or unit == "samples":
        return []
    available = account.available(unit)
    if not available or available < _WORTH_SAYING * account.limit(unit):
        return []
    price = search.rows.sample_price()
    tokens = search.rows.lengths.of("solve").expected_length()
    remainder = f"{available:,} {unit}" if unit != "usd" else f"{available / account.limit(unit):.0%} of the usd"
    needed = price.amount(unit, tokens) + int(unit in PLACE_UNITS)
    if needed <= available:
        return [] if explained else [f"{remainder} are left, but what the strategy would do next may take more"]
    needed_for_score = price.reserve(unit, tokens)  # a part of `needed`
    if unit == "usd":
        needed_text = "more"
    elif needed_for_score:
        needed_text = f"{needed:,}, {needed_for_score:,} of them for its score"
    else:
        needed_text = f"{needed:,}"
    return [f"{remainder} are left, but one more solution may take {needed_text}"]


def _left_over_by_one_start(search: Search, outcome: SearchOutcome) -> list[str]:
    """Return the warning that solutions which all began at once left much of every limit; else an empty list."""
    account = search.account
    if outcome.stopped_by != "done" or not search.rows.begins_all_at_once or not account.units:
        return []
    shares_left = {unit: account.available(unit) / account.limit(unit) for unit in account.units}
    scarcest_unit = min(shares_left, key=shares_left.__getitem__)
    if shares_left[scarcest_unit] < _WORTH_SAYING:
        return []
    explanation = "all solutions begin at once under this stop rule, and none begins later"
    return [f"{shares_left[scarcest_unit]:.0%} of the {scarcest_unit} are left: {explanation}"]


def truncated_tokens(search: Search) -> int:
    """Return the tokens that belong only to candidates that were cut short without an answer."""
    cut_paths = [c.trajectory for c in search.candidates if c.truncated and c.answer is None]
    if not cut_paths:
        return 0
    other_paths = [c.trajectory for c in search.candidates if not c.truncated or c.answer is not None]
    tree = search.tree
    lost_numbers = tree.path_nodes(cut_paths) - tree.path_nodes(other_paths)
    lost_nodes = [tree.nodes[number] for number in lost_numbers]
    return sum(tree.own_tokens(node) for node in lost_nodes if node.parent is not None)


def cause_of(kind: str, causes: Mapping[str, str]) -> str:
    """Return a kind of failure with the cause of its first failure."""
    cause = causes.get(kind)
    return f"{kind}: {cause}" if cause else kind
