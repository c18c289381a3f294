"""Forest of thought: several trees of thoughts, each of which has one vote.

An expert decides where the trees do not agree.

    for each tree, until one answer has more than half of all trees:
        for each level: k next steps of each state ; value each new state
            no state has a chance: correct it, the level is written anew, once ; still none: the tree is given up
            (sparse activation) keep the best b
        its vote is that of its best solution
    the answer of more than half of the trees, else that which the expert chooses among theirs (consensus-guided
    decision)

Source: Bi et al., "Forest-of-Thought: Scaling Test-Time Compute for Enhancing LLM Reasoning" (2412.09078), and its
code: trees beside each other, sparse activation of those that are promising, dynamic self-correction, the decision by
consensus or by an expert. Differs:
- The trees of the game of 24 alone are like these, of steps. For GSM8K, MATH-500 and AIME the code has trees of whole
  answers, which one model criticizes, rewrites and scores from 0 to 100, with UCB; its default loop also ends at an
  answer that equals the reference. No such trees are offered here: `ab_mcts` and `self_refine` are nearest. So the
  paper's figures on those data sets say nothing of this method.
- Trees are those of `tree_of_thoughts`, whose values are labels in words. A state has no chance where each of its
  labels is "impossible".
- All trees begin with the same prompt. The paper gives each another one, with problems alike as examples.
- A correction draws the level again; the paper also shows the model what was wrong.
- The trees are grown one after another, so that those after a consensus need not be.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Count, Natural, Text
from tts.search.ends import SearchEnded
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.asking import replies_to
from tts.search.strategies._common.stepping import MAX_STEPS, rounds
from tts.types import Candidate, Trajectory
from tts.verifiers.replying import asking
from tts_addons.zoo.tree_of_thoughts import LABELS, QUESTION, TreeOfThoughts, Valued, best_open

EXPERT = (
    "Below are a problem and numbered solutions that do not agree. Compare them, find the one that is right, and end "
    "with its number in "
    "brackets, such as [2]."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestOfThought(Strategy):
    """Trees of thoughts that vote.

    Args:
        n: The trees, at least 1; None: as many as the budget pays, all of which vote.
        width: The states that a level of a tree keeps (b), at least 1.
        branching: The next steps of each state (k), at least 1.
        votes: As in `tree_of_thoughts`.
        question: As in `tree_of_thoughts`.
        max_tokens: As in `tree_of_thoughts`.
        corrections: The corrections of a level without a chance, at least 0.
        temperature: The temperature of steps and replies; None: the run's.
        max_steps: The most steps of a path, the last of which runs to the end of the solution.

    Cost: a level of a tree takes width x branching steps, and `votes` replies for each that is new; as much for a
    correction. A reply for
        the expert.
    Random: none of its own.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2", 600, model="toy", strategy="forest_of_thought(n=2, branching=2)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('5', 14, 114)
    """

    registered_as = "forest_of_thought"
    always_votes = True
    n: Count | None = None
    width: Count = 1
    branching: Count = 3
    votes: Count = 1
    question: Text = QUESTION
    max_tokens: Count | None = None
    corrections: Natural = 1
    temperature: Temperature | None = None
    max_steps: Count = MAX_STEPS

    def needs(self) -> Needs:
        """Return the needs: steps."""
        return Needs(capabilities=("steps",))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Grow tree after tree, and decide."""
        votes: list[Candidate] = []
        for _ in rounds(search, self.n):
            start = len(search.candidates)
            await self._grow(search)
            votes += self._vote(search, search.candidates[start:])
            num_agreeing = _most(votes)
            if self.n is not None and num_agreeing > self.n / 2:
                raise SearchEnded(f"{num_agreeing} of {self.n} trees agree")
        await self._decide(search, votes)
        return search.candidates

    async def _grow(self, search: Search) -> None:
        """Grow a tree. Its solutions become candidates, weighed by their values."""
        frontier, known_values = [search.root], dict[str, float]()
        while frontier:
            promising: list[Valued] = []
            for _ in range(1 + self.corrections):
                states = await self._tree.next_level(search, frontier, self.width, known_values)
                promising = [(t, value) for t, value in states if value > self._hopeless]
                if promising:
                    break
            frontier = best_open(promising, self.width)
            search.keep(frontier)

    @property
    def _tree(self) -> TreeOfThoughts:
        """The strategy that writes and values the states of a tree."""
        return TreeOfThoughts(
            branching=self.branching,
            votes=self.votes,
            question=self.question,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            max_steps=self.max_steps,
        )

    @property
    def _hopeless(self) -> float:
        """The value of a state whose labels are all "impossible", with room for rounding."""
        return self.votes * LABELS["impossible"] * (1 + 1e-9)

    def _vote(self, search: Search, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Give a tree's best solution its vote, and the others none.

        A best solution whose labels are all "impossible" gets a tiny vote, which counts only without other votes.
        """
        answered = [c for c in candidates if c.answer is not None]
        best = max(answered, key=lambda c: c.weight or 0.0, default=None)
        is_hopeless = best is None or (best.weight or 0.0) <= self._hopeless
        best_weight = LABELS["impossible"] if is_hopeless else 1.0
        for c in list(candidates):
            search.finish(c.trajectory, weight=best_weight if c is best else 0.0)
        return [] if best is None or is_hopeless else [best]

    async def _decide(self, search: Search, votes: Sequence[Candidate]) -> None:
        """Let the expert choose among the answers of the trees, if no answer has more than half of the votes."""
        first_by_answer = {c.answer_class: c for c in reversed(votes)}  # the first solution of each answer
        voted_solutions = list(reversed(first_by_answer.values()))
        if len(voted_solutions) < 2 or _most(votes) > len(votes) / 2:
            return
        titled_texts = [(f"Solution [{i}]", c.trajectory.response) for i, c in enumerate(voted_solutions, 1)]
        prompt = asking(EXPERT, search.problem, *titled_texts)
        (replies,) = await replies_to(search, [prompt], 1, temperature=self.temperature, max_tokens=self.max_tokens)
        chosen_place = read_choice(replies[0], len(voted_solutions)) if replies else None
        if chosen_place is not None:
            search.finish(voted_solutions[chosen_place].trajectory, weight=float(len(votes)))


def _most(votes: Sequence[Candidate]) -> int:
    """Return the number of votes of the most frequent answer."""
    return max(Counter(c.answer_class for c in votes).values(), default=0)


def read_choice(reply: Trajectory, count: int) -> int | None:
    """Return the solution, from 0, that the last number in brackets of a reply names; None without one."""
    numbers = [int(number) for number in re.findall(r"\[(\d{1,9})\]", reply.response)]
    if not numbers or not 1 <= numbers[-1] <= count:
        return None
    return numbers[-1] - 1
