"""The interface of a strategy: a tree, a budget and a seed, with methods such as expand, score and finish.

It hides batching, metering, tracing and cancellation. One call of a search is in flight at a time, often with several trajectories.
A call raises `SearchEnded` if no row can start or if the stop rule fires; only the solver catches it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from tts.search.algorithms.embedding import Embedder
from tts.search.ends import STEP, SearchEnded, Share, Stops, Tokens, Until
from tts.search.fallback import learn_length
from tts.search.state import SearchState
from tts.tasks.base import Task
from tts.types import Candidate, Message, Problem, Prompt, Trajectory
from tts.verifiers.base import to_unit

T = TypeVar("T")
Scale = Literal["raw", "unit", "log_odds"]


class Search:
    """One problem's search, as strategies and selections use it.

    Example:
        >>> import tts
        >>> class Seen(tts.Strategy):
        ...     async def run(self, search):
        ...         made = await search.complete([search.root], n=2)
        ...         print(search.problem.text, search.left["tokens"], search.spent)
        ...         return made
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy=Seen()).answer
        3 + 4 - 2 370.0 {'tokens': 30, 'generated_tokens': 30, 'verifier_tokens': 0, 'verifier_calls': 0, 'samples': 2}
        '5'
    """

    __slots__ = ("_state",)

    def __init__(self, state: SearchState) -> None:
        self._state = state

    # What may be read -----------------------------------------------------------------------------------------------------------

    @property
    def problem(self) -> Problem:
        """The problem, without its reference answer and metadata."""
        return self._state.problem

    @property
    def task(self) -> Task:
        """Its task."""
        return self._state.task

    @property
    def root(self) -> Trajectory:
        """The root of the "solve" prompt, which is read once."""
        return self._state.root

    @property
    def candidates(self) -> Sequence[Candidate]:
        """What `finish` and `complete` made so far, in draw order; it grows."""
        return self._state.candidates

    @property
    def left(self) -> Mapping[str, float]:
        """What may still be granted, by limited unit (`seconds` among them)."""
        return self._state.left

    @property
    def spent(self) -> Mapping[str, int]:
        """What was spent so far: tokens, generated and verifier tokens, verifier calls and samples, limited or not."""
        account = self._state.costs.whole
        return {unit: account.paid(unit) for unit in ("tokens", "generated_tokens", "verifier_tokens", "verifier_calls", "samples")}

    def affordable_samples(self, *, stepwise: bool = False) -> int | None:
        """Return the number of plain samples of expected length that the budget still pays; None: no limit.

        The expected length is learnt during the search. At first it is that of the caller, the model's record or the task. If only time
        is limited, the number is that of the samples that have ended, and at least 4.

        Args:
            stepwise: whether samples are scored at each step instead of once.
        """
        return self._state.affordable_samples(stepwise=stepwise)

    def rng(self, purpose: str, *address: int | str) -> np.random.Generator:
        """Return the generator of an address; the same address always restarts the same draws, so loops pass their step number."""
        return self._state.rng(purpose, *address)

    def kv_cost(self, ts: Sequence[Trajectory]) -> int:
        """Return the distinct prefix tokens that these trajectories keep alive, prompts included."""
        return self._state.tree.distinct_tokens(ts)

    # Writing --------------------------------------------------------------------------------------------------------------------

    async def open(
        self, kind: str = "solve", *texts: str, prompt: Prompt | Sequence[Message] | None = None, group: int | None = None
    ) -> Trajectory:
        """Return a new root, from the task's prompt of a kind and earlier texts, or from a prompt of the caller's own.

        A prompt that is opened again has draws of its own: its stream is a function of seed, problem, content and how often it was opened.

        Args:
            kind: of the task's prompts ("revise", "fuse", "critique", …). With `prompt` any name: lengths are learnt by it, at first
                from the task's constant for it, or for "solve". What is written after "critique" or "verify" is no solution, and
                is not scored for a stop rule.
            texts: earlier solutions that the task's prompt shows.
            prompt: in place of the task's: exact text, or chat messages.
            group: of its candidates, where they belong to earlier ones'.

        Raises:
            ConfigError: the task has no such prompt; `prompt` is empty, of another type, or given with texts.
            PromptTooLong: it leaves no room. SearchEnded: the budget cannot pay it.
        """
        return await self._state.open(kind, *texts, prompt=prompt, group=group)

    async def expand(
        self,
        ts: Sequence[Trajectory],
        n: int = 1,
        until: Until | Tokens | Share | Stops = STEP,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        model: str = "policy",
    ) -> list[list[Trajectory]]:
        """Return up to n children of each trajectory, in order; failed rows are left out, charged and counted by kind.

        Rows that cost no sample begin first, then first children of all, second children of all, …; as many as the budget pays to their
        end. Rows that a grant cuts are continued within the call.

        Args:
            ts: active trajectories; one listed twice is two requests. n: children of each.
            until: where a row ends: STEP, END, Tokens(m), Share(part), Stops(texts), after the first, or Thought(m), after the thought.
            temperature: None for the run's. max_tokens: of a row; None for the run's. model: the role that writes.

        Raises:
            SearchEnded: not one row can start.
        """
        sampling = self._state.sampling_at(temperature, max_tokens)
        try:
            return await self._state.expand(ts, n, until, sampling, model)
        except SearchEnded as end:
            if not await learn_length(self._state, end):
                raise
        return await self._state.expand(ts, n, until, sampling, model)

    async def complete(
        self,
        ts: Sequence[Trajectory],
        n: int | None = 1,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        effort: str | None = None,
        model: str = "policy",
    ) -> list[Candidate]:
        """Expand to the end and finish, in waves, until each trajectory has n continuations; return the new candidates in draw order.

        Args:
            n: continuations of each, rows that failed not counted; None: as many as the budget pays.
            temperature, max_tokens, model: as in `expand`. effort: see `Sampling.effort`; None for the run's.

        Raises:
            SearchEnded: the budget is used up before, all rows of three waves failed, or the stop rule fired; see `candidates`.
        """
        return await self._state.complete(ts, n, self._state.sampling_at(temperature, max_tokens, effort), model)

    async def extend(self, ts: Sequence[Trajectory], text: str, *, model: str = "policy") -> list[Trajectory]:
        """Return one child of each trajectory with forced text after it (an answer cue, "Wait"); input, not generated tokens.

        A finished trajectory goes on after its text without the end of sequence, which stays charged: prompt and path are read anew, as
        input. It stays a candidate where it was one; what is written after it is of its group.

        Raises:
            ConfigError: a trajectory is truncated, failed or pruned. SearchEnded: the budget cannot pay it.
            CapabilityError: the backend cannot append text; nothing is spent.
        """
        return await self._state.extend(ts, text, model)

    async def fork(self, t: Trajectory, at: int | str) -> Trajectory:
        """Return the path up to a place in a trajectory's last piece, to branch off there: `expand([prefix], n)` makes n forks.

        The node is divided. What stands after the token is the first child of the prefix, so that every fork costs a sample. Fork j >= 1
        has a stream of its own, by (stream, position, j). Forks of one place are counted on over all calls. The state is read anew, as
        input. Trajectories that the caller has, candidates and scores stay as they are.

        Args:
            at: tokens of the last piece, as in `token_ids`, that the prefix keeps; from 1 to below their number. Or a text: the prefix ends
                before its last occurrence in that piece, also where tokens are not shown; then their number is an estimate.

        Raises:
            CapabilityError: the backend shows no token ids (for a number), or cannot append text; nothing is spent.
            ConfigError: there is no such place, or it begins inside of a character. SearchEnded: the budget cannot pay it.
        """
        return await self._state.fork(t, at)

    async def rollout(self, ts: Sequence[Trajectory], steps: int, *, temperature: float | None = None) -> list[Trajectory]:
        """Return each trajectory continued by up to `steps` steps, for `score` alone: paid for, and dropped at the next call of this.

        A trajectory that has ended, or whose rollout could not start, stands for itself.
        """
        return await self._state.rollout(ts, steps, self._state.sampling_at(temperature))

    def finish(self, t: Trajectory, *, scores: Mapping[str, float] | None = None, weight: float | None = None) -> Candidate | None:
        """Return the candidate of a finished or truncated trajectory, with its answer if it has one; None for any other.

        A path that is a candidate already takes the scores and the weight, in its place among `candidates`.

        Args:
            scores: the strategy's own, finite numbers by a role that no verifier has. Selections by score read them at no cost, where the
                strategy names the role in `Needs.scores`. Scores below 0 or above 1 are taken as log-odds where they are summed.
            weight: what the candidate counts for in `majority`, at least 0; None: 1.

        Raises:
            SearchEnded: the stop rule fires on the candidates so far; after that, every call that would write does.
            ConfigError: it is a rollout; a score or the weight is no such number; the role is a verifier's.
        """
        return self._state.finish(t, scores, weight)

    # Judging --------------------------------------------------------------------------------------------------------------------

    async def score(
        self, ts: Sequence[Trajectory], verifier: str = "main", aggregate: str = "last", *, scale: Scale = "raw"
    ) -> NDArray[np.float64]:
        """Return one score a trajectory, NaN where unknown. A node is asked about once; its score is kept.

        Args:
            verifier: the role. aggregate: "last", "min", "prod", "mean" or "model".
            scale: "raw": as the verifier scores; "unit": mapped from its range to [0, 1]; "log_odds": ln(r / (1 - r)) of that, where an
                unbounded score is a log-odds as it is.

        Raises:
            SearchEnded: the budget cannot pay for a single one of them. A selection, which comes after the end, gets NaN.
        """
        scores = await self._state.score(ts, verifier, aggregate)
        if scale == "raw":
            return scores
        bounds = self._state.scoring.range_of(verifier)
        return to_unit(scores, bounds) if scale == "unit" else to_log_odds(scores, bounds)

    def step_scores(self, t: Trajectory, verifier: str = "main") -> tuple[float, ...] | None:
        """Return the scores of the steps of a scored trajectory; None where it was not scored, or only as a whole."""
        return self._state.step_scores(t, verifier)

    async def ask(self, ts: Sequence[Trajectory], text: str, tokens: Sequence[str], *, model: str = "policy") -> NDArray[np.float64]:
        """Return the probabilities [trajectories, tokens] that each token comes next after an appended text, untempered.

        The text is read and dropped; it is charged as verifier tokens.
        """
        return await self._state.ask(ts, text, tokens, model)

    async def hidden(self, ts: Sequence[Trajectory]) -> NDArray[np.float64]:
        """Return the policy's last hidden state at the end of each path, [trajectories, its width]; input, as `extend`."""
        return await self._state.hidden(ts)

    async def embed(self, texts: Sequence[str], embedder: Embedder | None = None) -> NDArray[np.float64]:
        """Return a unit vector of each text, [texts, dimensions], by an embedder; None: the solver's."""
        return await self._state.embed(texts, embedder)

    # The rest -------------------------------------------------------------------------------------------------------------------

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """Run CPU work (an integer program, clustering) beside the event loop; its seconds are booked as "search".

        Raises:
            SearchEnded: the time is over; the function cannot be stopped, but the search no longer waits for it.
        """
        return await self._state.run(fn, *args)

    def keep(self, ts: Sequence[Trajectory]) -> None:
        """Make `ts` the live set: every other unfinished path is pruned, and its state released. Candidates stay."""
        self._state.keep(ts)

    def drop(self, ts: Sequence[Trajectory]) -> None:
        """Prune these unfinished paths alone."""
        self._state.drop(ts)


def state_of(search: Search) -> SearchState:
    """Return the full state of a search, for built-in parts that need more than `Search`: allocator, pairwise votes."""
    return search._state  # pyright: ignore[reportPrivateUsage]


_LEAST = 1e-7  # scores are clipped to [_LEAST, 1 - _LEAST]
_MOST = float(np.log1p(-_LEAST) - np.log(_LEAST))


def to_log_odds(scores: NDArray[np.float64], bounds: tuple[float, float]) -> NDArray[np.float64]:
    """Return ln(r / (1 - r)) of scores in a verifier's range, mapped to [0, 1] and clipped; an unbounded score is a log-odds as it is."""
    if np.isinf(bounds).any():
        return np.clip(scores, -_MOST, _MOST)
    r = np.clip(to_unit(scores, bounds), _LEAST, 1 - _LEAST)
    return np.log(r) - np.log1p(-r)
