"""One model's step loop: rows that are written and paths that are read, of all problems, one forward pass a step.

It is synchronous and belongs to one thread at a time: work is added, `step` is called until it is no longer busy, and ends are
told by the callbacks of the work. What a row gives depends neither on the steps it shares with others nor on their order: its
draws are addressed by its own stream, and with the strict executor its numbers are bit for bit its own.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tts.backends.base import Finish
from tts.backends.engine.decoder import Decoder
from tts.backends.engine.heads import ValueHead
from tts.backends.engine.planning import Rows, make_plan
from tts.backends.engine.scheduler import Feed, Limits, Scheduler
from tts.backends.engine.stats import EngineStats, StepReport
from tts.backends.engine.tree import KVTree, Node
from tts.backends.engine.work import Floats, Line, Reading, RowEnd, Work, Writing
from tts.backends.kernels.draw import Asked
from tts.backends.kernels.plan import BLOCK
from tts.backends.row_state import RowState, failed_row, said
from tts.backends.sampling import log_law, spread
from tts.errors import EngineError

_KEPT_LAWS = 64  # nodes whose logits are kept for further rows


class Runner:
    """Runs one model.

    Args:
        decoder: the model. tree: over a pool of its own. limits: of a step. heads: value heads on its hidden states, by name.
        decode: turns token ids into text. eos: ids that end a row. share: whether rows read common ancestors together.

    Attributes:
        stats: exact counters. report: called after each step, if set.
    """

    def __init__(
        self,
        decoder: Decoder,
        tree: KVTree,
        limits: Limits,
        *,
        decode: Callable[[Sequence[int]], str],
        eos: frozenset[int],
        heads: Mapping[str, ValueHead] | None = None,
        share: bool = True,
    ) -> None:
        self.decoder = decoder
        self.tree = tree
        self.heads = dict(heads or {})
        self.stats = EngineStats()
        self.report: Callable[[StepReport], None] | None = None
        self._bytes = decoder.kv_shape.bytes_per_token
        self._scheduler = Scheduler(tree, limits, self.stats, bytes_per_token=self._bytes, failed=self._failed)
        self._limits = limits
        self._decode = decode
        self._eos = eos
        self._share = share
        self._writings: list[Writing] = []
        self._laws: OrderedDict[Node, Floats] = OrderedDict()
        self._readers: dict[Node, list[Writing]] = {}
        self._count = 0

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._writings) or self._scheduler.busy

    @property
    def context(self) -> int:
        """Most tokens of a path."""
        return self.decoder.config.context

    def read(self, reading: Reading) -> None:
        """Take on a reading."""
        self._count += 1
        reading.order = (self._count, 0)
        self._scheduler.add(reading)

    def write(self, writing: Writing) -> None:
        """Take on rows."""
        self._count += 1
        writing.order = (self._count, 0)
        self._writings.append(writing)

    def abandon(self, failure: Exception) -> None:
        """End everything with a failure."""
        for work in self._scheduler.every():
            self._failed(work, failure, scheduled=True)
        for writing in self._writings:
            self._end_waiting(writing, "error", failure)
        self._writings = []
        self._scheduler.end_step()
        self._laws.clear()

    def step(self) -> None:
        """Do one step: one forward pass at most. A failure of one row or path ends that one alone."""
        began = time.perf_counter()
        self.tree.clock += 1
        self._cancel()
        self._begin_lines()
        feeds = self._scheduler.choose()
        if feeds:
            try:
                self._pass(feeds, began)
            except Exception as failure:  # noqa: BLE001 - whatever broke the pass, nothing of this step can be trusted
                self._break(feeds, failure)
            except BaseException:
                self._forget(feeds)
                raise
        for work in list(self._scheduler.running):
            if isinstance(work, Reading) and work.ready and work.at >= work.upto and self.tree.length(work.node) >= work.upto:
                self._end_reading(work)
        self._scheduler.end_step()
        self.stats.kv_tokens_peak = max(self.stats.kv_tokens_peak, self.tree.pool.peak_used * BLOCK)
        self.stats.evictions = self.tree.evictions

    # Rows begin -----------------------------------------------------------------------------------------------------------------

    def _cancel(self) -> None:
        """End the rows whose request was cancelled."""
        for work in self._scheduler.every():
            if isinstance(work, Line) and work.writing.rows.cancelled:
                self.stats.cancelled_tokens += len(work.state.ids)
                self._end_line(work, "cancelled")
        for writing in [writing for writing in self._writings if writing.rows.cancelled]:
            self._end_waiting(writing, "cancelled")
            self._writings.remove(writing)

    def _begin_lines(self) -> None:
        """Start rows that wait, oldest first, while there is room for them; each draws its first token from its node's law."""
        room = self._limits.rows - sum(isinstance(work, Line) for work in self._scheduler.every())
        for writing in list(self._writings):
            if room <= 0:
                return
            law = self._law(writing)
            if law is None:
                room -= writing.num_waiting
                continue
            count = min(room, writing.num_waiting)
            lines = [self._line(writing) for _ in range(count)]
            room -= count
            if not writing.num_waiting:
                self._writings.remove(writing)
                self.tree.release(writing.node)
            on = torch.from_numpy(law[None]).to(self.decoder.device)
            self._draw([line for line in lines if line is not None], on, None)

    def _law(self, writing: Writing) -> Floats | None:
        """Return the logits behind a writing's node; where they are not kept, have them read, and return None until they are."""
        if writing.law is None and (law := self._laws.get(writing.node)) is not None:
            self._laws.move_to_end(writing.node)
            writing.law = law
        if writing.law is None and not writing.asked:
            writing.asked = True
            readers = self._readers.setdefault(writing.node, [])
            readers.append(writing)
            if len(readers) == 1:
                size = len(writing.node.tokens)
                reading = Reading(self.tree.retain(writing.node), size, size - 1, self._law_read)
                reading.order = writing.order
                self._scheduler.add(reading)
        return writing.law

    def _law_read(self, reading: Reading) -> None:
        """Tell those who wait for a node's law."""
        for writing in self._readers.pop(reading.node):
            writing.asked = False
            if reading.failure is None:
                writing.law = reading.found[0][-1]
            elif writing in self._writings:
                self._writings.remove(writing)
                self._end_waiting(writing, "error", reading.failure)
        if reading.failure is None:
            self._laws[reading.node] = reading.found[0][-1]
            if len(self._laws) > _KEPT_LAWS:
                self._laws.popitem(last=False)

    def _line(self, writing: Writing) -> Line | None:
        """Begin a writing's next row; None where it ended at once."""
        index, node = writing.next_row, writing.node
        writing.next_row += 1
        try:
            state = RowState(writing.rows, index, writing.text, node.end, decode=self._decode, eos=self._eos, context=self.context)
            finish = state.at_once()
        except Exception as failure:  # noqa: BLE001 - its predicate raised: its own failure, nobody else's
            writing.ended(RowEnd(writing, index, None, "error", None, failed_row(failure).error))
            return None
        if finish is not None:
            kept = self.tree.retain(node) if finish != "cancelled" else None
            writing.ended(RowEnd(writing, index, state, finish, kept))
            return None
        line = Line(writing, self.tree.add(node, ()), state, (writing.order[0], index + 1))
        self._scheduler.add(line)
        return line

    # One pass -------------------------------------------------------------------------------------------------------------------

    def _pass(self, feeds: Sequence[Feed], began: float) -> None:
        """Plan, run the model, and give each piece of work what it asked for."""
        nodes, first, num_tokens, _ = zip(*feeds, strict=True)
        rows = Rows(np.array([node.place for node in nodes], np.int64), np.array(first, np.int64), np.array(num_tokens, np.int64))
        planned = make_plan(rows, self.tree.table, self.tree.pool.following, share=self._share)
        ordered = [feeds[row] for row in planned.order.tolist()]
        apart = len(planned.places) == len(feeds) and all(isinstance(feed.work, Line) for feed in feeds)
        if apart:
            ids = [feed.node.tokens[feed.first] for feed in ordered]
        else:
            ids = [token for feed in ordered for token in feed.node.tokens[feed.first : feed.until]]
        wanted, with_logits = self._wanted(ordered)
        planned_at = time.perf_counter()
        with torch.inference_mode():
            output = self.decoder.forward(np.array(ids, np.int64), planned, wanted, with_logits, self.tree.pool, apart=apart)
            hidden = output.hidden.float().cpu().numpy()
        ran_at = time.perf_counter()
        lines = [feed for feed in feeds if isinstance(feed.work, Line)]
        self.stats.count_pass(self.decoder, planned, rows=len(feeds), prefill=len(ids) - len(lines), laws=len(with_logits))
        self._give(ordered, output.logits, hidden, ran_at - began)
        if self.report is not None:
            ended_at = time.perf_counter()
            seconds = (planned_at - began, ran_at - planned_at, ended_at - ran_at)
            self.report(StepReport(len(ids), len(lines), planned.keys_read, *seconds))

    def _wanted(self, ordered: Sequence[Feed]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of a step's tokens hidden states are wanted of, and which of those logits are wanted of."""
        wanted: list[int] = []
        with_logits: list[int] = []
        start = 0
        for feed in ordered:
            asked = feed.asked
            for token in range(feed.first if self.heads else asked, feed.first + feed.num_tokens):
                if token >= asked and feed.asks_logits:
                    with_logits.append(len(wanted))
                wanted.append(start + token - feed.first)
            start += feed.num_tokens
        return np.array(wanted, np.int64), np.array(with_logits, np.int64)

    def _give(self, ordered: Sequence[Feed], logits: torch.Tensor, hidden: Floats, seconds: float) -> None:
        """Hand out logits and hidden states; draw the next token of every row that has its logits."""
        lines: list[Line] = []
        laws: list[int] = []
        row = state = 0
        for feed in ordered:
            work, count = feed.work, feed.until - feed.asked
            states = hidden[state : state + (feed.num_tokens if self.heads else count)]
            state += len(states)
            for name, head in self.heads.items():
                _note(feed.node.scores.setdefault(name, []), feed.first, head(states))
            if isinstance(work, Line):
                work.state.seconds += seconds
                if count:
                    lines.append(work)
                    laws.append(row)
            elif work is not None:
                work.seconds += seconds
                if count:
                    found = logits[row : row + count].float().cpu().numpy() if work.logits else states[len(states) - count :]
                    work.found.append(found.copy())
                    work.at = feed.until
            row += count if feed.asks_logits else 0
        self._draw(lines, logits, np.array(laws, np.int64))

    def _draw(self, lines: Sequence[Line], logits: torch.Tensor, laws: NDArray[np.int64] | None) -> None:
        """Draw a token for each line; rows that end leave.

        Args:
            laws: which row of `logits` each line draws from; None: all from the first.
        """
        if not lines:
            return
        asked = Asked(
            rows=np.zeros(len(lines), np.int64) if laws is None else laws,
            samplings=[line.state.rows.request.sampling for line in lines],
            streams=np.array([line.state.row.stream for line in lines], np.uint64),
            positions=np.array([line.state.position for line in lines], np.int64),
            words=np.array([line.state.row.word for line in lines], np.uint64),
        )
        drawn = self.decoder.operations.draw(logits, asked)
        for row, line, token, logprob in zip(asked.rows.tolist(), lines, drawn.tokens.tolist(), drawn.logprobs.tolist(), strict=True):
            if token < 0:
                self._end_line(line, "error", "the model's logits are no law over tokens (NaN or infinite)")
                continue
            self.stats.decode_tokens += 1
            try:
                finish = self._append(line, token, logprob, logits[row])
            except Exception as failure:  # noqa: BLE001 - of its own predicate, so nobody else's
                self._end_line(line, "error", said(failure))
                continue
            if finish is not None:
                self._end_line(line, finish)

    def _append(self, line: Line, token: int, logprob: float, logits: torch.Tensor) -> Finish | None:
        """Write a token that was drawn from logits [V]."""
        line.node.tokens.append(token)
        wanted = line.state.rows.request.spreads
        return line.state.append(token, logprob, spread(log_law(logits.float().cpu().numpy())) if wanted else None)

    # Ends -----------------------------------------------------------------------------------------------------------------------

    def _end_line(self, line: Line, finish: Finish, error: str = "") -> None:
        self._scheduler.remove(line)
        line.node.pieces = line.state.pieces
        node = line.node
        if finish in ("error", "cancelled"):
            self.tree.release(node)
            line.writing.ended(RowEnd(line.writing, line.state.index, line.state, finish, None, error, began=True))
        else:
            line.writing.ended(RowEnd(line.writing, line.state.index, line.state, finish, node, began=True))

    def _end_waiting(self, writing: Writing, finish: Finish, failure: Exception | None = None) -> None:
        """End the rows of a writing that have not begun."""
        error = "" if failure is None else said(failure)
        for index in range(writing.next_row, len(writing.rows.request.rows)):
            writing.ended(RowEnd(writing, index, None, finish, None, error))
        writing.next_row = len(writing.rows.request.rows)
        self.tree.release(writing.node)

    def _end_reading(self, reading: Reading) -> None:
        self._scheduler.remove(reading)
        reading.done(reading)
        self.tree.release(reading.node)

    def _failed(self, work: Work, failure: Exception, *, scheduled: bool = False) -> None:
        """End work that cannot go on."""
        if scheduled:
            self._scheduler.remove(work)
        if isinstance(work, Line):
            work.writing.ended(RowEnd(work.writing, work.state.index, work.state, "error", None, said(failure), began=True))
        else:
            work.failure = engine_error(failure)
            work.done(work)
        self.tree.release(work.node)

    def _break(self, feeds: Sequence[Feed], failure: Exception) -> None:
        """End the work of a pass that failed, and forget what it may have written."""
        self._forget(feeds)
        fed = {feed.work for feed in feeds if feed.work is not None} or set(self._scheduler.running[:1])  # or it would break for ever
        for work in [work for work in self._scheduler.every() if work in fed]:
            self._failed(work, failure, scheduled=True)

    def _forget(self, feeds: Sequence[Feed]) -> None:
        for feed in feeds:
            self.tree.forget(feed.node)
        for work in self._scheduler.running:
            work.ready = False


def _note(scores: list[float], first: int, values: NDArray[np.float32]) -> None:
    """Write readings from token `first` on; those of tokens read again are the same."""
    scores[first : first + len(values)] = values.tolist()


def engine_error(failure: Exception) -> EngineError:
    """Return a failure as an EngineError, itself if it is one."""
    if isinstance(failure, EngineError):
        return failure
    error = EngineError(f"the engine failed: {type(failure).__name__}: {str(failure).partition(chr(10))[0]}")
    error.__cause__ = failure
    return error
