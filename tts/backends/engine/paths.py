"""The state behind a handle.

It is a node, the state of its text, and the views of process models on its prompt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

from tts.backends.engine.tree import KVNode, KVTree
from tts.backends.engine.views import View
from tts.backends.text.row_state import PathText
from tts.tasks.base import split_after

Gone = deque[Callable[[], None]]


class Views:
    """The views of one opened prompt, released when no state refers to them."""

    def __init__(self, gone: Gone, views: Mapping[str, View]) -> None:
        self._gone = gone
        self._views = views

    def __getitem__(self, name: str) -> View:
        return self._views[name]

    def __del__(self) -> None:
        for view in self._views.values():
            self._gone.append(view.release)


@dataclass(slots=True, eq=False, repr=False)
class PathState:
    """The state of a path. It owns one handle of its node, which it releases when it is garbage-collected.

    Args:
        gone: Releases to run in the engine's thread.
        tree: The tree of the node.
        node: The last node of the path.
        at: State of its text.
        written: Its text after the prompt.
        num_prompt: Tokens of its prompt.
        views: What process models have scored below its prompt.
    """

    gone: Gone
    tree: KVTree
    node: KVNode
    at: PathText
    written: str
    num_prompt: int
    views: Views

    def __del__(self) -> None:
        self.gone.append(partial(self.tree.release, self.node))

    def append(self, node: KVNode, at: PathText, text: str) -> PathState:
        """Return the state of a continuation that ends in `node` and added `text`."""
        return PathState(self.gone, self.tree, node, at, self.written + text, self.num_prompt, self.views)


Token = tuple[KVNode, int]  # a node, and which of its tokens


def step_tokens(state: PathState, step: Sequence[str]) -> list[Token]:
    """Return, for each piece of a path's text (as `Task.split` makes them), the token that completes it.

    Forced text stands before the text that the token in front of it carries; there a step may be read one token late.
    """
    tokens, ends = _complete(state, step)
    return [tokens[at] for at in ends]


def step_ids(
    state: PathState, step: Sequence[str], eos: frozenset[int]
) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Return the tokens of each piece of a path's text, and those after all pieces.

    The tokens of a piece run up to the one that completes the piece. A piece is () where the piece before took its
    token. Tokens that have no text yet, as the first bytes of a character, belong to a last step that has not ended;
    after one that has they are the second value. The end of a sequence is in neither.
    """
    tokens, ends = _complete(state, step)
    ids = [node.tokens[index] for node, index in tokens]
    pieces = [tuple(ids[start:end]) for start, end in pairwise([0, *(at + 1 for at in ends)])]
    rest = tuple(token for token in ids[ends[-1] + 1 if ends else 0 :] if token not in eos)
    if pieces and not state.written.endswith(tuple(step)):
        return [*pieces[:-1], pieces[-1] + rest], ()
    return pieces, rest


def _complete(state: PathState, step: Sequence[str]) -> tuple[list[Token], list[int]]:
    """Return the tokens of a path after its prompt, and for each piece of its text the index of the one that completes
    it.
    """
    nodes = [node for node in state.node.path() if node.start >= state.num_prompt]
    tokens = [(node, index) for node in nodes for index in range(len(node.pieces))]
    ends = list(accumulate(len(piece) for node in nodes for piece in node.pieces))
    at, found = 0, list[int]()
    for end in accumulate(len(text) for text in split_after(state.written, tuple(step))):
        while ends[at] < end:
            at += 1
        found.append(at)
    return tokens, found
