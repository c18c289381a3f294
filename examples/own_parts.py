"""Write a part of each kind, for sums: a strategy, a stop rule, a selection, a verifier, a task, a backend.

    python examples/own_parts.py

Asked "3 + 4 - 2", the model writes "3 + 4 = 7", "7 - 2 = 5", "A: 5". Each result is wrong with a known probability.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import tts
from tts.backends.base import Caps, Finish, Reply, RowSet, Sample, SampleRequest
from tts.backends.text.stops import StopScanner
from tts.backends.toy.language import read_sum
from tts.errors import EngineError
from tts.models.registry import ModelRecord
from tts.randomness import uniform
from tts.search.ends import StopDecision
from tts.search.parts import Selected
from tts.tasks.framing import Framing
from tts.types import Candidate, Problem, Prompt, Trajectory
from tts.verifiers.base import Calls, StepScores


@dataclass(frozen=True)
class Halving(tts.Strategy):
    """Starts with several paths, and keeps the better half after each step. Repeats this for a number of rounds."""

    width: int = 8
    rounds: int = 4

    def needs(self) -> tts.Needs:
        return tts.Needs(capabilities=("steps",), verifiers=("main",))

    async def run(self, search: tts.Search) -> Sequence[Candidate]:
        # `expand` raises SearchEnded where the budget pays no further row; the solver catches it
        for _ in range(self.rounds):
            live, n = [search.root], self.width
            while live:
                children = [child for siblings in await search.expand(live, n=n) for child in siblings]
                scores = await search.score(children)
                kept = [children[i] for i in np.argsort(-scores, kind="stable")[: max(1, len(children) // 2)]]
                for t in kept:
                    search.finish(t)  # a candidate, if it has ended
                live, n = [t for t in kept if t.status == "active"], 1
                search.keep(live)
        return search.candidates


@dataclass(frozen=True)
class Agreed(tts.StopRule):
    """Stops when one answer has a number of votes."""

    votes: int = 3

    def should_stop(self, candidates: Sequence[Candidate]) -> StopDecision | None:
        if not candidates or (answer := candidates[-1].answer) is None:
            return None
        same = sum(c.answer_class == candidates[-1].answer_class for c in candidates)
        return StopDecision("agreed", answer) if same >= self.votes else None


class Frequent(tts.Selection):
    """Chooses the answer of the most candidates; of equal ones, the first."""

    async def select(self, candidates: Sequence[Candidate], search: tts.Search) -> Selected:
        del search
        votes = Counter(c.answer_class for c in candidates if c.answer_class is not None)
        ranked = sorted(candidates, key=lambda c: (-votes.get(c.answer_class or 0, 0), c.index))
        answers = dict.fromkeys(c.answer_class for c in ranked if c.answer_class is not None)
        first = {c.answer_class: c.answer for c in reversed(candidates) if c.answer is not None}
        confidence = max(votes.values(), default=0) / len(candidates) if candidates else float("nan")
        return Selected(tuple(first[each] for each in answers), tuple(ranked), confidence)


class Calculator(tts.Verifier):
    """Scores each line by whether it and all lines before it are right sums."""

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        del problem
        return [StepScores(steps=self._checked(calls.task.split(t.full_text))) for t in trajectories]

    def _checked(self, lines: Sequence[str]) -> tuple[float, ...]:
        scores, right = list[float](), True
        for line in lines:
            if found := re.fullmatch(r"(-?\d+) ([+-]) (\d+) = (-?\d+)\n", line):
                first, sign, second, result = found.groups()
                right = right and int(first) + int(sign + second) == int(result)
            scores.append(float(right))
        return tuple(scores)


class Sums(tts.Task):
    """Sums of whole numbers, with a step on each line. The answer follows "A:", and 5 is the same answer as +5."""

    step_stop: tuple[str, ...] = ("\n",)
    framing = Framing(requests={"solve": ""}, tokens={"solve": 8, "step": 1})

    def extract(self, text: str) -> str | None:
        found = re.findall(r"A: ([+-]?\d+)", text)
        return found[-1] if found else None

    def canonical(self, answer: str) -> str:
        return str(int(answer)) if re.fullmatch(r"[+-]?\d+", answer) else answer


@dataclass(frozen=True)
class Place:
    """A handle: the running result, the numbers still to be added, and the text after the end of a step."""

    value: int
    changes: tuple[int, ...]
    carry: str = ""


class Adder(tts.Backend):
    """A model whose tokens are lines. With probability `error` a result is one too large, except at temperature 0."""

    caps = Caps(steps="native", fork="native", streams=True, stop_predicate=True, usage=True)

    def __init__(self, error: float = 0.1) -> None:
        self.error = error
        self.identity = f"adder {error}"  # stored results depend on it
        self.closed = False

    @classmethod
    def from_record(cls, record: ModelRecord, error: float = 0.1) -> Adder:
        """Make the backend for a model that names it by its place; `error` is an option of the record."""
        del record
        return cls(error)

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Place]]:
        replies: list[Reply[Place]] = []
        for prompt in prompts:
            text = prompt if isinstance(prompt, str) else prompt[-1].content
            self.counters.prompt_tokens += self.count(prompt)
            replies.append(Reply(Place(*read_sum(text)), self.count(prompt)))
        return replies

    def sample(self, request: SampleRequest) -> RowSet:
        if self.closed:
            raise EngineError("the backend was closed")
        rows = RowSet(request)
        for index, row in enumerate(request.rows):
            place: Place = request.handle
            value, changes = place.value, list(place.changes)
            scanner = StopScanner(request.stop, request.text, place.carry)
            finish: Finish = "length"
            tokens = 0
            while not scanner.ended and finish == "length" and tokens < row.max_tokens:
                if not changes:
                    finish, piece = "eos", f"A: {value}"
                else:
                    change = changes.pop(0)
                    wrong = (
                        request.sampling.temperature > 0
                        and uniform(row.stream, row.position + tokens, row.word) < self.error
                    )
                    result = value + change + wrong
                    piece = f"{value} {'-' if change < 0 else '+'} {abs(change)} = {result}\n"
                    value = result
                tokens += 1
                scanner.feed(piece)
            self.counters.generated_tokens += tokens
            handle = Place(value, tuple(changes), scanner.carry)
            rows.resolve(index, Sample(scanner.text, (), (), scanner.ended or finish, handle, tokens))
        return rows

    async def close(self) -> None:
        self.closed = True


def main() -> None:
    problem = "3 + 4 - 2 + 9 - 1 + 6"
    by_objects = tts.solve(
        problem,
        budget=400,
        backend=Adder(error=0.1),
        task=Sums(),
        verifier=Calculator(),
        strategy=Halving(width=16) | Agreed(votes=2) | Frequent(),
    )
    print("objects:", by_objects.answer, by_objects.stopped_by, by_objects.usage.tokens, "tokens")

    # the same parts by their places, as on the command line and in a study's file
    here = "own_parts"
    by_places = tts.solve(
        problem,
        budget=400,
        backend=f"{here}:Adder",
        task=f"{here}:Sums",
        verifier=f"{here}:Calculator",
        strategy=f"{here}:Halving(width=16) | {here}:Agreed(votes=2) | {here}:Frequent",
    )
    print("places: ", by_places.answer, by_places.stopped_by, by_places.strategy)


if __name__ == "__main__":
    main()
