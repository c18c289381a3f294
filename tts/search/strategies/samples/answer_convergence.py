"""Answer convergence: end a trace once the answer that it would give stops changing.

After each step, or after so many tokens, an answer cue is forced after the text and the answer is decoded greedily. The
trace ends with the answer that came k times in a row. Within a thought its end is forced before the cue.

Source: algorithm B9, Liu, Wang, "Answer Convergence as a Signal for Early Stopping in Reasoning" (2506.02536), from a
secondary note: k = 10, a probe after each sentence. Probes after so many tokens: Fu et al., Dynasor (2412.20993, from
memory). Differs:
- A probe stands after each step of the task. Nothing is probed after a thought.
- The trace takes its next step before the last one is probed, so that probing leaves its draws alone. A decision comes
  one step late, which costs that step.
- A probe without an answer, or one that failed, begins the row anew.
- n traces vote.
- The learned forms (logits, activations) are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts._core.threads import call_or_postpone
from tts.checks import Count, Text
from tts.errors import ConfigError
from tts.search.ends import END, STEP, Tokens
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.stepping import MAX_STEPS, advance, rounds
from tts.tasks.base import Task
from tts.types import Candidate, Trajectory

_ENDLESS = 1 << 30  # the most pieces of a trace that is cut by tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerConvergence(Strategy):
    """Traces one after another, each probed at every step.

    Args:
        n: The traces, at least 1; None: as many as the budget pays.
        k: The consecutive equal answers that end a trace, at least 1.
        every: The tokens between probes, at least 1; None: a probe after each step.
        cue: The text that is forced after a trace to get its answer. The model should know such words from its
            training, and the task must read an answer after them. None: the task's (`Task.answer_cue`).
        tokens: The most tokens of a probe's answer, at least 1.
        temperature: The temperature of the traces; None: the run's.
        max_steps: The most steps of a trace, the last of which runs to the end of the solution.

    Cost: what n solutions cost up to their convergence, and a probe a step: the cue, read, at most `tokens`, written,
    and one sample.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="answer_convergence(n=4, k=2, tokens=1)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 12, 92)
    """

    registered_as = "answer_convergence"
    n: Count | None = None
    k: Count = 10
    every: Count | None = None
    cue: Text | None = None
    tokens: Count = 16
    temperature: Temperature | None = None
    max_steps: Count = MAX_STEPS

    def needs(self) -> Needs:
        """Return the needs: steps, and an answer cue after them."""
        return Needs(capabilities=("steps", "extend"), task=self._check_task)

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write and probe trace after trace."""
        cue = self._cue_of(search.task)
        for _ in rounds(search, self.n):
            trace, streak = await self._step(search, search.root), EqualAnswers()
            while trace.status == "active":
                if trace.thought and not trace.is_thinking:  # nothing is probed after a thought
                    await search.complete([trace], temperature=self.temperature)
                    break
                next_trace = await self._step(search, trace)
                if next_trace.status == "active" and await self._probe_trace(search, trace, streak, cue):
                    search.drop([next_trace])
                    break
                trace = next_trace
        return search.candidates

    def _check_task(self, task: Task) -> None:
        """Raise ConfigError if neither the task nor the caller gives an answer cue."""
        if not self._cue_of(task):
            raise ConfigError(
                f"cue is not given, and the task {task.name!r} has no answer_cue",
                hint="give cue=, such as 'The answer is '",
            )

    def _cue_of(self, task: Task) -> str:
        """Return the answer cue; "" if there is none."""
        return self.cue or task.answer_cue

    async def _step(self, search: Search, trace: Trajectory) -> Trajectory:
        max_steps = self.max_steps if self.every is None else _ENDLESS
        until = STEP if self.every is None else Tokens(self.every)
        (children,) = await advance(search, [trace], max_steps=max_steps, temperature=self.temperature, until=until)
        return children[0]

    async def _probe_trace(self, search: Search, trace: Trajectory, streak: EqualAnswers, cue: str) -> bool:
        """Probe a trace; return whether its answer has converged. A converged probe becomes a candidate."""
        forced_text = trace.marks.close + cue if trace.is_thinking else cue
        forced = await search.extend([trace], forced_text)
        (probes,) = await search.expand(forced, 1, END, temperature=0.0, max_tokens=self.tokens)
        has_ended = bool(probes) and probes[0].status != "active"  # an active probe was cut short
        answer = await call_or_postpone(search.task.extract, probes[0].response) if has_ended else None
        if answer is None:
            streak.count = 0
        elif streak.answer is not None and _same(search.task, streak.answer, answer):
            streak.count += 1
        else:
            streak.count = 1
        streak.answer = answer
        has_converged = streak.count >= self.k
        if has_converged:
            search.finish(probes[0])
        search.drop([*forced, *probes])
        return has_converged


@dataclass(slots=True)
class EqualAnswers:
    """The last answer of a trace, and the number of consecutive probes that gave this answer."""

    answer: str | None = None
    count: int = 0


def _same(task: Task, a: str, b: str) -> bool:
    """Whether two answers are equal by the task's cheap rules."""
    return task.canonical(a) == task.canonical(b) or bool(task.decide(a, b))
