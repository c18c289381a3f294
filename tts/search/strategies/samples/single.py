"""One plain sample: the baseline, and with temperature 0 the greedy answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.search.ends import SearchEnded
from tts.search.parameters import Temperature
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Single(Strategy):
    """One sample from the root.

    Args:
        temperature: The temperature of the model's law; 0 is greedy; None: the run's.

    Cost: one sample.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2", 400, model="toy", strategy="single(temperature=0)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('5', 1, 15)
    """

    registered_as = "single"
    always_votes = True
    temperature: Temperature | None = None

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Complete the root once.

        Raises:
            SearchEnded: the budget would pay more samples, but this strategy draws only one.
        """
        candidates = await search.complete([search.root], n=1, temperature=self.temperature)
        if (search.affordable_samples() or 0) > 1:  # the number is always at least 1
            raise SearchEnded("single draws one sample")
        return candidates
