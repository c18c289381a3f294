"""The state behind a handle: a node, the state of its text, and process models' views of its prompt."""

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
    """The state of a path, which owns a handle of its node and releases it when garbage-collected.

    Args:
        gone: Releases to run in the engine's thread.
        tree: The tree of the node.
        node: The last node of the path.
        at: The state of the path's text.
        written: The text after the prompt.
        num_prompt: The number of tokens of the prompt.
        views: The views of process models on the prompt.
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
    """Return for each piece of a path's text the token that completes the piece.

    `Task.split` makes the pieces. Where a token carries text into its continuation, forced text comes before the
    carried text. There a step may be read one token late.
    """
    tokens, completing_indices = _complete(state, step)
    return [tokens[index] for index in completing_indices]


def step_ids(
    state: PathState, step: Sequence[str], eos: frozenset[int]
) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Return the tokens of each piece of a path's text, and the tokens after all pieces.

    The tokens of a piece end with the token that completes the piece. A piece is () where its token also completes the
    piece before. Tokens that have no text yet, such as the first bytes of a character, come after all pieces. Where the
    last piece is an unfinished step, these tokens belong to that piece. End-of-sequence tokens are left out.
    """
    tokens, completing_indices = _complete(state, step)
    ids = [node.tokens[index] for node, index in tokens]
    piece_edges = [0, *(index + 1 for index in completing_indices)]
    pieces = [tuple(ids[start:end]) for start, end in pairwise(piece_edges)]
    ids_after = tuple(token for token in ids[piece_edges[-1] :] if token not in eos)
    if pieces and not state.written.endswith(tuple(step)):
        return [*pieces[:-1], pieces[-1] + ids_after], ()
    return pieces, ids_after


def _complete(state: PathState, step: Sequence[str]) -> tuple[list[Token], list[int]]:
    """Return the tokens of a path after its prompt, and for each piece the index of its completing token."""
    tokens: list[Token] = []
    token_ends: list[int] = []  # characters of the text up to the end of each token
    num_characters = 0
    for node in state.node.path():
        if node.start < state.num_prompt:
            continue
        for index, token_text in enumerate(node.pieces):
            num_characters += len(token_text)
            tokens.append((node, index))
            token_ends.append(num_characters)
    token_index = 0
    completing_indices: list[int] = []
    for piece_end in accumulate(len(piece) for piece in split_after(state.written, tuple(step))):
        while token_ends[token_index] < piece_end:
            token_index += 1
        completing_indices.append(token_index)
    return tokens, completing_indices
