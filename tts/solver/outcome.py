"""The results of the parts of a search, its end, and the warnings of its solution."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tts.blame import Blame
from tts.budget.account import Exhausted
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

    A strategy that returns nothing stands for all candidates of the search.

    Raises:
        ConfigError: the strategy returned something else.
    """
    result: Any = await _await_part(lambda: strategy.run(search), lambda: f"the strategy {strategy}")
    if result is None:
        return search.candidates
    listed: list[Any] = list(result) if isinstance(result, Iterable) else [result]
    for wrong in (one for one in listed if not isinstance(one, Candidate)):
        raise ConfigError(
            f"the strategy {strategy} returned {quote(wrong)}, but must return candidates",
            hint="search.finish(t) makes them",
        )
    return result if isinstance(result, Sequence) else listed  # the search's own list may grow yet


async def select(selection: Selection, candidates: Sequence[Candidate], search: Search) -> Selected:
    """Return the choice of a selection.

    Raises:
        TTSError: it returned something else.
    """
    result = await _await_part(lambda: selection.select(candidates, search), lambda: f"the selection {selection}")
    if not isinstance(result, Selected):
        raise TTSError(f"the selection {selection} returned {quote(result)}, but must return a tts.Selected")
    answers: Any = result.answers
    if isinstance(answers, str) or not all(isinstance(answer, str) for answer in answers):
        raise TTSError(
            f"the selection {selection} chose the answers {quote(answers)}, but they must be a tuple of texts"
        )
    return result


def decision_of(rule: StopRule, candidates: Sequence[Candidate]) -> StopDecision | None:
    """Return the decision of a stop rule.

    Raises:
        TTSError: it returned something else.
    """
    decision: Any = rule.should_stop(candidates)
    if decision is not None and not isinstance(decision, StopDecision):
        raise TTSError(
            f"the stop rule {type(rule).__qualname__} returned {quote(decision)}, but must return a tts.StopDecision "
            "or None",
            hint="for example tts.StopDecision('why')",
        )
    return decision


async def _await_part(call: Callable[[], Any], what: Callable[[], str]) -> Any:
    """Call a part's method and await what it returns.

    Whatever it raises is the part's failure, except an end of the search.
    """
    with Blame(what, passes=(SearchEnded, Exhausted)):
        result = call()
        if not inspect.isawaitable(result):
            raise ConfigError(
                f"{what()} returned {quote(result)} without being awaited, but must be async", hint="write async def"
            )
        return await result


@dataclass(slots=True)
class SearchOutcome:
    """How a search ended, filled in on the way."""

    candidates: Sequence[Candidate] = ()
    stopped_by: str = "done"
    stop: StopDecision | None = None
    error: TTSError | None = None
    held: Mapping[str, int] = field(default_factory=dict)  # unused verifier reservation, by unit
    # what was held for the last scores and not needed for them, by unit
    cheaper: Mapping[str, int] = field(default_factory=dict)

    def fail(self, failure: TTSError, search: Search) -> None:
        """Note a failure; the first one is the error of the solution.

        A ConfigError says that nothing was spent. After samples or scores it becomes an error that says what they took.
        """
        spent = search.account.ledger.total()
        if isinstance(failure, ConfigError) and (spent.tokens or spent.samples or spent.verifier_calls):
            samples, mistake = f"{spent.samples:,} sample{'' if spent.samples == 1 else 's'}", failure
            early = "a strategy that declares this in its method needs is refused before anything is spent"
            hint = "; ".join(filter(None, (mistake.hint, early if isinstance(mistake, CapabilityError) else "")))
            failure = TTSError(f"{mistake.cause}; until then, {samples} took {spent.tokens:,} tokens", hint=hint)
            failure.__cause__ = mistake
        self.error, self.stopped_by = self.error or failure, "failed"

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
    """Return the warnings of a solution; `capped`: whether a cap of the caller's ends rows."""
    notes = list(search.notes.warnings)
    for label, source in (("rows", search.rows), ("replies or scores of verifiers", search.scoring)):
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
    unknown = search.scoring.unknown
    notes += [
        f"{number} of {unknown[label, 'of']} {label}"
        + (f": the longest by {over:,} tokens" if (over := unknown[label, "over"]) else "")
        for (label, kind), number in unknown.items()
        if kind == "number" and number
    ]
    notes += _free_text_warning(search, outcome, selection)
    unpaid = sum(c.trajectory.node in search.scoring.unpaid for c in outcome.candidates)
    if unpaid:
        notes.append(f"{unpaid} of {len(outcome.candidates)} candidates could not be scored within the budget")
    notes += _cut_short(search, usage, capped=capped)
    notes += _endless_thoughts(outcome.candidates)
    idle = f"verifier calls that {selection} did not make" if outcome.held else ""
    reserves: list[str] = []
    for amounts, label in (
        (outcome.held, idle),
        (outcome.cheaper, "scores that cost less: what candidates have in common is read once"),
    ):
        shares = {unit: amount / search.account.limit(unit) for unit, amount in amounts.items()}
        reserves += [
            f"{share:.0%} of the {unit} were held for {label}"
            for unit, share in shares.items()
            if share >= _WORTH_SAYING
        ]
    return [*notes, *_left_over(search, outcome, explained=bool(reserves)), *reserves]


def _free_text_warning(search: Search, outcome: SearchOutcome, selection: Selection) -> list[str]:
    """Return the warning that a vote over free texts chose little more than the first of them."""
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
    """Return the warning that many tokens went into solutions cut short without an answer.

    The warning states the length that solutions need.
    """
    share = usage.truncated_tokens / max(1, usage.generated_tokens)
    if share <= _WORTH_SAYING:
        return []
    lengths = search.rows.sizes.lengths("solve")
    cut = sum(c.truncated and c.answer is None for c in search.candidates)
    length = (
        f"they take about {lengths.expected_length():,} tokens"
        if lengths.ended
        else f"they take more than {lengths.longest:,} tokens"
    )
    return [
        f"{share:.0%} of the generated tokens went into {cut} of {len(search.candidates)} candidates that were cut "
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
    """Return the warning that much of the budget is left.

    It may not pay another solution to its end, or its score.

    Args:
        search: The search.
        outcome: Its end.
        explained: Whether another warning says what the rest was held for.
    """
    unit, account = outcome.stopped_by.removeprefix("budget: "), search.account
    if (
        unit not in account.units
        or unit == "samples"
        or not (available := account.available(unit))
        or available < _WORTH_SAYING * account.limit(unit)
    ):
        return []
    cost = search.rows.sizes.sample_bound()
    tokens = search.rows.sizes.lengths("solve").expected_length()
    remainder = f"{available:,} {unit}" if unit != "usd" else f"{available / account.limit(unit):.0%} of the usd"
    if (needed := cost.bound(unit, tokens)) <= available:
        return [] if explained else [f"{remainder} are left, but what the strategy would do next may take more"]
    scored = f", {cost.reserve(unit, tokens):,} of them for its score" if cost.reserve(unit, tokens) else ""
    return [
        f"{remainder} are left, but one more solution may take {'more' if unit == 'usd' else f'{needed:,}{scored}'}"
    ]


def truncated_tokens(search: Search) -> int:
    """Return the tokens that belong only to candidates that were cut short without an answer."""
    cut = [c.trajectory for c in search.candidates if c.truncated and c.answer is None]
    if not cut:
        return 0
    kept_nodes = search.tree.path_nodes(
        [c.trajectory for c in search.candidates if not c.truncated or c.answer is not None]
    )
    nodes = (search.tree.nodes[number] for number in search.tree.path_nodes(cut) - kept_nodes)
    return sum(search.tree.own_tokens(node) for node in nodes if node.parent is not None)


def cause_of(kind: str, causes: Mapping[str, str]) -> str:
    """Return a kind of failure with the cause of its first failure."""
    cause = causes.get(kind)
    return f"{kind}: {cause}" if cause else kind
