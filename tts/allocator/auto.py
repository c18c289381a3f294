"""`auto`: draws as many samples as are worth it, by what the samples so far say of the problem, or turns to a better strategy.

A few pilot samples give a posterior over how hard the problem is. From then on the pure `Allocator` says, wave by wave, how many more
samples the problem is worth, or which other strategy of the performance model, or that it is settled. Pilots are candidates like any
other: they count as samples, and every candidate enters the final selection; other strategies start from the root beside them.

Source: the choice per prompt of algorithm A14 (Snell et al. 2408.03314), with a posterior in place of a bin; stopping where another
sample is not worth its price is the saturation point of A17 (2505.20522), problem by problem. Without a performance model the values
are those of votes under a broad population, and the strategy is best_of_n.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from tts.allocator.allocate import Allocator
from tts.allocator.difficulty import Population
from tts.allocator.performance import PerformanceModel
from tts.allocator.values import Curved, State, Values, Voted
from tts.errors import ConfigError
from tts.search.base import Named, SearchEnded, Selection, nonempty_text, number, whole
from tts.search.registry import parse
from tts.search.selection import Majority, Weighted
from tts.types import Candidate

if TYPE_CHECKING:
    from tts.search.search import Search

_ROOM = 64  # votes that are told apart
FALLBACK = "best_of_n"


@dataclass(frozen=True, slots=True)
class Found:
    """What a problem has shown: samples drawn, and how many of them gave the most and the second most frequent answer."""

    samples: int
    leader: int
    second: int

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> Found:
        """Count the votes of candidates; one without an answer agrees with nothing."""
        votes = [count for _, count in Counter(c.answer_class for c in candidates if c.answer_class is not None).most_common(2)]
        leader, second = (*votes, 0, 0)[:2]
        return cls(len(candidates), leader, second)


@dataclass(frozen=True, slots=True)
class Turn:
    """What to do next. samples: how many more to draw. plan: 0 as plain samples, else the number of a strategy. why: in words."""

    samples: int
    plan: int = 0
    why: str = ""


class Ration(Protocol):
    """Where an `auto` search gets its turns from: its own budget, or what it shares with other problems."""

    async def turn(self, search: Search, found: Found) -> Turn:
        """Return what to do next; no samples: it is over, and why."""
        ...

    def goes_on(self, end: SearchEnded) -> bool:
        """Return whether there may be another turn after one that ended so."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto(Named):
    """Pilots, then whatever is worth most for what it costs.

    Args:
        n: most plain samples, at least 1; None: as many as the budget pays and are worth it.
        pilots: samples before the first decision, at least 1.
        price: chance of a right answer that one more sample must add, at least 0; at 0 all of the budget is spent.
        model: path of a performance model (`tts fit`); None: votes alone decide, under a broad population.

    Cost: at most n samples, or the budget; other strategies of the performance model cost what they do.
    """

    registered_as = "auto"
    n: int | None = None
    pilots: int = 4
    price: float = 0.001
    model: str | None = None

    def __post_init__(self) -> None:
        whole("n", self.n, 1)
        whole("pilots", self.pilots, 1, optional=False)
        number("price", self.price, 0, optional=False)
        if self.model is not None:
            nonempty_text("model", self.model)

    @property
    def needs(self) -> tuple[str, ...]:
        """What the strategies that it may choose need."""
        return tuple(dict.fromkeys(need for text in self._other_texts() for need in parse(text).strategy.needs))

    @property
    def verifiers(self) -> tuple[str, ...]:
        """The roles that the strategies that it may choose score with."""
        return tuple(dict.fromkeys(role for text in self._other_texts() for role in parse(text).strategy.verifiers))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Take turns from the problem's own budget."""
        return await self.served(search, Alone(self))

    async def served(self, search: Search, ration: Ration) -> Sequence[Candidate]:
        """Take turns from a ration until it says that it is over."""
        while True:
            found = Found.of(search.candidates)
            turn = await ration.turn(search, found)
            if turn.why:
                search.notes.explain(f"after {found.samples} samples ({found.leader} agree): {turn.why}")
            if not turn.samples:
                raise SearchEnded(turn.why)
            try:
                if turn.plan:
                    await parse(self.plans()[turn.plan]).strategy.size(turn.samples).run(search)
                else:
                    await search.complete([search.root], n=turn.samples)
            except SearchEnded as end:
                if not ration.goes_on(end):
                    raise

    def plans(self) -> tuple[str, ...]:
        """Return the strategies that it may choose, plain samples first."""
        return (FALLBACK, *self._other_texts())

    def _other_texts(self) -> tuple[str, ...]:
        if self.model is None:
            return ()
        return tuple(text for text in _loaded(self.model).curves if parse(text).strategy.registered_as != FALLBACK)

    def values(self) -> Values:
        """Return what samples are worth, before any is drawn.

        Raises:
            ConfigError: the performance model cannot be read, or has no curve of plain samples.
        """
        return _values(self.model)

    def allocator(self, *, alone: bool) -> Allocator:
        """Return who decides: for a problem alone, in waves that double at most; for many, in small ones."""
        if alone:
            return Allocator(values=self.values(), pilots=self.pilots, growth=0.5, share=1.0, price=self.price)
        return Allocator(values=self.values(), pilots=self.pilots, price=self.price)

    def size(self, units: int | None) -> Self:
        """Return itself: left out, n is whatever is worth it and paid."""
        if self.n is None and units is None:
            raise ConfigError("auto has no n and the budget does not bound the samples", hint="give n, or a limit on tokens or samples")
        return self

    def default_selection(self, *, verified: bool) -> Selection:
        """Return `weighted` with a verifier, else `majority`."""
        return Weighted() if verified else Majority()


@dataclass(frozen=True, slots=True)
class Alone:
    """The ration of one problem: its own budget, in plain samples of typical length."""

    auto: Auto

    async def turn(self, search: Search, found: Found) -> Turn:
        """Ask the allocator about the one problem."""
        auto = self.auto
        units, most = search.units(), None if auto.n is None else auto.n - found.samples
        left = min(each for each in (units, most) if each is not None)
        if left <= 0:
            return Turn(0, why="samples drawn")
        allocator, state = auto.allocator(alone=True), state_of([found], [1.0], float(left))
        grant = allocator.next(state)
        if grant.reason:
            gain = f"{float(grant.rate[0]):.2g}"
            return Turn(0, why=f"settled: another sample would add {gain} to the chance of a right answer, below the price {auto.price:g}")
        return Turn(int(grant.samples[0]), int(grant.plan[0]), self.why(allocator, state, grant.rate[0], int(grant.plan[0])))

    def goes_on(self, end: SearchEnded) -> bool:
        """Return False: its budget is its own, and used up."""
        del end
        return False

    def why(self, allocator: Allocator, state: State, rate: float, plan: int) -> str:
        """Say why the problem goes on."""
        if not rate:
            return "pilots, to see how hard it is"
        chance = float(allocator.values.chance(state)[0])
        return f"{self.auto.plans()[plan]}: right by {chance:.2f} as it stands, and each further sample adds {rate:.2g}"


def state_of(found: Sequence[Found], cost: Sequence[float], left: float, is_open: Sequence[bool] | None = None) -> State:
    """Return the allocator's state of problems."""
    return State(
        samples=np.array([each.samples for each in found], np.int64),
        leader=np.array([each.leader for each in found], np.int64),
        second=np.array([each.second for each in found], np.int64),
        solved=np.zeros(len(found), np.bool_),
        open=np.ones(len(found), np.bool_) if is_open is None else np.array(is_open, np.bool_),
        cost=np.array(cost, np.float64),
        left=left,
    )


@lru_cache(maxsize=8)
def _values(model: str | None) -> Values:
    if model is None:
        return Voted(Population.beta(), _ROOM)
    known = _loaded(model)
    sampled = [text for text in known.curves if parse(text).strategy.registered_as == FALLBACK]
    if not sampled:
        raise ConfigError(f"the performance model {model!r} has no curve of {FALLBACK}", hint="fit it to a study with that strategy too")
    others = [text for text in known.curves if parse(text).strategy.registered_as != FALLBACK]
    return Curved(known, (sampled[0], *others), known.population)


@lru_cache(maxsize=8)
def _loaded(model: str) -> PerformanceModel:
    return PerformanceModel.load(model)
