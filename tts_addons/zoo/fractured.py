"""Fractured sampling: each trace is cut at several depths, and made to answer after each cut.

    n traces to their ends
    for i = 1 .. depths: cut the reasoning of length L after token floor(i L / depths), end the thought, draw `answers`
    answers at full depth the trace's own answer is one of them; all n x depths x answers vote

Source: algorithm B8, Liao et al., "Fractured Chain-of-Thought Reasoning" (2505.12992), read in the authors' code: n =
16, depths = 16, answers = 4; floor(i L / depths) tokens of what stands before the end of the thought. Differs:
- A model that does not think has its solution cut, whose reasoning is what stands before the last answer cue. The cue
  is forced then, on a line of its own. A solution without a cue is not cut, of which there is a warning. Nor is a
  reasoning without a token.
- A cut inside of a character moves on to the next token.
- A trace that was cut short has no answers at full depth but its own.
- Stopping where successive depths agree is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Count, Text
from tts.errors import ConfigError
from tts.search.lengths import MOST_ROWS
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.stepping import rounds
from tts.search.strategies.community.budget_forcing import open_responses
from tts.types import Candidate, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Fractured(Strategy):
    """Answers after every depth of every trace.

    Args:
        n: The traces, at least 1; None: as many as the budget pays, one after another.
        depths: The cuts of a trace, with its end, at least 1 (H in the paper).
        answers: The answers of each cut, at least 1 (m in the paper).
        cue: The text that is forced after a cut, to open the answer. None: a model that thinks begins its response
            itself, and any other model gets the task's cue (`Task.answer_cue`).
        temperature: The temperature of all rows; None: the run's.

    Cost: n x depths x answers samples: n solutions, and for the others what an answer takes. Each cut reads prompt and
    prefix anew.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="fractured(n=2, depths=3)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 6, 90)
    """

    registered_as = "fractured"
    n: Count | None = None
    depths: Count = 4
    answers: Count = 1
    cue: Text | None = None
    temperature: Temperature | None = None

    def needs(self) -> Needs:
        """Return the needs: forks inside of a thought."""
        return Needs(capabilities=("extend", "token_ids"))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write traces, cut them, and answer."""
        for _ in rounds(search, None if self.n is None else 1):
            solutions = await search.complete([search.root], self.n or 1, temperature=self.temperature)
            traces = [solution.trajectory for solution in solutions]
            cuts: list[Trajectory] = []
            ends: list[Trajectory] = []
            for trace in traces:
                await self._cut(search, trace, cuts, ends)
            await search.complete(cuts, self.answers, temperature=self.temperature)
            if self.answers > 1:
                await search.complete(ends, self.answers - 1, temperature=self.temperature)
        return search.candidates

    async def _cut(self, search: Search, trace: Trajectory, cuts: list[Trajectory], ends: list[Trajectory]) -> None:
        """Add paths that can answer: after each cut of a trace to `cuts`, after its whole reasoning to `ends`.

        Whenever `cuts` has many paths, their answers are drawn, and `cuts` is emptied.
        """
        cue, marker = self._cues(search, trace)
        if not marker:
            search.notes.warn(
                "fractured did not cut a solution without a thought or an answer cue: give cue=, such as 'The answer "
                "is '"
            )
            return
        num_tokens = trace.num_tokens - search.root.num_tokens
        reasoning_tokens = num_tokens
        if trace.text.rfind(marker) > 0 and num_tokens > 1:
            reasoning = await search.fork(trace, marker)
            reasoning_tokens = reasoning.num_tokens - search.root.num_tokens
            if self.answers > 1:
                ends += await self._answering(search, reasoning, cue)
        for i in range(1, self.depths):
            depth = max(1, i * reasoning_tokens // self.depths)
            for place in range(depth, num_tokens):  # ends at the first token that can be cut
                try:
                    prefix = await search.fork(trace, place)
                except ConfigError:  # the place is inside of a character
                    continue
                cuts += await self._answering(search, prefix, cue)
                break
            if len(cuts) >= MOST_ROWS:
                await search.complete(cuts, self.answers, temperature=self.temperature)
                cuts.clear()

    def _cues(self, search: Search, trace: Trajectory) -> tuple[str, str]:
        """Return the text to force after a cut, and the text that ends a trace's reasoning; "" if not known."""
        if trace.thought or trace.is_thinking:
            return self.cue or "", trace.marks.close.strip()
        cue = self.cue or search.task.answer_cue
        return cue, cue.strip()

    async def _answering(self, search: Search, prefix: Trajectory, cue: str) -> list[Trajectory]:
        """Return a path that can answer, after the end of its thought and the cue."""
        own_line = "" if prefix.is_thinking or not cue or prefix.full_text.endswith("\n") else "\n"
        return await open_responses(search, [prefix], own_line + cue)
