"""The state of a row under way, for backends that draw token by token: its tokens, text, and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tts.backends.base import Draft, Finish, Row, RowSet, Sample
from tts.backends.text.detokenizer import Detokenizer, context_start
from tts.backends.text.stops import StopScanner
from tts.errors import EngineError, TTSError
from tts.types import Spread


class PathText(NamedTuple):
    """The state of a path's text, from which its continuation is detokenized.

    Args:
        tail: The last tokens of the path, on which the next token's text depends.
        read: The number of tokens in `tail` whose text has been emitted.
        carry: The text of the last token that opens the path's continuation.
    """

    tail: tuple[int, ...]
    read: int
    carry: str = ""

    @staticmethod
    def skip(ids: Sequence[int], carry: str = "") -> PathText:
        """Return the state after tokens whose text has been emitted, such as a prompt or a forced text."""
        tail = tuple(ids[context_start(len(ids)) :])
        return PathText(tail, len(tail), carry)


class RowState:
    """A row under way.

    Args:
        rows: The request's rows.
        index: The index of the row.
        before: The state of the path's text.
        length: The number of tokens of the path.
        decode: Turns token ids into text.
        eos: Ids that end a row.
        context: Most tokens of a path.

    Attributes:
        ids: The ids of the new tokens.
        logprobs: The log-probabilities of the new tokens.
        spreads: The `Spread` at each new token, if the request wants spreads.
        sampling_logprobs: The log-probabilities of the new tokens under the law that drew them.
        pieces: The text that each new token completed.
        seconds: Model time so far.
    """

    def __init__(
        self,
        rows: RowSet,
        index: int,
        before: PathText,
        length: int,
        *,
        decode: Callable[[Sequence[int]], str],
        eos: frozenset[int],
        context: int,
    ) -> None:
        self.rows = rows
        self.index = index
        self.row: Row = rows.request.rows[index]
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.spreads: list[Spread] = []
        self.sampling_logprobs: list[float] = []
        self.pieces: list[str] = []
        self.seconds = 0.0
        self._length = length
        self._context = context
        self._eos = eos
        self._detokenizer = Detokenizer(decode, before.tail, 0, before.read)
        self._scanner = StopScanner(rows.request.stop, rows.request.text, before.carry)
        self._flushed_text = ""  # the text of an unfinished character, which the end of the path brings
        rows.show_draft(index, self.draft)

    def draft(self) -> Draft:
        """Return the text and the number of tokens so far."""
        return Draft(self._scanner.text, len(self.ids))

    @property
    def position(self) -> int:
        """The position of the next token's draw."""
        return self.row.position + len(self.ids)

    def early_finish(self) -> Finish | None:
        """Return the finish of a row that ends before its first token; None: the row can begin."""
        if self.rows.cancelled:
            return "cancelled"
        if self._scanner.ended:
            return self._scanner.ended
        if self.row.max_tokens < 1 or self._length >= self._context:
            return "length"
        return None

    def append(
        self, token: int, logprob: float, spread: Spread | None = None, sampling_logprob: float | None = None
    ) -> Finish | None:
        """Append a drawn token, and return the row's finish; None: the row goes on.

        Args:
            token: The id of the token.
            logprob: The token's log-probability.
            spread: The spread of the token's distribution; None: not known.
            sampling_logprob: The token's log-probability under the law that drew it; None: not known.
        """
        self.ids.append(token)
        self.logprobs.append(logprob)
        if spread is not None and self.rows.request.spreads:
            self.spreads.append(spread)
        if sampling_logprob is not None and self.rows.request.sampling_logprobs:
            self.sampling_logprobs.append(sampling_logprob)
        if token in self._eos:
            self._flushed_text = self._detokenizer.flush()
            self.pieces.append(self._flushed_text)
            return "eos"
        piece = self._detokenizer.push(token)
        self.pieces.append(piece)
        if self._scanner.feed(piece):
            return self._scanner.ended or "stop"
        if len(self.ids) >= self.row.max_tokens or self._length + len(self.ids) >= self._context:
            return "length"
        return None

    def path_text(self) -> PathText:
        """Return the state of the path's text."""
        detokenizer = self._detokenizer
        return PathText(detokenizer.tail(), read=detokenizer.read - detokenizer.start, carry=self._scanner.carry)

    def sample(self, finish: Finish, *, error: str = "") -> Sample:
        """Return the ended row as a sample without a handle."""
        return Sample(
            text=self._scanner.text + self._flushed_text,
            token_ids=tuple(self.ids),
            logprobs=tuple(self.logprobs),
            finish=finish,
            handle=None,
            num_tokens=len(self.ids),
            error=error,
            seconds=self.seconds,
            spreads=tuple(self.spreads),
            sampling_logprobs=tuple(self.sampling_logprobs),
        )


def failed_row(failure: Exception) -> Sample:
    """Return the sample of a row that could not begin."""
    return Sample.empty("error", error=error_line(failure))


def as_engine_error(failure: Exception, what: str) -> EngineError:
    """Return a failure as an EngineError. An EngineError is returned as it is.

    Args:
        failure: The failure.
        what: A noun for the part that failed, for the message.
    """
    if isinstance(failure, EngineError):
        return failure
    first_line = str(failure).partition("\n")[0]
    error = EngineError(f"{what} failed: {type(failure).__name__}: {first_line}")
    error.__cause__ = failure
    return error


def error_line(failure: Exception) -> str:
    """Return a failure as one line for `Sample.error`, with its kind unless that is EngineError itself."""
    if type(failure) is EngineError:
        return failure.cause
    cause = failure.cause if isinstance(failure, TTSError) else str(failure).partition("\n")[0]
    return f"{type(failure).__name__}: {cause}"
