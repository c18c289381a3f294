"""Budget forcing: a thought is ended at its budget, or prolonged where it ends too early.

After the thought the model responds.

Source: Muennighoff et al., "s1: Simple test-time scaling" (2501.19393), section 3: the end of thinking is appended once
the thought has its most tokens, with an answer cue where wanted; where it ends by itself too early, its end is
suppressed and "Wait" appended. Also ThinkLess (2505.15684, from memory), which ends thoughts early by force. Differs:
- The end of a thought is suppressed after it was written, by a fork before its mark. So the mark stays charged.
- n thoughts are written, and their responses vote.
- Where the model does not begin its thought, the opening mark is forced.
- A server whose texts cannot go on limits the thought by its own field, where it has one that holds; it may end it a
  few tokens late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Count, Natural, Text
from tts.search.ends import Thought
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.stepping import rounds
from tts.types import Candidate, Trajectory

_MOST_WIDTH = 1024  # the most thoughts of a round


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetForcing(Strategy):
    """Solutions whose thoughts have a length limit.

    A longer thought is ended by force, and a shorter one may be continued.

    Args:
        n: The solutions, at least 1; None: as many as the budget pays.
        thought_tokens: The most tokens of a thought, at least 1.
        waits: The number of times that a thought which ends by itself is continued, at least 0 (s1: 1 to 6).
        wait: The text that replaces the end of such a thought.
        cue: The text that begins the response, right after the end of the thought; None: the model writes the whole
            response.
        temperature: The sampling temperature; None: that of the run.

    Cost: for each solution, a thought of at most `thought_tokens` and its response. Forced texts count as input. Each
        wait costs one more sample, and prompt and thought as input once more.

    Example:
        >>> import tts
        >>> forced = "budget_forcing(n=2, thought_tokens=40, waits=1) | majority"
        >>> found = tts.solve("3 + 4 - 2", 400, model="toy-thinking", strategy=forced)
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('5', 4, 73)
    """

    registered_as = "budget_forcing"
    n: Count | None = None
    thought_tokens: Count = 1024
    waits: Natural = 0
    wait: Text = "Wait"
    cue: Text | None = None
    temperature: Temperature | None = None

    def needs(self) -> Needs:
        """Return the needs: thoughts that are cut and continued.

        Without waits and a cue a server's own limit of thoughts serves as well.
        """
        alternative = () if self.waits or self.cue is not None else ("thought_limits",)
        return Needs(
            capabilities=("steps", "extend", "thoughts"), instead=alternative, thought_tokens=self.thought_tokens
        )

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Think, end the thoughts and respond: one solution first, then as many at once as the budget pays."""
        if search.rows.caps_of(search.root.model).steps == "absent":
            await search.complete(
                [search.root], self.n, temperature=self.temperature, thought_tokens=self.thought_tokens
            )
            return search.candidates
        start = search.root
        if not start.marks.opened:
            (start,) = await search.extend([start], start.marks.open)
        for _ in rounds(search, self.n):
            num_missing = _MOST_WIDTH if self.n is None else self.n - len(search.candidates)
            if num_missing <= 0:
                break
            width = 1  # the first solution shows the length of later solutions
            if search.candidates:
                width = min(num_missing, search.affordable_samples() or num_missing)
            (thoughts,) = await search.expand(
                [start], width, Thought(self.thought_tokens), temperature=self.temperature
            )
            thoughts = [await self._prolong(search, start, t) for t in thoughts]
            responses = await open_responses(search, thoughts, self.cue or "")
            await search.complete(responses, temperature=self.temperature)
        return search.candidates

    async def _prolong(self, search: Search, start: Trajectory, t: Trajectory) -> Trajectory:
        """Continue a thought after "Wait" each time that it ends by itself, up to its budget."""
        for _ in range(self.waits):
            has_ended = t.status == "finished" or (t.status == "active" and not t.is_thinking)
            if not has_ended or t.num_tokens - start.num_tokens >= self.thought_tokens:
                break
            unended = await _without_end(search, t)
            if unended is None:
                break
            (t,) = await search.extend([unended], self.wait)
            remaining = self.thought_tokens - (t.num_tokens - start.num_tokens)
            if remaining < 1 or t.status != "active":
                break
            (children,) = await search.expand([t], 1, Thought(remaining), temperature=self.temperature)
            if children:
                t = children[0]
        return t


async def _without_end(search: Search, t: Trajectory) -> Trajectory | None:
    """Return the path before the mark that ended its thought; None if no token boundary is before the mark.

    A path that ended with the end of sequence is returned unchanged, because `extend` leaves this token out.
    """
    close = t.marks.close.strip()
    if t.status == "finished" or t.parent is None:
        return t
    if t.text.lstrip().startswith(close):
        return t.parent
    if t.num_tokens - t.parent.num_tokens <= 1:
        return None
    return await search.fork(t, close)


async def open_responses(search: Search, ts: Sequence[Trajectory], cue: str) -> list[Trajectory]:
    """Return paths that are ready to respond, after the end of their thoughts and a cue.

    The end is forced if the thought is still open. Paths that met the end of the context, or the cap of a row, become
    candidates as they are.
    """
    paths: list[Trajectory] = []
    for t in ts:
        text = f"{t.marks.close}{cue}" if t.is_thinking else cue
        if text and t.status != "truncated":
            paths += await search.extend([t], text)
        else:
            paths.append(t)
    for t in paths:
        search.finish(t)
    return [t for t in paths if t.status == "active"]
