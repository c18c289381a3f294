"""What a strategy and a selection return, checked: they are other people's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tts.blame import Blame
from tts.budget.account import Exhausted
from tts.errors import ConfigError, TTSError, shown
from tts.search.ends import SearchEnded, StopDecision
from tts.search.parts import Selected, Selection, StopRule, Strategy
from tts.search.search import Search
from tts.types import Candidate


def blame_unnamed() -> Blame:
    """Return the context in which parts of a run are called that name no part of their own; ends of a search pass."""
    return Blame("something that the run called", passes=(SearchEnded,))


async def candidates_of(strategy: Strategy, search: Search) -> Sequence[Candidate]:
    """Run a strategy and return its candidates; a strategy that returns nothing means all that the search has.

    Raises:
        ConfigError: it returned something else.
    """
    made: Any = await _awaited(lambda: strategy.run(search), f"the strategy {strategy}")
    if made is None:
        return search.candidates
    listed: list[Any] = list(made) if isinstance(made, Iterable) else [made]
    for wrong in (one for one in listed if not isinstance(one, Candidate)):
        raise ConfigError(
            f"the strategy {strategy} returned {shown(wrong)}, but must return candidates", hint="search.finish(t) makes them"
        )
    return made if isinstance(made, Sequence) else listed  # the search's own list may grow yet


async def selected_by(selection: Selection, candidates: Sequence[Candidate], search: Search) -> Selected:
    """Return what a selection chooses.

    Raises:
        TTSError: it returned something else.
    """
    made = await _awaited(lambda: selection.select(candidates, search), f"the selection {selection}")
    if not isinstance(made, Selected):
        raise TTSError(f"the selection {selection} returned {shown(made)}, but must return a tts.Selected")
    answers: Any = made.answers
    if isinstance(answers, str) or not all(isinstance(answer, str) for answer in answers):
        raise TTSError(f"the selection {selection} chose the answers {shown(answers)}, but they must be a tuple of texts")
    return made


def decision_of(rule: StopRule, candidates: Sequence[Candidate]) -> StopDecision | None:
    """Return what a stop rule decides.

    Raises:
        TTSError: it returned something else.
    """
    decision: Any = rule.should_stop(candidates)
    if decision is not None and not isinstance(decision, StopDecision):
        raise TTSError(
            f"the stop rule {type(rule).__qualname__} returned {shown(decision)}, but must return a tts.StopDecision or None",
            hint="for example tts.StopDecision('why')",
        )
    return decision


async def _awaited(call: Callable[[], Any], what: str) -> Any:
    """Call a part's method and await what it returns; whatever else than an end of the search it raises, is the part's failure."""
    with Blame(what, passes=(SearchEnded, Exhausted)):
        made = call()
        if not inspect.isawaitable(made):
            raise ConfigError(f"{what} returned {shown(made)} without being awaited, but must be async", hint="write async def")
        return await made
