"""Sequential revision: chains of attempts, in which each prompt shows the attempts before.

Several chains run beside each other. One chain of length N is purely sequential, and N chains of length 1 are
best-of-N. A fixed N can be shared out between number and length.

Source: algorithms A14 and B14, Snell, Lee, Xu, Kumar, "Scaling LLM Test-Time Compute Optimally can be More Effective
than Scaling Model Parameters" (2408.03314), verified: at most the last four attempts are shown. The answer is chosen
over all attempts of all chains (`hierarchical` by verifier, flat by majority), because about 38 % of right attempts are
revised to wrong ones. The task needs a prompt of the kind "revise". The model must be trained to revise, or follow
instructions.

With `feedback` the note of a verifier stands after each attempt, and a chain ends at an attempt of the greatest score.
With `code` and tests this is execution feedback: Chen, Lin, Schaerli, Zhou, "Teaching Large Language Models to
Self-Debug" (2304.05128), the form with unit tests, from memory.

Differs:
- An attempt that was cut short is not shown.
- Where a task refuses to show an attempt, or the attempts fill the context, the chain begins anew with a plain sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Count, Text
from tts.search.lengths import waves_of
from tts.search.needs import Needs
from tts.search.parameters import Temperature
from tts.search.parts import Selection, Strategy
from tts.search.search import Search
from tts.search.selections.hierarchical import Hierarchical
from tts.search.selections.majority import Majority
from tts.search.strategies._common.earlier_solutions import open_prompt, with_note
from tts.search.strategies._common.stepping import affordable_width, draw, rounds
from tts.types import Candidate, Trajectory

_MOST = 1024  # attempts, where the budget decides


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialRevision(Strategy):
    """Chains of revisions beside each other.

    Args:
        chains: The number of chains beside each other, at least 1; None: N / length, where the budget pays N solutions.
        length: The attempts of a chain, at least 1; None: N / chains. If both are None, both are near the root of N.
        shown: The most earlier attempts in a prompt, at least 1.
        feedback: The role of the verifier whose notes stand after the attempts (`StepScores.note`); None: none.
        temperature: The temperature of all attempts; None: the run's.

    Cost: chains x length samples; each revision reads its prompt, with the attempts that are shown. With `feedback`, a
        verifier call for each attempt.

    Example:
        >>> import tts
        >>> model = lambda ask: "The answer is 7."
        >>> found = tts.solve(
        ...     "What is 3 + 4?",
        ...     tts.Budget(samples=12),
        ...     backend=model,
        ...     task="math",
        ...     strategy="sequential_revision(chains=2, length=3)",
        ... )
        >>> found.answer, found.usage.samples
        ('7', 6)
    """

    registered_as = "sequential_revision"
    sized_by_budget = ("chains", "length")
    chains: Count | None = None
    length: Count | None = None
    shown: Count = 4
    feedback: Text | None = None
    temperature: Temperature | None = None

    def needs(self) -> Needs:
        """Return the needs: revisions, and the verifier whose notes the prompts show."""
        return Needs(
            prompts=("revise",) if self.length != 1 else (), verifiers=(self.feedback,) if self.feedback else ()
        )

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Lengthen all chains by one attempt at a time; if a size is None, again until the budget is used up."""
        for _ in rounds(search, 1 if self.chains and self.length else None):
            round_start = len(search.candidates)
            chains, length = await self._sizes(search)
            for wave in waves_of(range(chains)):
                # a solution that was drawn to learn its length begins the first chain
                wave_chains = [[c] for c in search.candidates[round_start:]] if 0 in wave else []
                wave_chains += [[] for _ in range(len(wave) - len(wave_chains))]
                await self._lengthen(search, wave_chains, length)
        return search.candidates

    async def _lengthen(self, search: Search, chains: Sequence[list[Candidate]], length: int) -> None:
        """Write chains, beside each other, to their length."""
        for _ in range(length):
            short_chains = [chain for chain in chains if len(chain) < length]
            open_chains = [chain for chain in short_chains if not await self._is_solved(search, chain)]
            if not open_chains:
                break
            roots = [await self._root(search, chain) for chain in open_chains]
            new_attempts = await draw(search, roots, self.temperature)
            for chain, attempt in zip(open_chains, new_attempts, strict=True):
                chain.append(attempt)

    async def _is_solved(self, search: Search, chain: Sequence[Candidate]) -> bool:
        """Score the last attempt of a chain; return whether the feedback's verifier gives its greatest score."""
        if self.feedback is None or not chain:
            return False
        [score] = (await search.score([chain[-1].trajectory], self.feedback)).tolist()
        _, greatest_score = search.scoring.get(self.feedback).range
        return score >= greatest_score

    async def _sizes(self, search: Search) -> tuple[int, int]:
        """Return the number of chains and their length, by the budget where a size is None."""
        chains, length = self.chains, self.length
        if chains is None or length is None:
            affordable = min(await affordable_width(search, self.temperature, stepwise=False), _MOST)
            if chains is None:
                planned_length = length or max(1, int(affordable**0.5))
                chains = max(1, affordable // planned_length)
            length = length or max(1, affordable // chains)
        return chains, length

    async def _root(self, search: Search, chain: list[Candidate]) -> Trajectory:
        """Return the prompt of a chain's next attempt. A chain without an attempt that can be shown is emptied."""
        texts = [with_note(search, c.trajectory, self.feedback) for c in chain if not c.truncated]
        last_texts = texts[-self.shown :]
        root = await open_prompt(search, "revise", last_texts, chain[0].group) if last_texts else None
        if root is None:
            chain.clear()
        return root or search.root

    def default_selection(self, *, verified: bool) -> Selection:
        """Return `hierarchical` with a verifier, else a flat `majority`."""
        return Hierarchical() if verified else Majority()
