"""AB-MCTS: a tree of whole solutions, grown by Thompson sampling.

Thompson sampling decides between a new solution and a revision of an old solution.

    from the root: draw the worth of a new child, and that of going on below; go to the child whose draw is largest,
    until "new" wins at the root, new is a plain solution; elsewhere its prompt shows the node's solution
    its score is an observation of "new" at its parent, of its own arm, and of "below" and of the arms of all nodes
    above

Source: algorithm B15, Inoue et al., "Wider or Deeper? Scaling LLM Inference-Time Compute with Adaptive Branching Tree
Search" (2503.04412): AB-MCTS-A with normal or Beta posteriors and AB-MCTS-M with a mixed model, read in the code of
treequest. Differs:
- The mixed model's posterior is integrated over a grid, not sampled by a Markov chain
  (`tts.search.algorithms.thompson`).
- The prompt is the task's "revise". Where it cannot show a solution, or that was cut short, the new child is a plain
  solution at the root.
- A score that is unknown is no observation.
- Which model writes is drawn by the same posterior, from the scores of each model's solutions in the whole tree.
  AB-MCTS-M of the code does so too, by a mixed model over the models.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from tts.checks import choice
from tts.search.algorithms.thompson import beta_draw, mixed_draws, normal_draw
from tts.search.ends import ROWS_FAILED, SearchEnded
from tts.search.needs import Needs, writers
from tts.search.parameters import Writers
from tts.search.search import Search
from tts.search.strategies._common.earlier_solutions import open_prompt
from tts.search.strategies._common.judged import Judged
from tts.search.strategies._common.stepping import rounds
from tts.types import Candidate

_DRAWS = {"normal": normal_draw, "beta": beta_draw}
_LOOP_SOLUTIONS = 100  # solutions up to which the mixed posterior is drawn in the event loop
_TRIES = 3  # consecutive failed solutions that end the search
_EQUAL_SCORES = (4, 0.75)  # AB-MCTS-M skips a subtree with at least 4 scores of which at least 75 % are equal


@dataclass(slots=True, eq=False)
class AnswerNode:
    """A solution of the tree, or its root.

    Args:
        made: The solution; None: the root has none.
        parent: The node above; None: the root has none.
        new: The scores of the children, in order of time.
        below: The scores of the nodes below the children.
        all: The scores of the node and of all nodes below.
        children: The nodes of the revisions.
    """

    made: Candidate | None = None
    parent: AnswerNode | None = None
    new: list[float] = field(default_factory=list[float])
    below: list[float] = field(default_factory=list[float])
    all: list[float] = field(default_factory=list[float])
    children: list[AnswerNode] = field(default_factory=list["AnswerNode"])


@dataclass(frozen=True, slots=True, kw_only=True)
class AbMcts(Judged):
    """Adaptive branching: a new solution or a revision, by the scores so far.

    Args:
        n: The number of all solutions, at least 1; None: as many as the budget pays.
        posterior: "normal" or "beta" (AB-MCTS-A), or "mixed" (AB-MCTS-M).
        writers: The roles of the models that write. The scores choose among several models.
        temperature: As in `Judged`.
        verifier: As in `Judged`.
        aggregate: As in `Judged`.

    Cost: n solutions, each scored once; a revision reads its prompt, with one solution. Anytime: nested in n.
    Random: the draws of each round, addressed by its number.

    Example:
        >>> import tts
        >>> model = lambda ask: "The answer is 7."
        >>> limits = tts.Budget(samples=8)
        >>> found = tts.solve(
        ...     "What is 3 + 4?", limits, backend=model, task="math", verifier=lambda p, t: 0.5, strategy="ab_mcts(n=4)"
        ... )
        >>> found.answer, found.usage.samples, found.usage.verifier_calls
        ('7', 4, 4)
    """

    registered_as = "ab_mcts"
    posterior: Annotated[str, choice(*_DRAWS, "mixed")] = "normal"
    writers: Writers = ("policy",)

    def needs(self) -> Needs:
        """Return the needs: a verifier, and revisions by every writer."""
        return Needs(
            verifiers=(self.verifier,),
            scaled=True,
            prompts=() if self.n == 1 else ("revise",),
            models=writers(*self.writers),
        )

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write one solution after another, each at the node that the posterior draws."""
        root = AnswerNode()
        scores_by_writer: dict[str, list[float]] = {role: [] for role in self.writers}
        num_failed = 0  # consecutive solutions whose row failed
        for k in rounds(search, self.n):
            rng = search.rng("ab_mcts", k)
            writer_draws = self._draws([scores_by_writer[role] for role in self.writers], rng)
            writer = self.writers[int(np.argmax(writer_draws))]
            if self.posterior == "mixed" and k >= _LOOP_SOLUTIONS:
                node = await search.run(self._select, root, rng)
            else:
                node = self._select(root, rng)
            earlier = node.made
            prompt = None
            if earlier is not None and not earlier.truncated:
                prompt = await open_prompt(search, "revise", [earlier.trajectory.response], earlier.group)
            parent = node if prompt is not None else root
            written = await search.complete([prompt or search.root], 1, temperature=self.temperature, model=writer)
            # under stop rules of finish order no failed row is drawn again
            num_failed = 0 if written else num_failed + 1
            if num_failed == _TRIES:
                raise SearchEnded(ROWS_FAILED)
            if not written:
                continue
            [candidate] = written
            [score] = (await search.score([candidate.trajectory], self.verifier, self.aggregate, scale="unit")).tolist()
            _grow(parent, candidate, score)
            if not np.isnan(score):
                scores_by_writer[writer].append(score)
        return search.candidates

    def _select(self, root: AnswerNode, rng: np.random.Generator) -> AnswerNode:
        """Go down from the root to the node that is given a new child."""
        node = root
        while node.children:
            child_scores = [child.all for child in node.children]
            if self.posterior == "mixed":
                *child_draws, new_draw = mixed_draws(child_scores, rng)[0].tolist()  # the last is for a new child
                best_first = [node.children[i] for i in np.argsort(-np.array(child_draws), kind="stable")]
                open_children = [child for child in best_first if not _are_alike(child.all)]
                if new_draw >= max(child_draws) or not open_children:
                    return node
                node = open_children[0]
            else:
                if self._draw(node.new, rng) >= self._draw(node.below, rng):
                    return node
                node = node.children[int(np.argmax(self._draws(child_scores, rng)))]
        return node

    def _draws(self, arms: Sequence[Sequence[float]], rng: np.random.Generator) -> list[float]:
        """Draw the worth of each arm from its scores."""
        if self.posterior != "mixed":
            return [self._draw(scores, rng) for scores in arms]
        if len(arms) == 1:
            return [0.0]
        return mixed_draws(arms, rng)[0, :-1].tolist()  # the last draw is for a new arm

    def _draw(self, scores: Sequence[float], rng: np.random.Generator) -> float:
        return _DRAWS[self.posterior](scores, rng)


def _grow(parent: AnswerNode, candidate: Candidate, score: float) -> None:
    """Give a node a child, and note the child's score, if known, at all nodes that observe it."""
    child = AnswerNode(candidate, parent)
    parent.children.append(child)
    if np.isnan(score):
        return
    child.all.append(score)
    parent.new.append(score)
    node = parent
    while node.parent is not None:
        node.all.append(score)
        node.parent.below.append(score)
        node = node.parent


def _are_alike(scores: Sequence[float]) -> bool:
    """Whether most scores of a subtree are the same to two digits, so that it has nothing new to teach."""
    least_scores, least_share = _EQUAL_SCORES
    rounded = [round(score, 2) for score in scores]
    return len(rounded) >= least_scores and max(Counter(rounded).values()) >= least_share * len(rounded)
