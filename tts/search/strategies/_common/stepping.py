"""One more step of many paths, shared by all stepwise methods.

A path takes at most `max_steps` steps. The last one has no step boundary and runs to the end of the solution. After an
empty step, the next runs to the end as well. Paths that have ended become candidates at once, so that none is lost when
the budget ends the search.

Source: algorithm dossier 0.2, 0.3 (search-and-learn: 40 steps; on the last one the stop text is removed). Differs: an
empty step does not end a path, for the text so far is no answer; it makes the next step the last.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tts.budget.units import FIXED_UNITS, PRICED_UNITS, TOKEN_UNITS
from tts.search.ends import END, ROWS_FAILED, STEP, SearchEnded, Share, Stops, Tokens, Until
from tts.search.lengths import waves_of
from tts.search.search import Search
from tts.types import Candidate, Trajectory

MAX_STEPS = 40
_IDLE = 64  # consecutive rounds that may spend no limited unit, as a path of many steps costs one sample
_OF_READING = (*PRICED_UNITS, "requests")  # units that a call without a new token may spend
_TRIES = 3  # tries of a call whose rows all fail; each try has draws of its own


def spent_amounts(search: Search) -> dict[str, float]:
    """Return the amounts spent in tokens, verifier calls and samples.

    FLOPs and dollars are left out: they follow from the other units, and input tokens alone cost some. So are requests,
    which write nothing where a model has nothing to add.
    """
    return {unit: amount for unit, amount in search.account.spent.items() if unit not in _OF_READING}


def rounds(search: Search, n: int | None) -> Iterator[int]:
    """Count the rounds of a search: n, or as many as the budget pays, one after another.

    Raises:
        SearchEnded: n is None, and a round has spent nothing, or many consecutive rounds have spent no limited unit.
            Where time is limited, many consecutive rounds without a token end the search.
    """
    if n is not None:
        yield from range(n)
        return
    spent_earlier, earlier_amounts_left, num_idle = spent_amounts(search), search.left, 0
    has_time_limit = "seconds" in earlier_amounts_left
    for k in itertools.count():
        yield k
        spent = spent_amounts(search)
        if has_time_limit:  # count tokens: reading the clock costs a system call, and seconds do not measure a round
            is_idle = _tokens(spent) == _tokens(spent_earlier)
        else:
            amounts_left = search.left
            is_idle = amounts_left == earlier_amounts_left
            earlier_amounts_left = amounts_left
        num_idle = num_idle + 1 if is_idle else 0
        if spent == spent_earlier or num_idle > _IDLE:
            raise SearchEnded("nothing is spent any more")
        spent_earlier = spent


def _tokens(spent: Mapping[str, float]) -> float:
    """Return the number of tokens among the amounts spent."""
    return sum(spent[unit] for unit in TOKEN_UNITS)


async def affordable_width(search: Search, temperature: float | None = None, *, stepwise: bool = True) -> int:
    """Return the number of paths that the budget pays, by the known lengths; at least 1.

    Where tokens are limited and no solution is known, a plain solution is written first to learn its length.

    Args:
        search: The search.
        temperature: The temperature of the plain solution; None: the run's.
        stepwise: Whether paths are scored at each step.

    Raises:
        SearchEnded: the budget is used up.
    """
    limits_by_length = search.left.keys() - {*FIXED_UNITS, "seconds"}
    if not search.candidates and limits_by_length:
        await search.complete([search.root], temperature=temperature)
    return search.affordable_samples(stepwise=stepwise) or 1


async def draw(search: Search, ts: Iterable[Trajectory], temperature: float | None = None) -> list[Candidate]:
    """Write each active path to its end, and return the candidates.

    Rows that failed or could not start are drawn again.

    Args:
        search: The search.
        ts: The paths, taken in waves, so that an iterator may have more paths than the budget pays.
        temperature: The temperature; None: the run's.

    Raises:
        SearchEnded: as `advance`.
    """
    candidates: list[Candidate] = []
    for wave in waves_of(ts):
        by_path: list[Candidate | None] = [None] * len(wave)
        missing = list(range(len(wave)))  # places of paths without a candidate
        while missing:
            families = await advance(search, [wave[i] for i in missing], until=END, temperature=temperature)
            for i, children in zip(missing, families, strict=True):
                by_path[i] = search.finish(children[0]) if children else None
            missing = [i for i in missing if by_path[i] is None]
        candidates += [candidate for candidate in by_path if candidate is not None]
    return candidates


def is_stalled(t: Trajectory) -> bool:
    """Whether the last step of a path added no token."""
    return t.parent is not None and t.num_tokens == t.parent.num_tokens


async def advance(
    search: Search,
    ts: Iterable[Trajectory],
    n: int = 1,
    *,
    max_steps: int = MAX_STEPS,
    temperature: float | None = None,
    until: Until | Tokens | Share | Stops = STEP,
    finishes: bool = True,
) -> list[list[Trajectory]]:
    """Return up to n children of each active path, in order, one step longer.

    Paths are taken in waves, so that an iterator may have more paths than the budget pays. Only paths of waves that
    began have a list of children.

    Args:
        search: The search.
        ts: The paths; a path listed twice is two requests.
        n: The children of each path.
        max_steps: The most steps of a path.
        temperature: The temperature; None: the run's.
        until: The end of a step.
        finishes: Whether children that ended become candidates at once.

    Raises:
        SearchEnded: not one row can start, every row failed three times, or the stop rule fires.
    """
    by_path: list[list[Trajectory]] = []
    unbegun_before = search.rows.unbegun
    for wave in waves_of(ts):
        try:
            for _ in range(_TRIES):
                children = await one_step(
                    search, wave, n, max_steps=max_steps, temperature=temperature, until=until, finishes=finishes
                )
                if any(children):
                    break
            else:  # no try gave a child
                raise SearchEnded(ROWS_FAILED)
        except SearchEnded as end:
            # the children of earlier waves are returned, unless a stop rule ended the search
            if end.stop is not None or not by_path:
                raise
            break
        by_path += children
        if search.rows.unbegun > unbegun_before:  # the budget did not pay some rows
            break
    return by_path


def subtree_width(n: int, branching: int, g: int) -> int:
    """Return the width of subtree g if n paths are divided into subtrees of at most `branching` paths."""
    return min(branching, n - g * branching)


async def siblings_of(
    search: Search,
    prefixes: Mapping[int, Trajectory] | None,
    n: int,
    branching: int,
    *,
    max_steps: int,
    temperature: float | None,
) -> dict[int, list[Trajectory]]:
    """Return the next steps of each subtree by its number: as many as its width, all after its prefix.

    Args:
        search: The search.
        prefixes: The path of each open subtree; None: the root for all subtrees.
        n: The paths of all subtrees together.
        branching: The most paths of a subtree.
        max_steps: The most steps of a path.
        temperature: The temperature; None: the run's.

    Raises:
        SearchEnded: as `advance`.
    """

    def rows() -> Iterator[tuple[int, Trajectory]]:
        num_subtrees = -(-n // branching)  # rounded up
        all_from_root = enumerate(itertools.repeat(search.root, num_subtrees))
        for subtree, prefix in all_from_root if prefixes is None else prefixes.items():
            yield from itertools.repeat((subtree, prefix), subtree_width(n, branching, subtree))

    families = await advance(search, (prefix for _, prefix in rows()), max_steps=max_steps, temperature=temperature)
    siblings: dict[int, list[Trajectory]] = {}
    for children, (subtree, _) in zip(families, rows(), strict=False):  # rows that did not begin have no list
        siblings.setdefault(subtree, []).extend(children)
    return siblings


async def one_step(
    search: Search,
    ts: Sequence[Trajectory],
    n: int = 1,
    *,
    max_steps: int = MAX_STEPS,
    temperature: float | None = None,
    until: Until | Tokens | Share | Stops = STEP,
    model: str = "policy",
    finishes: bool = False,
) -> list[list[Trajectory]]:
    """Write one step after each path by the model of a role, once, and return up to n children of each.

    Raises:
        SearchEnded: not one row can start.
    """
    children: list[list[Trajectory]] = [[] for _ in ts]
    at_last_step = {i for i, t in enumerate(ts) if t.depth + 1 >= max_steps or is_stalled(t)}
    endless = {i for i in at_last_step if ts[i].depth >= max_steps + _TRIES}  # still open after several last steps
    before_last_step = [i for i in range(len(ts)) if i not in at_last_step]
    for step_end, places in ((until, before_last_step), (END, sorted(at_last_step - endless))):
        families = await search.expand([ts[i] for i in places], n, step_end, temperature=temperature, model=model)
        for i, siblings in zip(places, families, strict=True):
            children[i] = siblings
        if finishes:
            for child in itertools.chain.from_iterable(families):
                search.finish(child)
    return children
