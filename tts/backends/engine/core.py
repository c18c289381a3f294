"""One model's step loop: decoding and prefill of all problems, with one forward pass in each step.

The loop is synchronous and used by one thread at a time: jobs are added, and `step` is called until all jobs have
ended. A callback reports the end of each job. A row's result depends neither on the rows that share its steps nor on
their order: its draws are addressed by its own stream, and with the strict executor its numbers are bit for bit the
same.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import numpy as np
import torch

from tts.backends.base import Finish
from tts.backends.engine.decoder import Decoder, Output
from tts.backends.engine.device.graphs import LOG, FixedSteps
from tts.backends.engine.device.memory import download, give_back, using_device
from tts.backends.engine.heads import ValueHead
from tts.backends.engine.planning import StepRows, make_plan
from tts.backends.engine.scheduler import Feed, Scheduler, SchedulerLimits, output_indices
from tts.backends.engine.stats import EngineStats, StepReport
from tts.backends.engine.tree import KVNode, KVTree
from tts.backends.engine.work import (
    NO_LAW,
    DecodeSequence,
    Draws,
    PrefillJob,
    RowEnd,
    SampleJob,
    Schedulable,
    draws_of,
    engine_error,
)
from tts.backends.kernels.draw import HostDraws, ReadRequest
from tts.backends.kernels.plan import BLOCK
from tts.backends.text.row_state import RowState, error_line
from tts.types import Spread

_KEPT_LOGITS = 64  # nodes whose logits are kept for further rows


class Runner:
    """The step loop of one model.

    Args:
        decoder: The model.
        tree: Its KV tree, with a pool of its own.
        limits: The limits of a step.
        decode: Turns token ids into text.
        eos: Ids that end a row.
        heads: Value heads on the model's hidden states, by name.
        share: Whether rows with common ancestors read their keys and values together.

    Attributes:
        stats: Exact counters.
        report: If set, called after each step.
        fixed: If set, runs the layers of decode steps in fixed shapes, for CUDA graphs.
    """

    def __init__(
        self,
        decoder: Decoder,
        tree: KVTree,
        limits: SchedulerLimits,
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
        self.fixed: FixedSteps | None = None
        self._scheduler = Scheduler(tree, limits, self.stats, failed=self._fail_job)
        self._limits = limits
        self._decode = decode
        self._eos = eos
        self._share = share
        self._sample_jobs: list[SampleJob] = []
        self._kept_logits: OrderedDict[KVNode, torch.Tensor] = OrderedDict()
        self._waiting_for: dict[KVNode, list[SampleJob]] = {}
        self._num_added = 0

    @property
    def busy(self) -> bool:
        """Whether any job is unfinished."""
        return bool(self._sample_jobs) or self._scheduler.busy

    @property
    def context(self) -> int:
        """The largest number of tokens of a path."""
        return self.decoder.config.context

    def add_prefill(self, prefill: PrefillJob) -> None:
        """Add a prefill job."""
        self._num_added += 1
        prefill.order = (self._num_added, 0)
        self._scheduler.add(prefill)

    def add_samples(self, job: SampleJob) -> None:
        """Add rows to sample."""
        self._num_added += 1
        job.order = (self._num_added, 0)
        self._sample_jobs.append(job)

    def abandon(self, failure: Exception) -> None:
        """Fail every job."""
        for work in self._scheduler.every():
            self._fail_job(work, failure, scheduled=True)
        for job in self._sample_jobs:
            self._end_waiting(job, "error", failure)
        self._sample_jobs = []
        self._scheduler.end_step()
        self._kept_logits.clear()

    def drop(self) -> None:
        """Give back the memory of the weights, and of keys and values. No step may follow."""
        self._kept_logits.clear()
        self.fixed = None
        self.tree.pool.drop()
        self.decoder.drop()
        give_back(self)

    def step(self) -> None:
        """Run one step of at most one forward pass. The failure of a row or path ends that row or path alone."""
        with using_device(self.decoder.device):
            self._step()

    def _step(self) -> None:
        """Run one step, on the current device."""
        began = time.perf_counter()
        self.tree.clock += 1
        self._cancel()
        self._begin_sequences()
        feeds = self._scheduler.choose()
        if feeds:
            try:
                self._pass(feeds, began)
            except torch.OutOfMemoryError as failure:
                self._shrink(feeds, failure)
            except Exception as failure:  # noqa: BLE001 - after any failure of a pass, its results are not valid
                self._break(feeds, failure)
            except BaseException:
                self._forget(feeds)
                raise
        for work in list(self._scheduler.running):
            if isinstance(work, PrefillJob) and self._is_complete(work):
                self._end_prefill(work)
        self._scheduler.end_step()
        self.stats.kv_tokens_peak = max(self.stats.kv_tokens_peak, self.tree.pool.peak_used * BLOCK)
        self.stats.evictions = self.tree.evictions

    def _is_complete(self, prefill: PrefillJob) -> bool:
        """Whether the keys and values that a job asks for, and its wanted results, are computed."""
        num_tokens = prefill.upto
        return prefill.ready and prefill.at >= num_tokens and self.tree.length(prefill.node) >= num_tokens

    # Rows begin -------------------------------------------------------------------------------------------------------

    def _cancel(self) -> None:
        """End the rows whose request was cancelled."""
        for work in self._scheduler.every():
            if isinstance(work, DecodeSequence) and work.job.rows.cancelled:
                self.stats.cancelled_tokens += len(work.state.ids)
                self._end_sequence(work, "cancelled")
        cancelled_jobs = [job for job in self._sample_jobs if job.rows.cancelled]
        for job in cancelled_jobs:
            self._end_waiting(job, "cancelled")
            self._sample_jobs.remove(job)

    def _begin_sequences(self) -> None:
        """Start waiting rows, oldest first, while there is room. Each row draws its first token here."""
        num_running = sum(isinstance(work, DecodeSequence) for work in self._scheduler.every())
        room = self._limits.rows - num_running
        sequences: list[DecodeSequence] = []
        rows: list[int] = []
        logits_of_jobs: list[torch.Tensor] = []
        for job in list(self._sample_jobs):
            if room <= 0:
                break
            logits = self._logits_behind(job)
            if logits is None:
                room -= job.num_waiting  # so that rows of younger jobs do not take this job's place
                continue
            num_begun = min(room, job.num_waiting)
            new_sequences = [self._begin_sequence(job) for _ in range(num_begun)]
            room -= num_begun
            if not job.num_waiting:
                self._sample_jobs.remove(job)
                self.tree.release(job.node)
            begun = [sequence for sequence in new_sequences if sequence is not None]
            sequences += begun
            rows += [len(logits_of_jobs)] * len(begun)
            logits_of_jobs.append(logits)
        if sequences:  # the first tokens of all jobs are drawn at once
            only_one = len(logits_of_jobs) == 1
            stacked = logits_of_jobs[0][None] if only_one else torch.stack(logits_of_jobs)
            draws = draws_of(sequences, np.array(rows, np.int64))
            try:
                drawn = self._draw(draws, stacked)
            except torch.OutOfMemoryError as failure:
                for sequence in sequences:
                    self._end_sequence(sequence, "error", error_line(failure))
                return
            self._take_draws(draws, drawn)

    def _logits_behind(self, job: SampleJob) -> torch.Tensor | None:
        """Return the logits after a job's node, or None while they are not ready.

        Logits that are not kept are computed by a prefill job, which is added here. Jobs that wait for the same node
        share its prefill job.
        """
        if job.logits is None and job.node in self._kept_logits:
            self._kept_logits.move_to_end(job.node)  # the order of last use, for eviction
            job.logits = self._kept_logits[job.node]
        if job.logits is None and not job.pending:
            job.pending = True
            waiting_jobs = self._waiting_for.setdefault(job.node, [])
            waiting_jobs.append(job)
            if len(waiting_jobs) == 1:
                num_tokens = len(job.node.tokens)
                node = self.tree.retain(job.node)
                prefill = PrefillJob(node, num_tokens, num_tokens - 1, self._deliver_logits, keeps=True)
                prefill.order = job.order
                self._scheduler.add(prefill)
        return job.logits

    def _deliver_logits(self, prefill: PrefillJob) -> None:
        """Give a node's logits to the jobs that wait for them."""
        for job in self._waiting_for.pop(prefill.node):
            job.pending = False
            if prefill.failure is None:
                job.logits = prefill.last_logits
            elif job in self._sample_jobs:
                self._sample_jobs.remove(job)
                self._end_waiting(job, "error", prefill.failure)
        if prefill.failure is None:
            self._kept_logits[prefill.node] = prefill.last_logits
            if len(self._kept_logits) > _KEPT_LOGITS:
                self._kept_logits.popitem(last=False)

    def _begin_sequence(self, job: SampleJob) -> DecodeSequence | None:
        """Begin a job's next row, and return the row's sequence; None where the row ended at once."""
        index, node = job.next_row, job.node
        job.next_row += 1
        try:
            state = RowState(
                job.rows, index, job.text, node.end, decode=self._decode, eos=self._eos, context=self.context
            )
            finish = state.early_finish()
        except Exception as failure:  # noqa: BLE001 - the row's predicate raised, which fails this row only
            job.ended(RowEnd(job, index, None, "error", None, error_line(failure)))
            return None
        if finish is not None:
            end_node = self.tree.retain(node) if finish != "cancelled" else None
            job.ended(RowEnd(job, index, state, finish, end_node))
            return None
        job_number, _ = job.order
        sequence = DecodeSequence(job, self.tree.add(node, ()), state, order=(job_number, index + 1))
        self._scheduler.add(sequence)
        return sequence

    # One pass ---------------------------------------------------------------------------------------------------------

    def _pass(self, feeds: Sequence[Feed], began: float) -> None:
        """Plan a forward pass over the feeds, run the model, and hand each job its results."""
        rows = StepRows(
            np.array([feed.node.place for feed in feeds], np.int64),
            np.array([feed.first for feed in feeds], np.int64),
            np.array([feed.num_tokens for feed in feeds], np.int64),
        )
        plan = make_plan(rows, self.tree.table, self.tree.pool.following, share=self._share)
        ordered_feeds = [feeds[row] for row in plan.order.tolist()]
        sequences = [feed.work for feed in feeds if isinstance(feed.work, DecodeSequence)]
        only_decodes = len(sequences) == len(feeds)
        only_single_tokens = only_decodes and len(plan.places) == len(feeds)
        if only_single_tokens:  # the common case, without a list for each feed
            ids = [feed.node.tokens[feed.first] for feed in ordered_feeds]
        else:
            ids = [token for feed in ordered_feeds for token in feed.ids]
        hidden_indices, logit_indices = output_indices(ordered_feeds, every=bool(self.heads))
        draws, reads = _requests(ordered_feeds)
        planned_at = time.perf_counter()
        with torch.inference_mode():
            output = self.decoder.forward(
                np.array(ids, np.int64),
                plan,
                hidden_indices,
                logit_indices,
                self.tree.pool,
                numbers=(draws.request.pack(), reads.pack()) if self.decoder.operations.on_device else (),
                apart=only_single_tokens,
                fixed=self.fixed if only_decodes else None,
            )
        ran_at = time.perf_counter()
        self.stats.count_pass(
            self.decoder, plan, rows=len(feeds), prefill=len(ids) - len(sequences), num_logits=len(logit_indices)
        )
        self._give(ordered_feeds, output, draws, reads, ran_at - began)
        if self.report is not None:
            ended_at = time.perf_counter()
            seconds = (planned_at - began, ran_at - planned_at, ended_at - ran_at)
            self.report(StepReport(len(ids), len(sequences), plan.keys_read, *seconds))

    def _give(self, feeds: Sequence[Feed], output: Output, draws: Draws, reads: ReadRequest, seconds: float) -> None:
        """Hand out what was read, and draw the next token of every row whose logits are complete."""
        # memory of a device may run out here, so before anything is handed out
        packed_draws, packed_reads = output.numbers or (None, None)
        drawn = self._draw(draws, output.logits, packed_draws)
        readings = iter(self.decoder.operations.read(output.logits, reads, packed_reads) if len(reads.rows) else ())
        works = (feed.work for feed in feeds)
        wants_states = bool(self.heads) or any(isinstance(work, PrefillJob) and work.states for work in works)
        hidden = download(output.hidden.float()) if wants_states else None
        logit_row = hidden_row = 0
        for feed in feeds:
            work = feed.work
            num_wanted = feed.until - feed.wanted_from
            num_states = feed.num_tokens if self.heads else num_wanted  # value heads read every token
            states = None if hidden is None else hidden[hidden_row : hidden_row + num_states]
            hidden_row += num_states
            if states is not None:
                for name, head in self.heads.items():
                    values = head(states).tolist()  # a token that is read again has the same reading
                    feed.node.scores.setdefault(name, [])[feed.first : feed.first + len(values)] = values
            if isinstance(work, DecodeSequence):
                work.state.seconds += seconds
            elif work is not None:
                work.seconds += seconds
                if num_wanted and work.keeps:
                    work.last_logits = output.logits[logit_row + num_wanted - 1].float().clone()
                    work.take((), feed.until)
                elif num_wanted and work.logits:
                    work.take(list(islice(readings, num_wanted)), feed.until)
                elif num_wanted and states is not None:
                    work.take([state.copy() for state in states[num_states - num_wanted :]], feed.until)
            if feed.wants_logits:
                logit_row += num_wanted
        self._take_draws(draws, drawn)

    def _draw(self, draws: Draws, logits: torch.Tensor, packed: torch.Tensor | None = None) -> HostDraws | None:
        """Draw a token for each of some sequences, in parts where memory runs out; None: there are none.

        Args:
            draws: The sequences and their request.
            logits: [rows, V] logits.
            packed: The request, packed on a device.
        """
        if not draws.sequences:
            return None
        try:
            return self.decoder.operations.draw(logits, draws.request, packed)
        except torch.OutOfMemoryError:
            count = len(draws.sequences)
            if count == 1:
                raise
            halves = np.split(np.arange(count), [count // 2])
            parts = [Draws(draws.sequences[half[0] : half[-1] + 1], draws.request.take_rows(half)) for half in halves]
            drawn = [part for part in (self._draw(half, logits) for half in parts) if part is not None]
            return HostDraws(*(np.concatenate(arrays) for arrays in zip(*drawn, strict=True)))

    def _take_draws(self, draws: Draws, drawn: HostDraws | None) -> None:
        """Append drawn tokens, and end the sequences whose row is complete."""
        if drawn is None:
            return
        for sequence, token, logprob, law_logprob, spread in zip(
            draws.sequences, *(array.tolist() for array in drawn), strict=True
        ):
            if token < 0:
                self._end_sequence(sequence, "error", NO_LAW)
                continue
            self.stats.decode_tokens += 1
            sequence.node.tokens.append(token)
            try:
                finish = sequence.state.append(token, logprob, Spread(*spread), law_logprob)
            except Exception as failure:  # noqa: BLE001 - the row's predicate raised, which fails this row only
                self._end_sequence(sequence, "error", error_line(failure))
                continue
            if finish is not None:
                self._end_sequence(sequence, finish)

    # Ends -------------------------------------------------------------------------------------------------------------

    def _end_sequence(
        self, sequence: DecodeSequence, finish: Finish, error: str = "", *, scheduled: bool = True
    ) -> None:
        """End the row of a sequence, and report the end to the row's job.

        Args:
            sequence: The sequence.
            finish: The reason of the end.
            error: The error that ended the row; "": there is none.
            scheduled: Whether the scheduler still has the sequence.
        """
        if scheduled:
            self._scheduler.remove(sequence)
        sequence.node.pieces = sequence.state.pieces
        can_continue = finish not in ("error", "cancelled")
        end_node = sequence.node if can_continue else None
        row_end = RowEnd(
            job=sequence.job,
            index=sequence.state.index,
            state=sequence.state,
            finish=finish,
            node=end_node,
            error=error,
            began=True,
        )
        sequence.job.ended(row_end)
        if end_node is None:
            self.tree.release(sequence.node)

    def _end_waiting(self, job: SampleJob, finish: Finish, failure: Exception | None = None) -> None:
        """End the rows of a job that have not begun."""
        error = "" if failure is None else error_line(failure)
        for index in range(job.next_row, len(job.rows.request.rows)):
            job.ended(RowEnd(job, index, None, finish, None, error))
        job.next_row = len(job.rows.request.rows)
        self.tree.release(job.node)

    def _end_prefill(self, prefill: PrefillJob, *, scheduled: bool = True) -> None:
        if scheduled:
            self._scheduler.remove(prefill)
        prefill.done(prefill)
        self.tree.release(prefill.node)

    def _fail_job(self, work: Schedulable, failure: Exception, *, scheduled: bool = False) -> None:
        """Fail a job; `scheduled`: whether the scheduler still has the job."""
        if isinstance(work, DecodeSequence):
            self._end_sequence(work, "error", error_line(failure), scheduled=scheduled)
        else:
            work.failure = engine_error(failure)
            self._end_prefill(work, scheduled=scheduled)

    def _break(self, feeds: Sequence[Feed], failure: Exception) -> None:
        """Fail the jobs of a pass that raised, and drop the keys and values that the pass may have written."""
        self._forget(feeds)
        fed_jobs = {feed.work for feed in feeds if feed.work is not None}
        if not fed_jobs:  # only ancestors were fed; without the end of a job the pass would fail at every step
            fed_jobs = set(self._scheduler.running[:1])
        for work in self._scheduler.every():
            if work in fed_jobs:
                self._fail_job(work, failure, scheduled=True)

    def _shrink(self, feeds: Sequence[Feed], failure: torch.OutOfMemoryError) -> None:
        """Let the next steps have half the tokens of a step that ran out of memory; a step of one job fails the job.

        Nothing of the step was handed out: memory runs out before.
        """
        num_jobs, limits = len(self._scheduler.running), self._limits
        if num_jobs <= 1 and limits.tokens <= BLOCK:
            self._break(feeds, failure)
            return
        self._forget(feeds)
        if self.decoder.device.type == "cuda":
            torch.cuda.empty_cache()
        limits.tokens = max(BLOCK, limits.tokens // 2)
        self._scheduler.limit(max(1, num_jobs // 2))
        self.stats.shrunk += 1
        LOG.warning(
            "a step of %d tokens ran out of memory: later ones read at most %d tokens, for %d jobs (max_rows=)",
            sum(feed.num_tokens for feed in feeds),
            limits.tokens,
            max(1, num_jobs // 2),
        )

    def _forget(self, feeds: Sequence[Feed]) -> None:
        for feed in feeds:
            self.tree.forget(feed.node)
        for work in self._scheduler.running:
            work.ready = False


def _requests(feeds: Sequence[Feed]) -> tuple[Draws, ReadRequest]:
    """Return the draws of the sequences of a step whose logits are complete, and what jobs read of other logits."""
    sequences: list[DecodeSequence] = []
    logit_rows: list[int] = []
    read_rows: list[int] = []
    tokens: list[Sequence[int]] = []
    top = 0
    logit_row = 0
    for feed in feeds:
        work = feed.work
        if isinstance(work, DecodeSequence):
            if feed.first + feed.num_tokens == len(feed.node.tokens):  # the last token gives the logits of the next
                sequences.append(work)
                logit_rows.append(logit_row)
                logit_row += 1
        elif work is not None and work.logits:
            num_wanted = feed.until - feed.wanted_from
            if work.tokens is not None and num_wanted:
                first = feed.wanted_from - work.wanted
                read_rows += range(logit_row, logit_row + num_wanted)
                tokens += work.tokens[first : first + num_wanted]
                top = max(top, work.top)
            logit_row += num_wanted
    draws = draws_of(sequences, np.array(logit_rows, np.int64))
    return draws, ReadRequest(np.array(read_rows, np.int64), tokens, top)
