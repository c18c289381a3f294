"""PaCoRe: rounds of parallel trajectories, each compacted to a message.

All trajectories of the next round see these messages.

    messages = ()
    for width in (*widths, 1): draw `width` trajectories after the problem and the messages; messages = what each
    concludes the answer is that of the last trajectory

Source: Hu et al., "PaCoRe: Learning to Scale Test-Time Compute with Parallel Coordinated Reasoning" (2601.05593), read
in the abstract and the README of the authors' code: widths (4), (16) and (32, 4), after which one more trajectory
concludes. Differs:
- The prompt is the task's "fuse" (or "revise") in place of the paper's own.
- A message is what stands after the thought. `message="conclusion"` keeps its last step alone, for models that reason
  in the open.
- A trajectory that was cut short sends no message. Where the messages do not fit the context, the round starts from the
  problem alone.
- Widths that are left out are one round of what the budget pays but one. Last trajectories are then drawn until it is
  used up, and vote.
- Where the budget ends the search before a last trajectory, the round that is under way and the one before it vote.
- The model is not trained to synthesize.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Annotated

from tts.checks import Rule, choice
from tts.errors import ConfigError, quote
from tts.search.ends import SearchEnded
from tts.search.needs import Needs
from tts.search.parameters import Shown, Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.earlier_solutions import root_showing, whole
from tts.search.strategies._common.stepping import affordable_width, draw
from tts.types import Candidate

_MOST = 1024  # the most trajectories of a round that the budget sizes


def _check(name: str, widths: object) -> tuple[int, ...]:
    counts = widths if isinstance(widths, list | tuple) else ()
    are_whole = all(isinstance(width, int) and not isinstance(width, bool) for width in counts)
    if not counts or not are_whole or not all(1 <= width < 2**63 for width in counts):
        rule = "a list of whole numbers of at least 1"
        raise ConfigError(f"{name} is {quote(widths)}, but must be {rule}", hint="for example widths=[16, 4]")
    return tuple(counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaCoRe(Strategy):
    """Rounds of trajectories that read the conclusions of the round before. The last trajectory answers.

    Args:
        widths: The trajectories of each round but the last, a list of whole numbers of at least 1; None: one round of
            as many as the budget pays.
        message: The part of a trajectory that is passed on. "response": the text after the thought; "conclusion": the
            last step of this text.
        prompt: The task's kind of prompt that shows several solutions: "fuse" or "revise".
        temperature: The temperature of all rounds; None: the run's.

    Cost: the sum of widths, and one, in samples; after the first round each reads all messages of the round before.

    Example:
        >>> import tts
        >>> model = lambda ask: "The answer is 7."
        >>> found = tts.solve(
        ...     "What is 3 + 4?", tts.Budget(samples=12), backend=model, task="math", strategy="pacore(widths=[3, 2])"
        ... )
        >>> found.answer, found.usage.samples
        ('7', 6)
    """

    registered_as = "pacore"
    sized_by_budget = ("widths",)
    always_votes = True  # no reserve is held to score the rounds before the last
    widths: Annotated[Sequence[int], Rule(_check)] | None = None
    message: Annotated[str, choice("response", "conclusion")] = "response"
    prompt: Shown = "fuse"
    temperature: Temperature | None = None

    def needs(self) -> Needs:
        """Return the needs: the prompt that shows messages."""
        has_single_messages = self.widths is not None and max(self.widths) == 1
        return Needs(prompts=("revise",) if has_single_messages else (self.prompt,))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Draw round after round. The last round is a single trajectory."""
        previous_start, round_start, root = 0, 0, search.root
        try:
            widths = self.widths or (await self._affordable(search),)
            for k, width in enumerate((*widths, 1)):
                previous_start = round_start
                round_start = len(search.candidates) if k else 0
                root = await root_showing(search, self.prompt, self._messages(search, previous_start, round_start))
                num_drawn = len(search.candidates) if k == 0 else 0  # a solution that showed a length counts
                await draw(search, repeat(root, width - num_drawn), self.temperature)
            if self.widths is None:
                previous_start = round_start
                await search.complete([root], None, temperature=self.temperature)
        except SearchEnded as end:
            raise end.restrict_candidates(slice(previous_start, None)) from None
        return search.candidates[round_start:]

    async def _affordable(self, search: Search) -> int:
        """Return the width of a single round by the budget, which also pays one last trajectory."""
        units = await affordable_width(search, self.temperature, stepwise=False)
        return min(_MOST, max(1, units - 1))

    def _messages(self, search: Search, round_start: int, round_end: int) -> list[str]:
        """Return the messages of the round whose candidates are those from `round_start` to `round_end`."""
        texts = whole(search.candidates[round_start:round_end])
        if self.message == "response":
            return texts
        messages: list[str] = []
        for text in texts:
            steps = [step for step in search.task.split(text) if step.strip()]
            if steps:
                messages.append(steps[-1])
        return messages
