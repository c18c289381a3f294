"""Power sampling: solutions by the model's own law, sharpened to p^alpha over whole texts.

There is no verifier. A temperature sharpens each token by itself; power sampling sharpens the law of whole texts. A
chain of Metropolis and Hastings begins at a plain sample, and each move draws the text anew after some token. Likely
texts are kept. `power_smc` has the same target, and takes fewer tokens and rounds.

Source: Karan, Du, "Reasoning with Sampling: Your Base Model is Smarter Than You Think" (2510.14901), Algorithm 1, and
the function `mcmc_power_samp` of its code: blocks, of which each ends in moves over all that is written so far; alpha
4, 10 moves, 16 blocks.

Blocks and moves are drawn at temperature 1 / alpha, as in the code. The ratio takes both probabilities of each token:
that under the model, and that under the tempered law that drew it.

Differs:
- Texts differ in length, and the position is drawn among the tokens of a text: the ratio has the factor |x| / |x'|. The
  code has no such factor, and compares a text with the other one's beginning of the same length.
- The moves after the block in which a text has ended redraw to the end of a text, so that their law is p^alpha over
  whole texts. Those of the code are cut at the length of the blocks so far.
- A proposal that did not end, or failed, is rejected. A text that a cap cut gives way to any that ended.
- A position inside of a character is no place to begin at: the text stays.
- Where the run filters tokens (top_p, top_k, min_p), the law is p^alpha over the texts that the filters leave.
- Servers that show the 20 most likely tokens alone give the tempered probability within a bound: see
  `top_sampling_logprob`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, NamedTuple

from tts.checks import Count, Natural, number
from tts.errors import ConfigError
from tts.search.ends import END, ROWS_FAILED, SearchEnded, Share, Tokens, Until
from tts.search.lengths import waves_of
from tts.search.needs import Needs
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.stepping import rounds
from tts.types import Candidate, Trajectory

_PART = 0.25  # the default part of a solution that is a block
_TRIES = 3  # tries of a block whose rows fail


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSampling(Strategy):
    """The last texts of Markov chains whose law is p^alpha.

    Args:
        alpha: The exponent of the model's law, at least 1; 1 is plain sampling.
        block: The tokens between two series of moves, at least 1; None: a quarter of the length of a first solution at
            temperature 1 / alpha. This first solution has no vote once a chain has ended.
        moves: The moves of a chain after each block, and after its end, at least 0; 0 is sampling at temperature 1 /
            alpha.
        chains: The number of independent chains, which move side by side. Each chain gives one candidate. None: as many
            as the budget pays, one after another.

    Cost: a chain of length L in b blocks generates about L + moves (b + 1) L / 4 tokens. That is 13.5 plain samples by
    default, and 43.5
        with the 16 blocks of the code. Each move is one sample more. A move reads prompt and prefix anew, as input. A
        chain that the budget cuts is a candidate only where none is whole.
    Random: positions and acceptances, addressed by chain, block and move. Not nested in `chains`.

    Example:
        >>> import tts
        >>> found = tts.solve("3 + 4 - 2 + 9", 400, model="toy", strategy="power_sampling(chains=2, moves=2, block=8)")
        >>> found.answer, found.usage.samples, found.usage.tokens
        ('14', 14, 149)
    """

    registered_as = "power_sampling"
    sized_by_budget = ("chains",)
    alpha: Annotated[float, number(1)] = 4.0
    block: Count | None = None
    moves: Natural = 10
    chains: Count | None = None

    def needs(self) -> Needs:
        """Return the needs: blocks of tokens with log-probabilities, and forks inside of them."""
        return Needs(capabilities=("steps", "extend", "token_ids", "logprobs", "sampling_logprobs"))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Walk the chains, and return their last texts as candidates."""
        first_solutions: list[Candidate] = []
        if self.block is None and self.moves and not search.candidates:
            first_solutions = await search.complete([search.root], temperature=1 / self.alpha)
        for round_number in rounds(search, None if self.chains is None else 1):
            for wave in waves_of(range(self.chains or 1)):
                walk = Walk(search, self.alpha, round_number, [search.root] * len(wave), wave[0])
                is_whole = False
                try:
                    await self._walk(walk)
                    is_whole = True
                finally:
                    if is_whole or not search.candidates:
                        with suppress(SearchEnded):  # a stop rule ends the search at its next call
                            for t in walk.ts:
                                search.finish(t)
                    if is_whole and any(c.answer is not None for c in search.candidates[len(first_solutions) :]):
                        for c in first_solutions:
                            search.finish(c.trajectory, weight=0.0)
        return search.candidates

    async def _walk(self, walk: Walk) -> None:
        """Write block by block, with moves of the active texts after each block; then move among whole texts."""
        block, level = self.block, 0
        active = [i for i, t in enumerate(walk.ts) if t.status == "active"]
        while active:
            await walk.extend(active, Share(_PART) if block is None else Tokens(block))
            if block is None:
                block = max(1, *(walk.ts[i].num_tokens for i in active))
            level += 1
            active = [i for i in active if walk.ts[i].status == "active"]
            if active:
                for move in range(self.moves):
                    await walk.move(active, (level, move), level * block)
            active = [i for i, t in enumerate(walk.ts) if t.status == "active"]
        for move in range(self.moves):
            await walk.move(range(len(walk.ts)), (0, move), None)


@dataclass(slots=True)
class Walk:
    """Chains that move side by side.

    Args:
        search: The search.
        alpha: The exponent of the model's law.
        round_: The number of the walk among the walks of the search.
        ts: The present texts of the chains.
        first: The number of the first chain among those of its round.
        forks: The prefixes, by chain, at which moves divided its present text.
    """

    search: Search
    alpha: float
    round_: int
    ts: list[Trajectory]
    first: int = 0
    forks: dict[int, list[Trajectory]] = field(default_factory=dict[int, list[Trajectory]])

    async def extend(self, which: Sequence[int], until: Until | Tokens | Share) -> None:
        """Write the next block of some chains.

        Raises:
            SearchEnded: the budget is used up, or a row failed three times.
        """
        missing, tries = list(which), 0
        while missing:
            if tries == _TRIES:
                raise SearchEnded(ROWS_FAILED)
            unbegun_before = self.search.rows.unbegun
            families = await self.search.expand([self.ts[i] for i in missing], 1, until, temperature=1 / self.alpha)
            failed: list[int] = []
            for i, children in zip(missing, families, strict=True):
                if children:
                    self.ts[i] = children[0]
                else:
                    failed.append(i)
            missing = failed
            # rows that a limit kept from beginning are no failures: the next call then raises
            if self.search.rows.unbegun == unbegun_before:
                tries += 1

    async def move(self, which: Sequence[int], address: tuple[int, int], limit: int | None) -> None:
        """Propose another text for some chains, and accept or reject each proposal.

        Args:
            which: The numbers of the chains.
            address: The block and the move, as an address of the draws.
            limit: The most tokens of a proposal; None: a proposal goes to its end.
        """
        prefixes: dict[int, Trajectory] = {}
        uniform_draws: dict[int, float] = {}
        for i in which:
            rng = self.search.rng("move", self.round_, self.first + i, *address)
            position, uniform_draws[i] = int(rng.integers(self.ts[i].num_tokens)), rng.random()
            prefix = await self._prefix(self.ts[i], position)
            if prefix is not None:
                prefixes[i] = prefix
                self.forks.setdefault(i, []).append(prefix)
        most_tokens = {i: None if limit is None else limit - prefix.num_tokens for i, prefix in prefixes.items()}
        for length in sorted({*most_tokens.values()}, key=lambda tokens: tokens or 0):  # a call for each length
            rows = [i for i, tokens in most_tokens.items() if tokens == length]
            until = END if length is None else Tokens(length)
            families = await self.search.expand([prefixes[i] for i in rows], 1, until, temperature=1 / self.alpha)
            for i, proposals in zip(rows, families, strict=True):
                self._decide(i, proposals, prefixes[i], uniform_draws[i], is_whole_text=limit is None)
        text_nodes = chain.from_iterable(t.path for t in self.ts)
        self.search.keep([*text_nodes, *chain.from_iterable(self.forks.values())])

    async def _prefix(self, t: Trajectory, num_kept: int) -> Trajectory | None:
        """Return the first `num_kept` tokens of a path; None where the cut would be inside of a character."""
        longer_nodes = [node for node in t.path if node.num_tokens > num_kept]
        piece = longer_nodes[0] if longer_nodes else t
        parent = piece.parent
        if parent is None or num_kept == parent.num_tokens:
            return parent
        if self._chances(t) is None:
            return None
        try:
            return await self.search.fork(piece, num_kept - parent.num_tokens)
        except ConfigError:  # the place is inside of a character, as the piece shows its tokens
            return None

    def _decide(
        self, i: int, proposals: Sequence[Trajectory], prefix: Trajectory, uniform_draw: float, *, is_whole_text: bool
    ) -> None:
        """Accept or reject the proposal of chain i; without a proposal the chain stays."""
        accepted_statuses = ("finished",) if is_whole_text else ("active", "finished")
        if not proposals or proposals[0].status not in accepted_statuses:
            return
        old_text, new_text, num_kept = self.ts[i], proposals[0], prefix.num_tokens
        ratio = math.inf
        if old_text.status in accepted_statuses:
            new_chances, old_chances = self._chances(new_text), self._chances(old_text)
            if new_chances is None or old_chances is None:
                return
            ratio = log_ratio(new_chances[num_kept:], old_chances[num_kept:], num_kept, self.alpha)
        if uniform_draw < math.exp(min(0.0, ratio)):
            self.ts[i] = new_text
            self.forks[i] = [fork for fork in self.forks[i] if fork.num_tokens <= num_kept]

    def _chances(self, t: Trajectory) -> Sequence[Chance] | None:
        """Return `chances(t)`, and warn if the result is None."""
        values = chances(t)
        if values is None:
            self.search.notes.warn(
                "a text came without the log-probability of each of its tokens, so that a chain did not move"
            )
        return values


class Chance(NamedTuple):
    """Log-probabilities of one token: under the model, and under the tempered law that drew it."""

    model: float
    proposal: float


def log_ratio(new: Sequence[Chance], old: Sequence[Chance], kept: int, alpha: float) -> float:
    """Return ln of (p(x') / p(x))^alpha q(x | x') / q(x' | x).

    The ratio is computed on the parts redrawn after `kept` common tokens.
    """
    new_weight = math.fsum(alpha * token.model - token.proposal for token in new)
    old_weight = math.fsum(alpha * token.model - token.proposal for token in old)
    return new_weight - old_weight + math.log(kept + len(old)) - math.log(kept + len(new))


def chances(t: Trajectory) -> tuple[Chance, ...] | None:
    """Return the `Chance` of each token of a path; None where a log-probability was not given."""
    pieces = t.path[1:]
    has_all = all(len(node.token_ids) == len(node.logprobs) == len(node.sampling_logprobs) for node in pieces)
    if not has_all:
        return None
    values = tuple(chain.from_iterable(map(Chance, node.logprobs, node.sampling_logprobs) for node in pieces))
    return values if len(values) == t.num_tokens else None
