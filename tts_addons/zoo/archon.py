"""Archon: layers of calls that generate, criticize, rank, verify and fuse solutions.

    generate: each writer draws its samples
    critique: the judge names strengths and weaknesses of each solution, for later layers
    rank: the judge orders all solutions ; the first `keep` stay
    verify: the judge reasons about each solution ; those that it calls wrong are dropped
    fuse: new solutions, written from all that are left, replace them

Source: algorithm B17, Saad-Falcon et al., "Archon: An Architecture Search Framework for Inference-Time Techniques"
(2409.15254), read in the code: the order of layers; the ranker's reply "[2] > [1]", after which missing solutions
follow in order; five kept. Differs:
- Layers are given, not searched for. There are no layers of unit tests; the selection `codet` uses such tests.
- A critique is a call for each solution; the code's critic reads all solutions at once. Prompts are ours, and "fuse" is
  the task's.
- A rank is read in the last line that has numbers in brackets, the code's in the first line. A single solution is not
  ranked.
- A verify is one call with its verdict at the end; the code has a call that reasons and one for the verdict. A reply
  without a verdict keeps its solution, where the code drops it.
- If all solutions are called wrong, all stay. A truncated solution is not shown, and is dropped by the next layer that
  reads.
- The solutions after the last layer vote; the paper's last layer leaves one solution.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from tts.checks import Count, Rule, Text
from tts.errors import ConfigError, quote
from tts.search.needs import Needs, writers
from tts.search.parameters import Temperature, Writers
from tts.search.parts import Strategy
from tts.search.search import Search
from tts.search.strategies._common.asking import replies_to
from tts.search.strategies._common.earlier_solutions import root_showing, write
from tts.search.strategies._common.stepping import affordable_width, rounds
from tts.types import Candidate, Message
from tts.verifiers.genrm import QUESTION, reasoning_request, verdict_of
from tts.verifiers.replying import asking

CRITIQUE = "Below are a problem and a solution. Name the strengths and the weaknesses of the solution, briefly."
RANK = (
    "Below are a problem and numbered solutions. Compare them, then write one line with all of their numbers, the "
    "best first, such as "
    "[2] > [1] > [3]."
)
_LAYERS = ("generate", "critique", "rank", "verify", "fuse")
_MOST = 64  # the most samples of a writer where the budget decides, as one prompt shows all


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A solution between layers, with its critique."""

    made: Candidate
    critique: str = ""

    @property
    def text(self) -> str:
        """The text of the solution, with its critique if there is one."""
        response = self.made.trajectory.response.rstrip()
        return f"{response}\n\nCritique of it:\n{self.critique}" if self.critique else response


def _check(name: str, layers: Any) -> tuple[str, ...]:
    """Check the names of layers, and return them as a tuple.

    Raises:
        ConfigError: the value is not a list of layers, or no later layer reads a critique.
    """
    names: list[Any] = list(layers) if isinstance(layers, list | tuple) else []
    if not names or not all(isinstance(layer, str) and layer in _LAYERS for layer in names):
        raise ConfigError(f"{name} is {quote(layers)}, but must be a list of {', '.join(_LAYERS)}")
    if names[0] != "generate" or "generate" in names[1:]:
        raise ConfigError(f"{name} is {quote(layers)}, but must begin with 'generate', and have it nowhere else")
    for place, layer in enumerate(names):
        is_read = "rank" in names[place:] or "fuse" in names[place:]
        if layer == "critique" and not is_read:
            raise ConfigError(
                f"{name} is {quote(layers)}, but a critique must be followed by 'rank' or 'fuse', which reads it"
            )
    return tuple(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archon(Strategy):
    """An architecture of layers.

    Args:
        layers: The names of the layers, in order. The first, and only the first, is "generate"; then any of "critique",
            "rank", "verify" and "fuse". After a critique, some later rank or fuse must read the critique.
        n: The samples of each writer, at least 1; None: as many as the budget pays, with all layers repeated while the
            budget lasts.
        writers: The roles of the models that generate, each once.
        judge: The role that criticizes, ranks and verifies.
        aggregator: The role that fuses.
        keep: The number of solutions that a rank keeps, at least 1.
        fused: The number of solutions that a fuse writes, at least 1.
        temperature: The temperature of all models; None: the run's.

    Cost: n x writers samples; one reply for each solution in a critique or verify, one reply in a rank, and `fused` in
    a fuse. Random: none of its own.

    Example:
        >>> import tts
        >>> model = lambda ask: "The answer is 7."
        >>> plan = "archon(n=2, layers=['generate', 'fuse'])"
        >>> found = tts.solve("What is 3 + 4?", tts.Budget(samples=12), backend=model, task="math", strategy=plan)
        >>> found.answer, found.usage.samples
        ('7', 3)
    """

    registered_as = "archon"
    always_votes = True
    layers: Annotated[tuple[str, ...], Rule(_check)] = ("generate", "critique", "rank", "fuse")
    n: Count | None = None
    writers: Writers = ("policy",)
    judge: Text = "policy"
    aggregator: Text = "policy"
    keep: Count = 5
    fused: Count = 1
    temperature: Temperature | None = None

    def needs(self) -> Needs:
        """Return the needs: the models and the prompts of all layers."""
        roles = list(self.writers)
        if {"critique", "rank", "verify"} & {*self.layers}:
            roles.append(self.judge)
        if "fuse" not in self.layers:
            return Needs(models=writers(*roles))
        return Needs(prompts=("fuse", "revise"), models=writers(*roles, self.aggregator))

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Run the layers; without n, repeat all layers while the budget lasts."""
        for _ in rounds(search, None if self.n is None else 1):
            start = len(search.candidates)
            n = self.n or await self._affordable(search)
            reviews = await self._generate(search, n, start)
            for layer in self.layers[1:]:
                reviews = await self._run_layer(search, layer, reviews)
            if any(review.made.answer is not None for review in reviews):
                kept_numbers = {review.made.index for review in reviews}
                dropped = [c for c in search.candidates[start:] if c.index not in kept_numbers]
                for candidate in dropped:
                    search.finish(candidate.trajectory, weight=0.0)
        return search.candidates

    async def _generate(self, search: Search, n: int, start: int) -> list[Reviewed]:
        """Draw n samples of each writer, and return them with the candidates from `start` on."""
        for i, role in enumerate(self.writers):
            num_missing = n
            if i == 0 and role == "policy":
                num_missing -= len(search.candidates) - start  # the policy's sample that showed a length counts
            if num_missing > 0:
                await write(search, search.root, num_missing, role, self.writers, self.temperature)
        return [Reviewed(c) for c in search.candidates[start:]]

    async def _run_layer(self, search: Search, layer: str, reviews: Sequence[Reviewed]) -> list[Reviewed]:
        """Return the solutions that a layer keeps, or the new solutions that it writes."""
        complete = [review for review in reviews if not review.made.truncated]
        if layer == "fuse":
            root = await root_showing(search, "fuse", [review.text for review in complete])
            start = len(search.candidates)
            await write(search, root, self.fused, self.aggregator, (self.aggregator,), self.temperature)
            return [Reviewed(c) for c in search.candidates[start:]]
        if not complete:
            return list(reviews)
        if layer == "rank":
            reply = ""
            if len(complete) > 1:
                titled_texts = [(f"Solution [{i}]", review.text) for i, review in enumerate(complete, 1)]
                (reply,) = await self._replies(search, [asking(RANK, search.problem, *titled_texts)])
            best_first = [complete[i] for i in order_of(reply, len(complete))]
            return best_first[: self.keep]
        solutions = [("Solution", review.made.trajectory.response) for review in complete]
        question = CRITIQUE if layer == "critique" else f"{QUESTION} {reasoning_request('Yes', 'No')}"
        replies = await self._replies(search, [asking(question, search.problem, solution) for solution in solutions])
        if layer == "critique":
            return [replace(review, critique=reply.strip()) for review, reply in zip(complete, replies, strict=True)]
        verdicts = [verdict_of(reply, "Yes", "No") for reply in replies]
        approved = [review for review, verdict in zip(complete, verdicts, strict=True) if verdict != 0]
        return approved or complete  # if all solutions are called wrong, all stay

    async def _replies(self, search: Search, prompts: Sequence[tuple[Message, ...]]) -> list[str]:
        """Return the judge's reply to each prompt; "" where there is no reply."""
        by_prompt = await replies_to(search, prompts, 1, temperature=self.temperature, model=self.judge)
        return [replies[0].response if replies else "" for replies in by_prompt]

    async def _affordable(self, search: Search) -> int:
        """Return the number of samples of a writer that the budget pays."""
        units = await affordable_width(search, self.temperature, stepwise=False)
        shared_calls = self.layers.count("rank") + self.fused * self.layers.count("fuse")
        calls_per_sample = len(self.writers) * (1 + self.layers.count("critique") + self.layers.count("verify"))
        return max(1, min(_MOST, (units - shared_calls) // calls_per_sample))


def order_of(reply: str, count: int) -> list[int]:
    """Return the order of solutions, from 0, that a reply gives.

    The last line that has numbers in brackets gives the order. Missing solutions follow in their own order.
    """
    order: list[int] = []
    for line in reply.splitlines():
        numbers = [int(text) for text in re.findall(r"\[(\d{1,9})\]", line)]
        if numbers:
            order = [number - 1 for number in numbers if 1 <= number <= count]
    return list(dict.fromkeys([*order, *range(count)]))
