"""The nodes of a trace, made from a search's tree on first use.

Nodes are made late, since the traces of most solutions are never read.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from tts.backends.metadata import Tokenizer
from tts.errors import TTSError
from tts.search.tree import Tree
from tts.trace.node import TraceNode
from tts.types import Candidate, Trajectory

T = TypeVar("T")


class LateSequence(Sequence[T]):
    """A sequence that is built once, on first use, since the traces of most solutions are never read.

    The sequence compares and pickles as the tuple that it stands for.

    Args:
        build: A function that returns the values.
    """

    def __init__(self, build: Callable[[], Sequence[T]]) -> None:
        self._build: Callable[[], Sequence[T]] | None = build
        self._values: tuple[T, ...] = ()

    def _all(self) -> tuple[T, ...]:
        if self._build is not None:
            self._values, self._build = tuple(self._build()), None
        return self._values

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == (tuple(other) if isinstance(other, LateSequence) else other)

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[Any, ...]:
        return (tuple, (self._all(),))


class RecordedNodes(LateSequence[TraceNode]):
    """The nodes of a search that is over, built on first use.

    Args:
        prompt: The text of the roots.
        tree: The tree of a search that is over.
        roles: The roles of the verifiers.
        candidates: The candidates, with their weights.
        tokenizer: The tokenizer of the policy; None: it is not known.
    """

    def __init__(
        self,
        prompt: str,
        tree: Tree,
        roles: Sequence[str],
        candidates: Sequence[Candidate],
        tokenizer: Tokenizer | None = None,
    ) -> None:
        def build() -> tuple[TraceNode, ...]:
            return tuple(_with_tokens(node, tree, tokenizer) for node in _nodes(prompt, tree, roles, candidates))

        super().__init__(build)

    def __hash__(self) -> int:
        return hash(tuple(node.node for node in self._all()))


def _nodes(prompt: str, tree: Tree, roles: Sequence[str], candidates: Sequence[Candidate]) -> tuple[TraceNode, ...]:
    by_node = {candidate.trajectory.node: candidate for candidate in candidates}
    dropped = _dropped_nodes(tree)
    return tuple(_node(prompt, tree, roles, t, by_node.get(t.node), pruned=t.node in dropped) for t in tree.nodes)


def _dropped_nodes(tree: Tree) -> set[int]:
    """Return the pruned nodes, except ancestors of a kept node.

    Such ancestors are part of the path of the kept node, although their state is released.
    """
    dropped = set(tree.pruned)
    for t in tree.nodes:
        if t.node in tree.pruned or t.node in tree.scratch or t.status == "failed":
            continue
        ancestor = tree.parent_of(t)
        while ancestor is not None and ancestor.node in dropped:
            dropped.discard(ancestor.node)
            ancestor = tree.parent_of(ancestor)
    return dropped


def _node(
    prompt: str, tree: Tree, roles: Sequence[str], t: Trajectory, candidate: Candidate | None, *, pruned: bool
) -> TraceNode:
    """Return the record of a node without its tokens; `prompt` is the text of roots without a prompt of their own."""
    scores, outcomes, notes = dict[str, tuple[float, ...]](), dict[str, tuple[float, ...]](), dict[str, str]()
    for role in roles:
        step_scores = tree.scores.get((t.node, role))
        if step_scores is None:
            continue
        if step_scores.steps is not None:
            scores[role] = step_scores.steps
        else:
            scores[role] = (math.nan if step_scores.whole is None else step_scores.whole,)
        if step_scores.tests is not None:
            outcomes[role] = step_scores.tests
        if step_scores.note:
            notes[role] = step_scores.note
    parent = tree.parent_of(t)
    if candidate is not None:
        scores_of_strategy = {role: (score,) for role, score in candidate.scores.items() if role not in roles}
        scores |= scores_of_strategy
    return TraceNode(
        node=t.node,
        parent=None if parent is None else parent.node,
        kind=t.root_kind,
        model=t.model,
        text=tree.own_prompts.get(t.node, prompt) if parent is None else tree.own_text(t),
        tokens=tree.own_tokens(t),
        status=t.status,
        stream=f"{t.stream:016x}",
        pruned=pruned,
        scratch=t.node in tree.scratch,
        scores=scores,
        answer=None if candidate is None else candidate.answer,
        candidate=None if candidate is None else candidate.index,
        weight=None if candidate is None or math.isnan(candidate.weight) else candidate.weight,
        outcomes=outcomes,
        notes=notes,
        thought=0 if parent is None else _thought(t, tree.own_text(t)),
    )


def _with_tokens(node: TraceNode, tree: Tree, tokenizer: Tokenizer | None) -> TraceNode:
    """Return a node with its tokens and their log-probabilities, as far as they are known."""
    t = tree.nodes[node.node]
    if node.parent is None:
        prompt = tree.asked.get(t.node)
        ids = () if prompt is None or tokenizer is None else tuple(tokenizer.prompt(prompt))
        return dataclasses.replace(node, prompt=prompt, token_ids=ids)
    num_own = node.tokens if tree.parent_of(t) is not t.parent else len(t.token_ids)
    # a node that was divided has its first tokens in another node
    own_part = slice(max(0, len(t.token_ids) - num_own), None)
    ids = t.token_ids[own_part]
    num_thought_tokens = 0
    if node.thought and tokenizer is not None:
        num_thought_tokens = _thought_tokens(ids, node.thought, tokenizer)
    return dataclasses.replace(
        node,
        token_ids=ids,
        logprobs=t.logprobs[own_part],
        sampling_logprobs=t.sampling_logprobs[own_part],
        thought_tokens=num_thought_tokens,
    )


def _thought_tokens(ids: Sequence[int], characters: int, tokenizer: Tokenizer) -> int:
    """Return the number of first tokens that spell `characters` characters.

    All tokens count where the tokenizer does not know a token, as in forced text.
    """
    try:
        return bisect_left(range(len(ids)), characters, key=lambda count: len(tokenizer.write(ids[:count])))
    except TTSError:
        return len(ids)


def _thought(t: Trajectory, own_text: str) -> int:
    """Return the number of characters of a node's own text that are of a thought, with the thought's marks."""
    text = t.full_text
    thought_end = t.marks.split(text)[1]
    return min(len(own_text), max(0, thought_end - (len(text) - len(own_text))))
