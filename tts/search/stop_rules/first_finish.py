"""First finish: the first k of n solutions that are written at once have ended.

write n solutions at once, all to the same length
as soon as k of them have ended, cancel the others ; choose among these k
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Count
from tts.search.ends import StopDecision
from tts.search.parts import StopRule
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFinish(StopRule):
    """Stops when the first k solutions have ended, by their tokens; the selection chooses among these.

    Whether short thoughts are better depends on the model: replay it on recorded samples of yours first. Selections
    `shortest` and `last_finish` are its baselines.

    Source: Hassid et al., "Don't Overthink it. Preferring Shorter Thinking Chains for Improved LLM Reasoning"
    (2505.17813), short-m@k: k chains at once, the answer of a vote of the m that end first. Differs:
    - Names: its m is our k, its k is our n. Equal votes go to the answer that came first, which is that of the shorter
      chain.
    - All n begin at once, as many as the budget pays to their expected end. No other begins later, and a warning says
      so.
    - Late solutions are written to a length of at most a sixteenth, or 16 tokens, beyond that of the k-th, and these
      tokens are charged.
    - On servers solutions are taken as they arrive, so that the result is not reproducible. Function models write all
      to their ends.

    Args:
        k: The solutions that are waited for, at least 1. Truncated ones and those without an answer do not count.

    Cost: of each solution the lesser of its length and that of the k-th shortest, and the tokens stated above.

    Example:
        >>> import tts
        >>> found = tts.solve(
        ...     "3 + 4 - 2 + 9", 800, model="toy", strategy="best_of_n(n=8) | first_finish(k=4) | majority"
        ... )
        >>> found.answer, len(found.candidates), found.usage.samples, found.stopped_by
        ('14', 4, 8, 'first finish')
    """

    registered_as = "first_finish"
    order = "finished"
    k: Count = 4

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        """Return a stop when k solutions have ended with an answer."""
        num_ended = sum(c.trajectory.status == "finished" and c.answer_class is not None for c in candidates)
        return StopDecision("first finish") if num_ended >= self.k else None
