"""Best-of-N: draw N independent solutions; the selection chooses among them.

With the selection `best` or `weighted` it is best-of-N by a verifier, with `majority` self-consistency, with
`best_of_majority` the method of that name: one search, four choices.

Source: algorithm A1, lines 1-2 (Snell et al. 2408.03314; Wang et al. 2203.11171). Differs: rows start in waves that the
budget grants, so that N solutions never cost more than the budget. The first n of N are the same solutions for every N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.backends.base import Sampling
from tts.checks import Count, Natural, Text
from tts.search.needs import Needs, writers
from tts.search.parameters import Temperature
from tts.search.parts import Plan, Strategy
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.types import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfN(Strategy):
    """N independent samples of one prompt.

    Args:
        n: The solutions to draw (N in the papers), at least 1; None: as many as the budget pays.
        temperature: The temperature of the model's law; None: the run's.
        effort: The effort of a served model's thoughts, in the server's word ("low", "high"); None: the server's
            default.
        thought_tokens: The most tokens of a thought, sent in a field of the server; 0: no thought; None: the run's
            limit.
        writer: The role of the model that writes. The policy reads the problem in any case.

    Cost: n samples, n x mean length generated tokens; the selection's verifier calls.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="best_of_n(n=8) | majority")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 8, 168)
    """

    registered_as = "best_of_n"
    n: Count | None = None
    temperature: Temperature | None = None
    effort: Text | None = None
    thought_tokens: Natural | None = None
    writer: Text = "policy"

    def needs(self) -> Needs:
        """Return the needs: the writer, and efforts and limits of thoughts if these are set."""
        sampling = Sampling(effort=self.effort or "", thought_tokens=self.thought_tokens)
        return Needs(
            capabilities=tuple(sampling.needs.values()), models=writers(self.writer), thought_tokens=self.thought_tokens
        )

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Complete the root N times."""
        await search.complete(
            [search.root],
            self.n,
            temperature=self.temperature,
            effort=self.effort,
            thought_tokens=self.thought_tokens,
            model=self.writer,
        )
        return search.candidates


def self_consistency(*, n: int | None = None, temperature: float | None = None) -> Plan:
    """Return `best_of_n(n) | majority` under its other name.

    Args:
        n: As in `BestOfN`.
        temperature: As in `BestOfN`.

    Raises:
        ConfigError: a value is out of its range.

    Example:
        >>> import tts
        >>> str(tts.self_consistency(n=8))
        'best_of_n(n=8) | majority'
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy="self_consistency(n=8)").answer
        '5'
    """
    return BestOfN(n=n, temperature=temperature) | Majority()
