"""Mixture of agents: layers of models, each of which sees the solutions of the layer before.

One model fuses the last layer.

    texts = ()
    for each layer: each writer draws its samples after the problem and the texts ; texts = what they wrote
    the answer is that of the aggregator after the last texts

Source: Wang et al., "Mixture-of-Agents Enhances Large Language Model Capabilities" (2406.04692), and Li et al.,
"Rethinking Mixture-of-Agents: Is Mixing Different Large Language Models Beneficial?" (2502.00674, Self-MoA: one model
in all places), from memory. Archon (2409.15254) stacks such layers with critics, rankers and verifiers, which are
selections here. Differs:
- The prompt is the task's "fuse" (or "revise") in place of the paper's own.
- A solution that was cut short is not shown; where none can be shown, a layer starts from the problem alone.
- A writer whose samples all fail is left out.
- Samples that are left out are what the budget pays. Fused solutions are then drawn until it is used up, and vote.
- Where the budget ends the search before a fused solution, the layer that is under way and the one before it vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Count, Text
from tts.search.ends import SearchEnded
from tts.search.needs import Needs, writers
from tts.search.parameters import Shown, Temperature, Writers
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.earlier_solutions import root_showing, whole, write
from tts.search.strategies._common.stepping import affordable_width
from tts.types import Candidate

_MOST = 64  # the most samples of a writer where the budget decides, as one prompt shows all


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfAgents(Strategy):
    """Layers of writers, and an aggregator that fuses the solutions of the last layer.

    Args:
        writers: The roles of the models of each layer, at least one, each once; ["policy"] is Self-MoA.
        samples: The samples of each writer in each layer, at least 1; None: as many as the budget pays.
        layers: The layers of writers, at least 1.
        aggregator: The role of the model that fuses.
        prompt: The task's kind of prompt that shows several solutions: "fuse" or "revise".
        temperature: The temperature of all models; None: the run's.

    Cost: layers x writers x samples, and 1, in samples; after the first layer each reads all solutions of the layer
    before. Random: none of its own.

    Example:
        >>> import tts
        >>> model = lambda ask: "The answer is 7."
        >>> found = tts.solve(
        ...     "What is 3 + 4?",
        ...     tts.Budget(samples=12),
        ...     backend=model,
        ...     task="math",
        ...     strategy="mixture_of_agents(samples=3)",
        ... )
        >>> found.answer, found.usage.samples
        ('7', 4)
    """

    registered_as = "mixture_of_agents"
    sized_by_budget = ("samples",)
    always_votes = True  # no reserve is held to score the layers before the last
    writers: Writers = ("policy",)
    samples: Count | None = None
    layers: Count = 1
    aggregator: Text = "policy"
    prompt: Shown = "fuse"
    temperature: Temperature | None = None

    def needs(self) -> Needs:
        """Return the needs: the models, and the prompt that shows solutions."""
        prompt = "revise" if self.samples == 1 == len(self.writers) else self.prompt
        return Needs(prompts=(prompt,), models=writers(*self.writers, self.aggregator))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write layer after layer, and fuse."""
        previous_start, layer_start, root = 0, 0, search.root
        try:
            samples = self.samples or await self._affordable(search)
            for layer in range(self.layers):
                for i, role in enumerate(self.writers):
                    num_missing = samples
                    if layer == 0 and i == 0 and role == "policy":
                        num_missing -= len(search.candidates)  # the policy's sample that showed a length counts
                    if num_missing > 0:
                        await write(search, root, num_missing, role, self.writers, self.temperature)
                previous_start, layer_start = layer_start, len(search.candidates)
                root = await root_showing(search, self.prompt, whole(search.candidates[previous_start:layer_start]))
            num_fused = 1
            if self.samples is None:
                num_fused = None  # as many as the budget pays, which alone vote
                previous_start = layer_start
            await write(search, root, num_fused, self.aggregator, (self.aggregator,), self.temperature)
        except SearchEnded as end:
            has_answer = any(c.answer is not None for c in search.candidates[previous_start:])
            start = previous_start if has_answer else 0
            raise end.restrict_candidates(slice(start, None)) from None
        return search.candidates[layer_start:]

    async def _affordable(self, search: Search) -> int:
        """Return the samples of a writer in a layer by the budget, which also pays one fused solution."""
        affordable = await affordable_width(search, self.temperature, stepwise=False)
        return max(1, min(_MOST, (affordable - 1) // (self.layers * len(self.writers))))
