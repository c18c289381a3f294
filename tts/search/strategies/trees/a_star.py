"""A*-decoding: best-first search over partial solutions.

The state with the least f = g + h is continued next.

h(s) = 1 - r(s), r being the verifier's score of the path in [0, 1]; g sums what the edges of the path cost. The first
solution that is taken from the frontier is the answer, so tokens go where scores are high, and no further than needed.

Source: algorithm A8, Chatziveroglou, "A*-Decoding: Token-Efficient Inference Scaling" (2505.13672). Established, from
secondary notes: states, k continuations, h = 1 - r, the least f next, g from increases of h alone. UNVERIFIED (from
memory), so parameters here: the edge cost, whether the frontier is global, k, the caps. Differs:
- `drop` is the default edge cost, which is the literal reading of the notes.
- Several states may be expanded in one call.
- An unknown score (NaN) is the mean of the known ones. With one continuation nothing competes, and nothing is scored.
- Copies among a state's continuations are dropped.
- A path that ended without an answer is no solution, so the search goes on.
- With `goals` above 1, or None, the search goes on after the first solution.
- Where the budget ends the search, the solution in the frontier with the least f is the candidate. Where there is none,
  the best-scored live path is completed from what was held back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from tts.budget.units import FIXED_UNITS
from tts.checks import Count, member
from tts.search.ends import SearchEnded
from tts.search.parts import Selection
from tts.search.search import Search
from tts.search.selections.weighted import Weighted
from tts.search.strategies._common.guided import Guided, distinct
from tts.search.strategies._common.stepping import advance, rounds
from tts.types import Candidate, Trajectory

# The cost of an edge: a function of h before the edge, h after the edge, and the most steps of a path.
EDGE_COSTS: Mapping[str, Callable[[float, float, int], float]] = {
    "drop": lambda before, after, _steps: max(0.0, after - before),
    "consistent": lambda before, after, _steps: max(0.0, before - after),
    "zero": lambda _before, _after, _steps: 0.0,
    "unit": lambda _before, _after, steps: 1.0 / steps,
}
FRONTIERS = ("global", "local")
_COUNTED = ("tokens", *FIXED_UNITS)  # units that the warning about the rest names


class OpenPath(NamedTuple):
    """An open path.

    States are ordered by their fields: the least f first, then the lower h, then the deeper, then the newer path.

    Attributes:
        f: The sum g + h.
        h: The estimated cost from the path to a solution.
        shallow: The depth of the path, negated.
        old: The number of the path's node, negated.
        g: The cost of the path's edges.
        t: The path.
    """

    f: float
    h: float
    shallow: int
    old: int
    g: float
    t: Trajectory

    @classmethod
    def of(cls, t: Trajectory, g: float, h: float) -> OpenPath:
        """Return the state of a path."""
        return cls(g + h, h, -t.depth, -t.node, g, t)

    @property
    def is_goal(self) -> bool:
        """Whether the path has ended."""
        return self.t.status != "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class AStar(Guided):
    """Best-first search over partial solutions, by f = g + h with h = 1 - score.

    A state is a path; g is the cost of its edges.

    Args:
        branching: The continuations of an expanded state (k in the paper).
        edge_cost: The cost that an edge from h to h' adds to g. "drop": the fall of the score, max(0, h' - h).
            "consistent": the rise of the score, max(0, h - h'); f then never falls along a path, as textbook A*
            requires. "zero": nothing, which is greedy best-first search. "unit": 1 / max_steps.
        frontier: "global": all open states compete; "local": only the continuations of the states expanded last.
        width: The number of the best open states that are expanded in one call.
        goals: The solutions to find, at least 1, the best first. 1, the default, is the paper's: the first solution is
            the answer, and a warning names the unspent budget. None: as many as the budget pays. Several solutions are
            weighted by score. Where no open state is left, the search begins anew at the root.
        expansions: The most states to expand. After these the solutions are returned; without any, the best open state
            is completed. None: until the budget ends.
        temperature: As in `Guided`.
        max_steps: As in `Guided`.
        verifier: As in `Guided`.
        aggregate: As in `Guided`.

    Cost: k steps and k verifier calls an expansion. The budget of n samples with d steps each pays about n d / k
    expansions. In samples:
        k for the root and k - 1 for each other expansion. The first solution of d steps takes at least d expansions.
    Random: none of its own.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 400, model="toy", strategy="a_star(branching=3, goals=1)", verifier="toy"
        ... )
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 9, 90)
    """

    registered_as = "a_star"
    maps_scores = True
    sized_by_budget = ("expansions",)
    branching: Count = 4
    edge_cost: Annotated[str, member(EDGE_COSTS)] = "drop"
    frontier: Annotated[str, member(FRONTIERS)] = "global"
    width: Count = 1
    goals: Count | None = 1
    expansions: Count | None = None

    def default_selection(self, *, verified: bool) -> Selection:
        """Return `weighted` by the score that guided the search.

        For one goal `best` is returned, and `majority` where there is no verifier.
        """
        if not verified or self.goals == 1:
            return Guided.default_selection(self, verified=verified)
        return Weighted(verifier=self.verifier, aggregate=self.aggregate)

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Expand the best open states until enough solutions were taken from the frontier.

        Comments name the lines of algorithm A8.
        """
        frontier = [OpenPath.of(search.root, g=0.0, h=0.0)]  # line 1
        goals: list[Candidate] = []
        expanded = 0
        try:
            for _ in rounds(search, None):  # line 2
                while frontier and frontier[0].is_goal and len(goals) != self.goals:
                    goals.append(self._candidate(search, heapq.heappop(frontier)))  # line 4
                if len(goals) == self.goals:
                    self._warn_of_rest(search, len(goals))
                    return goals
                if expanded == self.expansions:
                    return await self._conclude(search, frontier, goals)
                popped = self._pop(frontier, expanded) or [OpenPath.of(search.root, g=0.0, h=0.0)]  # line 3
                expanded += len(popped)
                if self.frontier == "local":
                    frontier = []
                for state in await self._continue(search, popped):  # lines 5 and 6
                    heapq.heappush(frontier, state)
                if self.frontier == "local":
                    search.keep([state.t for state in frontier if not state.is_goal])
        except SearchEnded as end:
            # unless a stop rule ended the search, the best solution in the frontier is the answer
            goal = min((state for state in frontier if state.is_goal), default=None)
            if end.stop is not None or goal is None or self.goals != 1:
                raise
            index = self._candidate(search, goal).index
            raise end.restrict_candidates(slice(index, index + 1)) from None
        raise AssertionError("the rounds end by themselves")

    def _pop(self, frontier: list[OpenPath], expanded: int) -> list[OpenPath]:
        """Take the best open states for one call, up to the first solution."""
        most_states = self.width if self.expansions is None else min(self.width, self.expansions - expanded)
        popped: list[OpenPath] = []
        while frontier and len(popped) < most_states and not frontier[0].is_goal:
            popped.append(heapq.heappop(frontier))
        return popped

    async def _continue(self, search: Search, states: Sequence[OpenPath]) -> list[OpenPath]:
        """Expand states, and return the new states. Paths that ended without an answer are left out."""
        families = await advance(
            search,
            [state.t for state in states],
            self.branching,
            max_steps=self.max_steps,
            temperature=self.temperature,
        )
        edges: list[tuple[OpenPath, Trajectory]] = []
        for state, children in zip(states, families, strict=False):  # states whose rows did not begin have no list
            distinct_children = {t.node: t for t in distinct(children)}
            search.drop([t for t in children if t.node not in distinct_children])
            edges += [(state, t) for t in distinct_children.values() if t.status == "active" or _answers(search, t)]
        paths = [t for _, t in edges]
        scores = [1.0] * len(paths)
        if self.branching > 1:
            scores = (await search.estimate(paths, self.verifier, self.aggregate, scale="unit")).tolist()
        cost = EDGE_COSTS[self.edge_cost]
        new_states: list[OpenPath] = []
        for (state, t), score in zip(edges, scores, strict=True):
            h = 1.0 - score
            g = state.g + cost(state.h, h, self.max_steps)
            new_states.append(OpenPath.of(t, g, h))
        return new_states

    async def _conclude(self, search: Search, frontier: list[OpenPath], goals: list[Candidate]) -> Sequence[Candidate]:
        """Return the solutions so far, with the solutions in the frontier.

        Without a solution the best state is completed (line 7). Without a state all candidates are returned.
        """
        goals += [self._candidate(search, state) for state in sorted(frontier) if state.is_goal]
        if goals:
            return goals[: self.goals]
        if not frontier:
            return search.candidates
        return await search.complete([min(frontier).t], temperature=self.temperature)

    @staticmethod
    def _warn_of_rest(search: Search, num_goals: int) -> None:
        """Warn of the unspent amount of each limit, because the search ended at its goal."""
        unspent = [
            f"{amount:,.0f} {unit}"
            for unit, amount in search.account.remainder().items()
            if unit in _COUNTED and amount >= 1
        ]
        if unspent:
            solutions = "first solution" if num_goals == 1 else f"{num_goals} solutions"
            amounts = " and ".join(unspent)
            search.notes.warn(f"a_star ended at its {solutions} with {amounts} left; goals=None goes on")

    @staticmethod
    def _candidate(search: Search, goal: OpenPath) -> Candidate:
        candidate = search.finish(goal.t)
        assert candidate is not None, "a path that has ended is a candidate"
        return candidate


def _answers(search: Search, t: Trajectory) -> bool:
    candidate = search.finish(t)
    return candidate is not None and candidate.answer is not None
