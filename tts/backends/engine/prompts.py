"""Log-probabilities of whole prompts, whose common beginnings are computed once.

Prompts are cut at fixed positions into pieces, which several prompts may share. A piece has `PIECE` tokens; the last
piece of a prompt has the rest. A piece is a tile of the strict attention kernel, so that a cut changes no bit. The cuts
of a prompt depend on that prompt alone, and so do its numbers. Two prompts share whole pieces: the tokens of a common
beginning after its last whole piece are computed for each prompt.

Logits are not kept. As soon as they are computed, the few wanted log-probabilities are taken from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tts.backends.engine.core import Runner
from tts.backends.engine.tree import CACHED, KVNode
from tts.backends.engine.work import PrefillJob, engine_error
from tts.backends.kernels.draw import LogitReading

PIECE = 64  # tokens

Ids = tuple[int, ...]
Likely = tuple[tuple[int, float], ...]  # tokens and their log-probabilities, best first


@dataclass(slots=True, eq=False)
class Piece:
    """Some tokens after a common beginning, and the log-probabilities after each token.

    Args:
        tokens: The tokens of the piece.
        above: The piece before this piece.

    Attributes:
        prompts: The places in the call of the prompts with this piece.
        below: The pieces after this piece.
        following: The tokens that come next in some prompt after each token, with their log-probabilities.
        likely: The most likely tokens after each token.
        failure: Why the piece could not be read.
    """

    tokens: Ids
    above: Piece | None
    prompts: list[int] = field(default_factory=list[int])
    below: dict[Ids, Piece] = field(default_factory=dict[Ids, "Piece"])
    following: list[dict[int, float]] = field(default_factory=list[dict[int, float]])
    likely: list[Likely] = field(default_factory=list[Likely])
    failure: Exception | None = None

    def next_tokens(self) -> list[list[int]]:
        """Return the tokens that come next in some prompt, after each token."""
        return [*([token] for token in self.tokens[1:]), [piece.tokens[0] for piece in self.below.values()]]

    def take(self, readings: Sequence[LogitReading]) -> None:
        """Take what was read behind the piece's tokens, in order."""
        for tokens, reading in zip(self.next_tokens(), readings, strict=False):
            self.following.append(dict(zip(tokens, reading.logprobs.tolist(), strict=True)))
            self.likely.append(reading.likely)


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """The log-probabilities of a prompt of T tokens.

    Args:
        logprobs: [T], NaN at the first token.
        likely: [T + 1] most likely tokens at each place, () at the first; the last entry is after the prompt.
        failure: None where all pieces were read.
        seconds: The seconds of the engine's steps for the pieces that no earlier prompt has.
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
            next_pieces = roots
            pieces: list[Piece] = []
            for start in range(0, len(ids), PIECE):
                tokens = ids[start : start + PIECE]
                new_piece = Piece(tokens, above=pieces[-1] if pieces else None)
                piece = next_pieces.setdefault(tokens, new_piece)
                piece.prompts.append(place)
                pieces.append(piece)
                next_pieces = piece.below
            self._prompts.append(pieces)
        # [prompts] the pieces of each prompt that are still to be read
        self._num_unread = [sum(self._num_read(piece) > 0 for piece in pieces) for pieces in self._prompts]
        self._seconds = [0.0] * len(prompts)

    def charges(self) -> list[tuple[int, int]]:
        """Return for each prompt how many tokens are computed for it, and how many earlier prompts share."""
        charges: list[tuple[int, int]] = []
        for place, pieces in enumerate(self._prompts):
            num_tokens = sum(len(piece.tokens) for piece in pieces)
            num_computed = sum(len(piece.tokens) for piece in pieces if piece.prompts[0] == place)
            charges.append((num_computed, num_tokens - num_computed))
        return charges

    def begin(self, runner: Runner, done: Callable[[int, ReadPrompt], None]) -> None:
        """Add the jobs, in the engine's thread; `done` is called with each prompt's place and result."""
        nodes: dict[Piece, KVNode] = {}  # a piece comes after the piece above it
        for pieces in self._prompts:
            for piece in pieces:
                if piece not in nodes:
                    parent = nodes[piece.above] if piece.above else None
                    nodes[piece] = runner.tree.add(parent, piece.tokens, CACHED)
        for piece, node in nodes.items():
            num_read = self._num_read(piece)
            if num_read:
                on_end, tokens = partial(self._end_piece, piece, done), piece.next_tokens()[:num_read]
                runner.add_prefill(PrefillJob(runner.tree.retain(node), num_read, 0, on_end, tokens, self._top))
        for node in nodes.values():  # jobs and child nodes keep the nodes that are still needed
            runner.tree.release(node)
        for place, num_unread in enumerate(self._num_unread):
            if not num_unread:  # a prompt of one token has nothing to read
                done(place, self._result(place))

    def _num_read(self, piece: Piece) -> int:
        """Return the number of a piece's tokens after which log-probabilities are wanted.

        The last token of a prompt counts only if most likely tokens are asked for.
        """
        return len(piece.tokens) if piece.below or self._top else len(piece.tokens) - 1

    def _end_piece(self, piece: Piece, done: Callable[[int, ReadPrompt], None], job: PrefillJob) -> None:
        """Note the end of the job that reads a piece, and report the prompts that are now read to their end.

        Args:
            piece: The piece: tokens that several prompts may share.
            done: A function that is called with the place and the result of each such prompt.
            job: The job.
        """
        try:
            piece.take(job.result())
        except Exception as failure:  # noqa: BLE001 - a failure fails the prompts of this piece only
            piece.failure = engine_error(failure)
        first_place = piece.prompts[0]
        self._seconds[first_place] += job.seconds  # later prompts share the piece without cost
        for place in piece.prompts:
            self._num_unread[place] -= 1
            if not self._num_unread[place]:
                done(place, self._result(place))

    def _result(self, place: int) -> ReadPrompt:
        """Return what was read of a prompt, whose pieces are all read."""
        pieces, seconds = self._prompts[place], self._seconds[place]
        for piece in pieces:
            if piece.failure is not None:
                return ReadPrompt((), (), piece.failure, seconds)
        ids: list[int] = []
        following: list[dict[int, float]] = []
        likely: list[Likely] = []
        for piece in pieces:
            ids += piece.tokens
            following += piece.following
            likely += piece.likely
        if not self._top:
            likely = [()] * len(ids)
        following = following[: len(ids) - 1]  # there may be an entry after the last token too
        logprobs = [logprobs_after[token] for logprobs_after, token in zip(following, ids[1:], strict=True)]
        return ReadPrompt((np.nan, *logprobs), ((), *likely), None, seconds)
