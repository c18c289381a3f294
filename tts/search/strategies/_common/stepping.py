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

from tts.search.ends import END, STEP, SearchEnded, Stops, Tokens, Until
from tts.search.lengths import waves_of
from tts.search.search import Search
from tts.types import Candidate, Trajectory

MAX_STEPS = 40
_IDLE = 64  # rounds in a row that may spend nothing that is limited: a path of so many steps costs one sample
_TRIES = 3  # of a call of which every row fails: each has draws of its own


def spent_amounts(search: Search) -> dict[str, float]:
    """Return the amounts spent in tokens, calls and samples.

    FLOPs and dollars follow from them, and input costs those alone.
    """
    return {unit: amount for unit, amount in search.account.spent.items() if unit not in ("flops", "usd")}


def rounds(search: Search, n: int | None) -> Iterator[int]:
    """Count the rounds of a search: n, or as many as the budget pays, one after another.

    Raises:
        SearchEnded: n is None, and a round has spent nothing, or many in a row have spent nothing that is limited.
            Where time is limited, these are rounds without a token.
    """
    spent, left, idle = spent_amounts(search), search.left, 0
    timed = "seconds" in left
    for k in itertools.count() if n is None else range(n):
        yield k
        if n is not None:
            continue
        if timed:  # a clock that is read again costs a system call, and does not measure a round
            idle = idle + 1 if _tokens(spent) == _tokens(spent_amounts(search)) else 0
        else:
            idle, left = (idle + 1 if left == search.left else 0), search.left
        if spent == spent_amounts(search) or idle > _IDLE:
            raise SearchEnded("nothing is spent any more")
        spent = spent_amounts(search)


def _tokens(spent: Mapping[str, float]) -> float:
    """Return the tokens in what was spent."""
    return sum(spent[unit] for unit in ("tokens", "generated_tokens", "verifier_tokens"))


async def affordable_width(search: Search, temperature: float | None = None, *, stepwise: bool = True) -> int:
    """Return how many paths the budget pays, by the lengths seen so far; at least 1.

    Paths are written step by step or not.

    Where tokens bound it and no solution is known, a plain one is written first: its length is the first that is known.

    Raises:
        SearchEnded: the budget is used up.
    """
    if not search.candidates and search.left.keys() - {"samples", "verifier_calls", "seconds"}:
        await search.complete([search.root], temperature=temperature)
    return search.affordable_samples(stepwise=stepwise) or 1


async def draw(search: Search, ts: Iterable[Trajectory], temperature: float | None = None) -> list[Candidate]:
    """Return the candidate that each active path becomes, written to its end.

    Rows that failed or could not start are drawn again.

    Args:
        search: The search.
        ts: The paths. They are asked for in waves, so that an iterator may have more than the budget pays.
        temperature: The temperature; None for the run's.

    Raises:
        SearchEnded: as `advance`.
    """
    drawn: list[Candidate] = []
    for wave in waves_of(ts):
        made: list[Candidate | None] = [None] * len(wave)
        while missing := [i for i, one in enumerate(made) if one is None]:
            children = await advance(search, [wave[i] for i in missing], until=END, temperature=temperature)
            for i, of in zip(missing, children, strict=True):
                made[i] = search.finish(of[0]) if of else None
        drawn += [one for one in made if one is not None]
    return drawn


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
    until: Until | Tokens | Stops = STEP,
    finishes: bool = True,
) -> list[list[Trajectory]]:
    """Return up to n children of each active path, in order, one step longer.

    Paths are asked for in waves, so that an iterator may have more than the budget pays. The lists are those of the
    waves that began.

    Args:
        search: The search.
        ts: The paths; one listed twice is two requests.
        n: Children of each.
        max_steps: The most steps of a path.
        temperature: The temperature; None for the run's.
        until: Where a step ends.
        finishes: Whether children that ended are candidates at once.

    Raises:
        SearchEnded: not one row can start, every row failed three times, or the stop rule fires.
    """
    every: list[list[Trajectory]] = []
    unbegun = search.rows.unbegun
    for wave in waves_of(ts):
        try:
            for _ in range(_TRIES):
                children = await one_step(
                    search, wave, n, max_steps=max_steps, temperature=temperature, until=until, finishes=finishes
                )
                if any(children):
                    break
            else:
                raise SearchEnded("every row failed")
        except SearchEnded as end:
            if end.stop is not None or not every:
                raise
            break
        every += children
        if search.rows.unbegun > unbegun:
            break
    return every


def subtree_width(n: int, branching: int, g: int) -> int:
    """Return how many of n paths, divided into subtrees of `branching`, subtree g has."""
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
    """Return the next steps of each subtree, by number: as many as its width, all after its prefix.

    Args:
        search: The search.
        prefixes: The path of each subtree that is open; None: the root, of all of them.
        n: The paths of all subtrees.
        branching: The paths of a subtree, at most.
        max_steps: The steps of a path.
        temperature: The temperature; None for the run's.

    Raises:
        SearchEnded: as `advance`.
    """

    def rows() -> Iterator[tuple[int, Trajectory]]:
        begun = enumerate(itertools.repeat(search.root, -(-n // branching))) if prefixes is None else prefixes.items()
        for g, prefix in begun:
            yield from itertools.repeat((g, prefix), subtree_width(n, branching, g))

    made = await advance(search, (prefix for _, prefix in rows()), max_steps=max_steps, temperature=temperature)
    siblings: dict[int, list[Trajectory]] = {}
    for children, (g, _) in zip(made, rows(), strict=False):
        siblings.setdefault(g, []).extend(children)
    return siblings


async def one_step(
    search: Search,
    ts: Sequence[Trajectory],
    n: int = 1,
    *,
    max_steps: int = MAX_STEPS,
    temperature: float | None = None,
    until: Until | Tokens | Stops = STEP,
    model: str = "policy",
    finishes: bool = False,
) -> list[list[Trajectory]]:
    """Return what `advance` does, of one try, by the model of a role.

    Raises:
        SearchEnded: not one row can start.
    """
    children: list[list[Trajectory]] = [[] for _ in ts]
    last = {i for i, t in enumerate(ts) if t.depth + 1 >= max_steps or is_stalled(t)}
    endless = {i for i in last if ts[i].depth >= max_steps + _TRIES}  # written to the end several times, and still open
    for to, chosen in ((until, [i for i in range(len(ts)) if i not in last]), (END, sorted(last - endless))):
        made = await search.expand([ts[i] for i in chosen], n, to, temperature=temperature, model=model)
        for i, of in zip(chosen, made, strict=True):
            children[i] = of
        for child in (child for of in made for child in of if finishes):
            search.finish(child)
    return children
