"""A process model's view of the policy's tree.

A view has the policy's steps in the process model's own tokens, and belongs to one opened prompt. A view has a node,
with its reading, for every distinct prefix of steps that was scored. Scoring a path computes only the tokens of new
steps. A step may be scored again when it has grown. Where the model reads the policy's own tokens, only the added
tokens are computed then. Keys and values of a view are a cache: they are evicted first, and are recomputed when a step
is added below them.

A likelihood multiplies the probabilities of all tokens, each read at the token in front of it. So the nodes of such a
view are shifted by one token: a node begins with the last token of the path above it, and ends before the step's own
last token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts.backends.engine.core import Runner
from tts.backends.engine.heads import LikelihoodReadout, StepTemplate
from tts.backends.engine.tree import CACHED, KVNode
from tts.backends.engine.work import PrefillJob, engine_error
from tts.backends.text.lengths import check_known
from tts.errors import ConfigError, PromptTooLong

Readings = NDArray[np.float64]
Piece = str | tuple[int, ...]  # a step: its text, or the policy's own tokens of it


@dataclass(frozen=True, slots=True)
class ViewReadings:
    """The readings of a path, and their cost.

    Args:
        readings: One a step.
        computed: Tokens of this call that were computed.
        prompt: The prompt's tokens among `computed`.
        reused: Tokens of this call that were reused.
        seconds: The seconds of the engine's steps for this path.
        failure: None where all steps were read.
    """

    readings: Readings
    computed: int
    prompt: int
    reused: int
    seconds: float
    failure: Exception | None


Done = Callable[[ViewReadings], None]


class _StepNode:
    """A prefix of a path's steps, with its node in the model's tree.

    Attributes:
        node: The node of the prefix's last step.
        last: The last token of that step.
        below: The steps scored after this prefix.
        reading: The process model's reading of the prefix; None until computed.
        logprob: The log-probability of the prefix; None until computed.
        failure: Why the prefix could not be read.
        released: Whether the handle of `node` has been released.
        waiting: Callbacks for the end of the job that reads the prefix.
    """

    __slots__ = ("below", "failure", "last", "logprob", "node", "reading", "released", "waiting")

    def __init__(self, node: KVNode, last: int) -> None:
        self.node = node
        self.last = last
        self.below: dict[Piece, _StepNode] = {}
        self.reading: float | None = None
        self.logprob: float | None = None
        self.failure: Exception | None = None
        self.released = False
        self.waiting: list[Callable[[Exception | None, float], None]] = []

    def take(self, job: PrefillJob, read: Callable[[PrefillJob], None]) -> None:
        """Read what a job found with `read`, and keep the failure of the job or of `read`."""
        self.failure = job.failure
        if self.failure is None:
            try:
                read(job)
            except Exception as failure:  # noqa: BLE001 - a failure of the readout fails this step only
                self.failure = engine_error(failure)

    def notify(self, job: PrefillJob) -> None:
        """Call the callbacks that wait for the end of the job."""
        callbacks, self.waiting = self.waiting, []
        for callback in callbacks:
            callback(self.failure, job.seconds)


class View:
    """The steps that a process model has scored below one prompt.

    Args:
        runner: The runner of the process model.
        template: How paths are rendered for the process model.
        prompt: The prompt in the model's tokens.
    """

    def __init__(self, runner: Runner, template: StepTemplate, prompt: Sequence[int]) -> None:
        self._runner = runner
        self._template = template
        self._prompt = tuple(prompt)
        self._by_likelihood = isinstance(template.readout, LikelihoodReadout)
        self._root: _StepNode | None = None

    def score(self, steps: Sequence[Piece], done: Done) -> None:
        """Score a path's steps; `done` is called with the readings.

        Args:
            steps: The pieces of the path, in order.
            done: Called with the readings of the steps.

        Raises:
            PromptTooLong: the path is longer than the process model's context; nothing has been computed.
            ConfigError: a step has no token, or an unknown one; nothing has been computed.
        """
        path = self._known_nodes(steps)
        new_steps = [(piece, self._template.tokens(piece)) for piece in steps[len(path) :]]
        last_known = path[-1] if path else self._root
        if last_known is None:
            reused, tokens_before = 0, len(self._prompt)
        else:
            reused = last_known.node.end
            tokens_before = reused + 1 if self._by_likelihood else reused  # the nodes of a likelihood end a token early
        self._check(tokens_before, [ids for _, ids in new_steps])
        prompt_tokens = 0
        if self._root is None and new_steps:
            prompt_ids = self._prompt[:-1] if self._by_likelihood else self._prompt
            self._root = _StepNode(self._runner.tree.add(None, prompt_ids, CACHED), self._prompt[-1])
            prompt_tokens = len(prompt_ids)
            self._root.logprob = 0.0
        computed = prompt_tokens
        for piece, ids in new_steps:
            parent = path[-1] if path else self._root
            assert parent is not None, "a step has a prompt above it"
            beginning, unread_ids = _find_beginning(parent, piece, ids)
            computed += len(unread_ids)
            reused += len(ids) - len(unread_ids)
            # the nodes of a likelihood are shifted by one token
            node_ids = (beginning.last, *unread_ids[:-1]) if self._by_likelihood else unread_ids
            step = _StepNode(self._runner.tree.add(beginning.node, node_ids, CACHED), unread_ids[-1])
            parent.below[piece] = step
            path.append(step)
            self._read(parent, beginning, step, piece)

        def finish(readings: Readings, seconds: float, failure: Exception | None) -> None:
            done(ViewReadings(readings, computed, prompt_tokens, reused, seconds, failure))

        _call_after_reading(path, finish)

    def _check(self, tokens_before: int, new_steps: Sequence[Sequence[int]]) -> None:
        """Refuse a path of `tokens_before` tokens and new steps that the process model cannot read."""
        total = tokens_before + sum(len(ids) for ids in new_steps)
        if total > self._runner.context:
            raise PromptTooLong(
                f"the path is {total} tokens to the process model, but its context is {self._runner.context}",
                hint="choose a process model with a longer context",
            )
        for ids in new_steps:
            check_known(ids, self._runner.decoder.config.vocab)
            if not ids:
                raise ConfigError(
                    "a step has no token for the process model, but its score is read at its last token",
                    hint="give it a separator",
                )

    def release(self) -> None:
        """Release the nodes of all steps, after the release of the prompt."""
        steps = [self._root] if self._root else []
        self._root = None
        while steps:
            step = steps.pop()
            steps += step.below.values()
            step.released = True
            self._runner.tree.release(step.node)

    def _known_nodes(self, steps: Sequence[Piece]) -> list[_StepNode]:
        """Return the nodes of the longest prefix of steps that has been scored."""
        nodes: list[_StepNode] = []
        next_steps = self._root.below if self._root else {}
        for piece in steps:
            if piece not in next_steps:
                break
            node = next_steps[piece]
            nodes.append(node)
            next_steps = node.below
        return nodes

    def _read(self, parent: _StepNode, beginning: _StepNode, step: _StepNode, piece: Piece) -> None:
        """Add the job that reads a step, at its last token or by the likelihood of all its tokens.

        Args:
            parent: The step above.
            beginning: The node which the step's tokens follow: `parent`, or a beginning of the step itself.
            step: The step to read.
            piece: The key of the step in `parent.below`.
        """
        readout = self._template.readout

        if isinstance(readout, LikelihoodReadout):
            tokens = [(token,) for token in (*step.node.tokens[1:], step.last)]
        else:
            tokens = [readout.labels] if readout.labels else None

        def read(job: PrefillJob) -> None:
            if isinstance(readout, LikelihoodReadout):
                assert beginning.logprob is not None, "what stands above a step is read before it"
                step.logprob = beginning.logprob
                for reading in job.result():
                    step.logprob += float(reading.logprobs[0])
                step.reading = readout(step.logprob)
                return
            found = job.found[-1]
            if found is None:
                step.reading = np.nan  # logits that are not valid say nothing of a step
            else:
                step.reading = readout(found.logprobs if readout.labels else found)

        def finish(job: PrefillJob) -> None:
            if self._by_likelihood and job.failure is None and beginning.logprob is None:
                # jobs end in their order, so the path above the step was read before, or failed
                job.failure = beginning.failure
            step.take(job, read)
            if step.failure is not None and parent.below.get(piece) is step:
                del parent.below[piece]  # so that the step can be scored again
            step.notify(job)
            is_unreachable = step.failure is not None or parent.released
            if is_unreachable and not step.released:
                step.released = True
                self._runner.tree.release(step.node)

        size = len(step.node.tokens)
        first_wanted = 0 if self._by_likelihood else size - 1
        node = self._runner.tree.retain(step.node)
        self._runner.add_prefill(PrefillJob(node, size, first_wanted, finish, tokens))


def _find_beginning(parent: _StepNode, piece: Piece, ids: tuple[int, ...]) -> tuple[_StepNode, tuple[int, ...]]:
    """Return the node after which a step's unread tokens come, and these tokens.

    A step of tokens may have been scored before it grew. Then the node is its longest scored beginning, else `parent`.
    """
    if isinstance(piece, tuple):
        for size in range(len(ids) - 1, 0, -1):
            beginning = parent.below.get(ids[:size])
            if beginning is not None:
                return beginning, ids[size:]
    return parent, ids


def _call_after_reading(path: Sequence[_StepNode], done: Callable[[Readings, float, Exception | None], None]) -> None:
    """Call `done` once all steps of a path are read.

    The arguments are the steps' readings, the seconds of the jobs that were waited for, and the first failure.
    """
    unread_steps = [step for step in path if step.reading is None]
    job_seconds: list[float] = []
    failures: list[Exception] = []

    def end() -> None:
        readings = np.array([np.nan if step.reading is None else step.reading for step in path], np.float64)
        done(readings, sum(job_seconds, 0.0), failures[0] if failures else None)

    def receive(failure: Exception | None, seconds: float) -> None:
        job_seconds.append(seconds)
        if failure is not None:
            failures.append(failure)
        if len(job_seconds) == len(unread_steps):
            end()

    for step in unread_steps:
        step.waiting.append(receive)
    if not unread_steps:
        end()
