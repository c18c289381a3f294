"""Tree of thoughts: a breadth-first search over steps, which the model values in words.

    for each level: k next steps of each state ; value each new state ; keep the best b
    value = the sum over `votes` replies of: impossible .001, likely 1, sure 20 ; of equal states all but the first have
    0

Source: algorithm B16, Yao et al., "Tree of Thoughts: Deliberate Problem Solving with Large Language Models"
(2305.10601), read in the code: sampled thoughts, values by three labels, greedy selection; Game of 24 keeps 5 states
and asks for 3 values. Differs:
- A thought is a step of the task. The paper proposes thoughts by a prompt for each task, which names their number.
- The prompt for values is ours; a reply without a label counts as "likely", as nothing is known.
- States that have ended are valued too. They leave the search, and vote by their values; the paper returns the first of
  the last level.
- A value is kept for equal states, also across levels.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tts.checks import Count, Text
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.asking import replies_to
from tts.search.strategies._common.stepping import MAX_STEPS, affordable_width, one_step, rounds
from tts.types import Candidate, Trajectory
from tts.verifiers.replying import asking

LABELS = {"impossible": 0.001, "likely": 1.0, "sure": 20.0}
QUESTION = (
    "Below are a problem and the first steps of a solution. Can they lead to a right answer? Consider how they may go "
    "on, then end with "
    "one word: sure, likely or impossible."
)
_MOST = 1024  # the most states of a level where the budget decides
Valued = tuple[Trajectory, float]  # a state and its value


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOfThoughts(Strategy):
    """A breadth-first search that the model guides by its own words.

    Args:
        n: The states that a level keeps (b), at least 1; None: as many as the budget pays, again and again.
        branching: The next steps of each state (k), at least 1.
        votes: The replies that value a state, at least 1.
        question: The question before problem and steps. It must ask for one of the three labels.
        max_tokens: The most tokens of such a reply; None: the run's.
        temperature: The temperature of steps and replies; None: the run's.
        max_steps: The most steps of a path, the last of which runs to the end of the solution.

    Cost: a level takes n x branching steps, and `votes` replies for each that is new. Candidates have their value as
    weight. Random: none of its own.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2", 400, model="toy", strategy="tree_of_thoughts(n=2, branching=2, votes=1)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('5', 11, 87)
    """

    registered_as = "tree_of_thoughts"
    always_votes = True
    n: Count | None = None
    branching: Count = 3
    votes: Count = 3
    question: Text = QUESTION
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    max_steps: Count = MAX_STEPS

    def needs(self) -> Needs:
        """Return the needs: steps."""
        return Needs(capabilities=("steps",))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Search; if n is None, again until the budget is used up."""
        for _ in rounds(search, None if self.n is None else 1):
            n = self.n
            if n is None:
                affordable = await affordable_width(search, self.temperature)
                n = max(1, min(_MOST, affordable // (self.branching * (1 + self.votes))))
            await self._search(search, n)
        return search.candidates

    async def _search(self, search: Search, n: int) -> None:
        """Go down level by level. Comments name the lines of algorithm B16."""
        frontier, values = [search.root], dict[str, float]()
        while frontier:
            states = await self.next_level(search, frontier, n, values)  # lines 1 and 2
            frontier = best_open(states, n)  # line 3
            search.keep(frontier)

    async def next_level(
        self, search: Search, frontier: Sequence[Trajectory], n: int, known: dict[str, float]
    ) -> list[Valued]:
        """Return the next states of a level with their values.

        After each state come `branching` new states, after the root n times as many. States that ended become
        candidates.
        """
        width = min(n * self.branching, sys.maxsize) if frontier == [search.root] else self.branching
        families = await one_step(search, frontier, width, max_steps=self.max_steps, temperature=self.temperature)
        states = list(chain.from_iterable(families))
        for t in states:  # so that no state is lost if the budget ends the search
            search.finish(t)
        values = await self._values(search, states, known)
        for t, value in zip(states, values, strict=True):
            search.finish(t, weight=value)
        return list(zip(states, values, strict=True))

    async def _values(
        self, search: Search, states: Sequence[Trajectory], known_values: dict[str, float]
    ) -> list[float]:
        """Return the value of each state, and note it. A copy of an earlier unfinished state has value 0."""
        new_states = list({t.full_text: t for t in states if t.full_text not in known_values}.values())
        prompts = [asking(self.question, search.problem, ("Steps", t.judged_text)) for t in new_states]
        by_state = await replies_to(
            search, prompts, self.votes, temperature=self.temperature, max_tokens=self.max_tokens
        )
        for t, replies in zip(new_states, by_state, strict=True):
            if replies:
                known_values[t.full_text] = sum(value_of(reply.response) for reply in replies)
            elif replies is not None:  # every reply failed
                known_values[t.full_text] = self.votes * LABELS["likely"]
        seen_texts, values = set[str](), list[float]()
        for t in states:
            is_copy = t.status == "active" and t.full_text in seen_texts
            values.append(0.0 if is_copy else known_values.get(t.full_text, self.votes * LABELS["likely"]))
            seen_texts.add(t.full_text)
        return values


def best_open(states: Sequence[Valued], n: int) -> list[Trajectory]:
    """Return the n best unfinished states; among equal values the first."""
    best_first = sorted(states, key=lambda valued: -valued[1])
    return [t for t, _ in best_first if t.status == "active"][:n]


def value_of(reply: str) -> float:
    """Return the value of the last label of a reply; without a label, the value of "likely"."""
    labels = re.findall(rf"\b({'|'.join(LABELS)})\b", reply.casefold())
    return LABELS[labels[-1] if labels else "likely"]
