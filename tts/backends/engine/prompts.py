"""Log-probabilities of whole prompts, whose common beginnings are computed once.

Prompts are cut at fixed positions into pieces, which several prompts may share. A piece has `PIECE` tokens, the last
one of a prompt the rest. That is a tile of the strict attention kernel, so that a cut changes no bit. Where prompts are
cut follows from each alone, and so do its numbers. Two prompts share whole pieces: of a common beginning, the tokens
after its last whole piece are computed for each.

Logits are turned into the few numbers that are wanted as soon as they are computed, and are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tts.backends.engine.core import Runner
from tts.backends.engine.tree import CACHED, KVNode
from tts.backends.engine.work import Floats, PrefillJob, engine_error
from tts.backends.prompt_logprobs import most_likely
from tts.backends.sampling import log_softmax

PIECE = 64  # tokens

Ids = tuple[int, ...]
Likely = tuple[tuple[int, float], ...]  # tokens and their log-probabilities, best first


@dataclass(slots=True, eq=False)
class Piece:
    """Some tokens after a common beginning, and what was read at them.

    Args:
        tokens: Its own tokens.
        above: The piece before it.

    Attributes:
        prompts: The prompts that have it, by their places in the call.
        below: The pieces after it.
        following: The tokens that come next in some prompt, with their log-probabilities, for each token.
        likely: The most likely tokens after each token.
        failure: Why it could not be read.
    """

    tokens: Ids
    above: Piece | None
    prompts: list[int] = field(default_factory=list[int])
    below: dict[Ids, Piece] = field(default_factory=dict[Ids, "Piece"])
    following: list[dict[int, float]] = field(default_factory=list[dict[int, float]])
    likely: list[Likely] = field(default_factory=list[Likely])
    failure: Exception | None = None

    def read(self, logits: Floats, top: int) -> None:
        """Take the logits of the next tokens.

        Args:
            logits: [tokens, V] logits, from the first token on of which none were taken.
            top: The number of most likely tokens to keep for each place.
        """
        for row in logits:
            logprobs = log_softmax(row)
            behind = len(self.following) + 1
            wanted = (
                (self.tokens[behind],)
                if behind < len(self.tokens)
                else [piece.tokens[0] for piece in self.below.values()]
            )
            self.following.append({token: float(logprobs[token]) for token in wanted})
            self.likely.append(tuple((token, float(logprobs[token])) for token in most_likely(logprobs, top)))


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """What was read of a prompt of T tokens.

    Args:
        logprobs: [T], NaN at the first.
        likely: [T + 1], () at the first; the last are those after the prompt.
        failure: None where it succeeded.
        seconds: The seconds of the engine's steps for the pieces that this prompt is the first to have.
    """

    logprobs: tuple[float, ...]
    likely: tuple[Likely, ...]
    failure: Exception | None
    seconds: float


class PromptReads:
    """The prompts of one call, which are read once.

    Args:
        prompts: The prompts, of at least one token each.
        top: Most likely tokens to keep for each place.
    """

    def __init__(self, prompts: Sequence[Ids], top: int) -> None:
        self._top = top
        self._prompts: list[list[Piece]] = []
        roots: dict[Ids, Piece] = {}
        for place, ids in enumerate(prompts):
            below, pieces = roots, list[Piece]()
            for start in range(0, len(ids), PIECE):
                tokens = ids[start : start + PIECE]
                piece = below.setdefault(tokens, Piece(tokens, pieces[-1] if pieces else None))
                piece.prompts.append(place)
                pieces.append(piece)
                below = piece.below
            self._prompts.append(pieces)
        # of each prompt, the pieces that are still to be read
        self._missing = [sum(self._num_read(piece) > 0 for piece in pieces) for pieces in self._prompts]
        self._seconds = [0.0] * len(prompts)

    def charges(self) -> list[tuple[int, int]]:
        """Return the tokens that each prompt computes, and those that it shares with an earlier one."""
        own = [
            sum(len(piece.tokens) for piece in pieces if piece.prompts[0] == place)
            for place, pieces in enumerate(self._prompts)
        ]
        return [
            (one, sum(len(piece.tokens) for piece in pieces) - one)
            for one, pieces in zip(own, self._prompts, strict=True)
        ]

    def begin(self, runner: Runner, done: Callable[[int, ReadPrompt], None]) -> None:
        """Add the jobs, in the engine's thread; `done` is called with each prompt's place as it ends."""
        nodes: dict[Piece, KVNode] = {}
        for piece in dict.fromkeys(piece for pieces in self._prompts for piece in pieces):
            nodes[piece] = runner.tree.add(nodes[piece.above] if piece.above else None, piece.tokens, CACHED)
        for piece, node in nodes.items():
            if num_read := self._num_read(piece):
                ended, take = partial(self._end_piece, piece, done), partial(self._take, piece)
                runner.add_prefill(PrefillJob(runner.tree.retain(node), num_read, 0, ended, take=take))
        for node in nodes.values():  # the jobs, and the nodes below, keep what is still needed
            runner.tree.release(node)
        for place, count in enumerate(self._missing):
            if not count:  # one token, which nothing follows
                done(place, self._find(place))

    def _num_read(self, piece: Piece) -> int:
        """Return how many of a piece's tokens are read: the last one only where the tokens after it are wanted."""
        return len(piece.tokens) if piece.below or self._top else len(piece.tokens) - 1

    def _end_piece(self, piece: Piece, done: Callable[[int, ReadPrompt], None], job: PrefillJob) -> None:
        piece.failure = piece.failure or job.failure
        self._seconds[piece.prompts[0]] += job.seconds
        for place in piece.prompts:
            self._missing[place] -= 1
            if not self._missing[place]:
                done(place, self._find(place))

    def _take(self, piece: Piece, logits: Floats) -> None:
        try:
            piece.read(logits, self._top)
        except Exception as failure:  # noqa: BLE001 - such as logits that are not finite: fails the prompts of this piece only
            piece.failure = engine_error(failure)

    def _find(self, place: int) -> ReadPrompt:
        pieces, seconds = self._prompts[place], self._seconds[place]
        failure = next((piece.failure for piece in pieces if piece.failure is not None), None)
        if failure is not None:
            return ReadPrompt((), (), failure, seconds)
        ids = [token for piece in pieces for token in piece.tokens]
        following = [one for piece in pieces for one in piece.following][: len(ids) - 1]
        likely = [one for piece in pieces for one in piece.likely] if self._top else [()] * len(ids)
        logprobs = (np.nan, *(one[token] for one, token in zip(following, ids[1:], strict=True)))
        return ReadPrompt(logprobs, ((), *likely), None, seconds)
