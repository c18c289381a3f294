"""Random programs against `Search`: strategies that use every call in any order.

Hypothesis draws them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hypothesis import strategies as st

from tts.backends.base import Sampling
from tts.budget.budget import Budget
from tts.search.ends import END, STEP, Tokens
from tts.search.needs import Needs
from tts.search.parts import Selection, Strategy
from tts.search.search import Search
from tts.search.selections.majority import Majority
from tts.types import Candidate, Problem, Trajectory
from tts.verifiers.base import Calls, StepScores, Verifier

PROBLEMS = ("3 + 4", "3 + 4 - 2", "10 - 7 + 5 - 20", "1 + 1 + 1 + 1 + 1 + 1", "-5 + 2")
_UNTIL = (STEP, END, Tokens(1), Tokens(4), Tokens(30))
_TEXTS = ("Wait", "\nA: ", "", "3 + 4 = 7\n", "so, é ")
_AGGREGATES = ("last", "min", "prod", "mean")
_OPS = (
    "expand", "expand", "expand", "complete", "complete", "score", "score", "extend", "ask", "rollout", "keep",
    "finish", "open", "embed", "stream",
)  # fmt: skip

Op = tuple[str, int, int, int]


@dataclass(frozen=True, kw_only=True)
class Program(Strategy):
    """Runs its operations, one call after another.

    Each operation is (call, which trajectories, how many, a choice of the call's own).
    """

    registered_as: ClassVar[str] = "program"  # type: ignore[misc]
    ops: tuple[Op, ...]
    verifiers: tuple[str, ...] = ()
    ran: list[str] = field(default_factory=list, compare=False, init=False)

    async def run(self, search: Search) -> Sequence[Candidate]:
        state = _State(search, [search.root])
        for name, which, count, choice in self.ops:
            if name in ("ask", "score") or state.active:
                self.ran.append(name)
                await getattr(state, name)(which, count, choice)
        return search.candidates

    def needs(self) -> Needs:
        return Needs(capabilities=("steps", "extend", "next_logprobs"), verifiers=self.verifiers)

    def default_selection(self, *, verified: bool) -> Selection:
        return Majority()


class _State:
    """The trajectories a program knows of, and what each op does to them."""

    def __init__(self, search: Search, known: list[Trajectory]) -> None:
        self.search = search
        self.known = known

    @property
    def active(self) -> list[Trajectory]:
        return [t for t in self.known if t.status == "active" and t.node not in self.search.tree.pruned]

    def _pick_paths(self, which: int, count: int) -> list[Trajectory]:
        active = self.active
        return [active[(which + i) % len(active)] for i in range(1 + count % 4)]  # one may be listed twice

    def _add_paths(self, ts: Sequence[Trajectory]) -> None:
        self.known += ts

    async def expand(self, which: int, count: int, choice: int) -> None:
        ts, n = self._pick_paths(which, count), 1 + choice % 5
        sampling: dict[str, Any] = {} if choice % 3 else {"temperature": choice % 2, "max_tokens": 1 + 7 * (choice % 9)}
        children = await self.search.expand(ts, n, _UNTIL[choice % len(_UNTIL)], **sampling)
        assert [len(of) <= n for of in children] == [True] * len(ts)
        for parent, of in zip(ts, children, strict=True):
            assert all(child.parent is parent for child in of)
            self._add_paths(of)

    async def complete(self, which: int, count: int, choice: int) -> None:
        ts, before = self._pick_paths(which, count), len(self.search.candidates)
        made = await self.search.complete(ts, 1 + choice % 6)
        assert made == self.search.candidates[before:]

    async def stream(self, which: int, count: int, choice: int) -> None:
        """Take some candidates of a stream, score some of them between, and leave it in one of three ways."""
        before, seen = len(self.search.candidates), list[Candidate]()
        stream = self.search.stream(self._pick_paths(which, count), 1 + choice % 6)
        async for candidate in stream:
            seen.append(candidate)
            if choice % 2 and self.search.scoring.verifiers:
                await self.search.score([candidate.trajectory], required=False)
            if choice % 4 == 0 and len(seen) == 2:
                await stream.aclose()
            elif choice % 4 == 1 and len(seen) == 2:
                break
        assert [c.trajectory for c in self.search.candidates[before:]] == [c.trajectory for c in seen]

    async def extend(self, which: int, count: int, choice: int) -> None:
        text = _TEXTS[choice % len(_TEXTS)]
        children = await self.search.extend(self._pick_paths(which, count), text)
        assert all(child.text == text for child in children)
        self._add_paths(children)

    async def ask(self, which: int, count: int, choice: int) -> None:
        ts = [self.known[(which + i) % len(self.known)] for i in range(count % 4)]
        ts = [t for t in ts if t.node not in self.search.tree.pruned]
        answer = await self.search.ask(ts, _TEXTS[choice % len(_TEXTS)], ["A: ", "?", "7"])
        assert answer.shape == (len(ts), 3)
        assert ((answer >= 0) & (answer <= 1)).all()

    async def score(self, which: int, count: int, choice: int) -> None:
        roles = list(self.search.scoring.verifiers)
        ts = [self.known[(which + i) % len(self.known)] for i in range(count % 4)]
        ts = [t for t in ts if t.parent is not None and t.node not in self.search.tree.pruned]
        if roles and ts:
            scores = await self.search.score(ts, roles[choice % len(roles)], _AGGREGATES[choice % len(_AGGREGATES)])
            assert scores.shape == (len(ts),)

    async def rollout(self, which: int, count: int, choice: int) -> None:
        ts = self._pick_paths(which, count)
        ends = await self.search.rollout(ts, 1 + choice % 3)
        assert len(ends) == len(ts)
        if self.search.scoring.verifiers:
            await self.search.score([end for end in ends if end.parent is not None])

    async def keep(self, which: int, count: int, choice: int) -> None:
        self.search.keep(self._pick_paths(which, count))

    async def finish(self, which: int, count: int, choice: int) -> None:
        ended = [t for t in self.known if t.status != "active"]
        for t in ended[which % 3 :]:
            candidate = self.search.finish(t)
            assert (candidate is None) == (t.status == "failed")

    async def open(self, which: int, count: int, choice: int) -> None:
        self._add_paths([await self.search.open("solve", str(choice))])

    async def embed(self, which: int, count: int, choice: int) -> None:
        assert len(await self.search.embed([t.full_text for t in self.active])) == len(self.active)


@dataclass(frozen=True)
class Judge(Verifier):
    """A verifier that lets the model write before it speaks: what it writes is charged as verifier tokens."""

    name: str = "judge"
    range: tuple[float, float] = (-1.0, 1.0)
    oracle: bool = False
    needs: tuple[str, ...] = ()
    model: str = "policy"

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        prompts = [f"is {t.num_tokens} + {t.node} right" for t in trajectories]
        replies = await calls.generate(prompts, max_tokens=6, sampling=Sampling())
        return [StepScores(whole=math.nan if reply is None else 1.0 if len(reply) % 2 else -1.0) for reply in replies]

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        return 5 + 6  # the words of the prompt, and the reply


def ops() -> st.SearchStrategy[tuple[Op, ...]]:
    small = st.integers(0, 11)
    return st.lists(st.tuples(st.sampled_from(_OPS), small, small, small), min_size=2, max_size=14).map(tuple)


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    """Limits in one to four units, from one token to plenty."""
    counts = st.one_of(st.integers(1, 300), st.sampled_from([30, 100, 300, 1000, 3000]))
    sizes: dict[str, Any] = {
        "tokens": counts,
        "generated_tokens": counts,
        "verifier_tokens": counts,
        "verifier_calls": st.integers(1, 40),
        "samples": st.integers(1, 40),
        "requests": st.integers(1, 20),
        "flops": st.sampled_from([1, 30, 300, 1000, 10000]),
        "usd": st.sampled_from([1e-9, 1e-7, 1e-6, 1e-5]),
        "seconds": st.sampled_from([0.5, 2.0, 30.0]),
    }
    units = draw(st.sets(st.sampled_from(sorted(sizes)), min_size=1, max_size=3))
    return Budget(**{unit: draw(sizes[unit]) for unit in sorted(units)})
