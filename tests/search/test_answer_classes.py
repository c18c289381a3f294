"""Classes of equal answers: by keys where the task has them, off the event loop where reading takes long, and never
past the time.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from tests.support.guard import LIMIT_S
from tts.backends.base import StopCondition
from tts.backends.text.stops import StopScanner
from tts.budget.account import Account
from tts.budget.budget import Budget
from tts.randomness import generator
from tts.search.answers import Answers, Candidates, votes_of
from tts.search.stop_rules.entropy import Entropy, answer_entropy
from tts.search.stop_rules.posterior import Posterior, overtaking_probability
from tts.tasks import extraction
from tts.tasks.base import Task, keyed_task
from tts.tasks.math import MathTask
from tts.tasks.symbolic import SymbolicChecker
from tts.tasks.text import TextTask
from tts.types import Candidate, Trajectory


def path(text: str, node: int = 0) -> Trajectory:
    return Trajectory(None, text, (), (), "finished", 0, node, 1, 1)


def classes(task: Task, texts: Sequence[str], seconds_left: Callable[[], float | None] = lambda: None) -> Answers:
    answers = Answers(task, seconds_left)
    asyncio.run(answers.add([path(text, node) for node, text in enumerate(texts)]))
    return answers


def test_answers_with_keys_are_compared_with_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: MathTask, a: str, b: str) -> bool:
        raise AssertionError("a pair was compared")

    monkeypatch.setattr(MathTask, "decide", refuse)
    monkeypatch.setattr(MathTask, "equivalent", refuse)
    found = classes(MathTask(), [rf"\boxed{{{number % 1500}}}" for number in range(3000)])
    assert found.count() == 1500
    assert found.answer_of(path("", 2999))[1] == 1499


def test_what_a_class_overrides_is_asked() -> None:
    class Parity(TextTask):
        def equivalent(self, a: str, b: str) -> bool:
            return int(a) % 2 == int(b) % 2

        def decide(self, a: str, b: str) -> bool | None:
            return None

    class Folded(TextTask):
        def canonical(self, answer: str) -> str:
            return answer[:1]

    assert keyed_task(Parity()) is None
    assert classes(Parity(), ["1", "2", "3", "4"]).count() == 2
    assert keyed_task(Folded()) is not None
    assert classes(Folded(), ["ab", "ac", "b"]).count() == 2


def test_many_pairs_are_not_compared_beyond_the_time() -> None:
    class Pairs(TextTask):
        def canonical(self, answer: str) -> str:
            return answer

        def equivalent(self, a: str, b: str) -> bool:
            return False

        def decide(self, a: str, b: str) -> bool | None:
            seen.append((a, b))
            return False

    seen: list[tuple[str, str]] = []
    left = iter([10.0] * 302 + [0.0] * 400)  # it is looked at for each text, and within the pairs of a text with many
    found = classes(Pairs(), [f"{number}" for number in range(300)], lambda: next(left))
    assert found.count() == 300
    assert found.timed_out
    assert max(int(a) for a, b in seen if b == "299") == 198, "what is behind the look at the time is not compared"


def test_a_guard_that_ends_a_comparison_is_told_and_the_answer_stands_alone() -> None:
    hanging = [sys.executable, "-c", "import time\nprint('{\"ready\": true}', flush=True)\ninput()\ntime.sleep(60)"]
    task = MathTask(checker=SymbolicChecker(command=hanging, time_limit_s=0.2, num_workers=1))
    found = classes(task, [r"\boxed{x+x}", r"\boxed{2x}", r"\boxed{x+x}", r"\boxed{5}"])
    assert [found.answer_of(path("", node))[1] for node in range(4)] == [0, 1, 0, 2]
    assert found.timed_out


class Slow(Task):
    """Extraction of a long text takes as long as the test; it notes the threads that it runs in."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.going = threading.Event()

    def extract(self, text: str) -> str | None:
        self.threads.append(threading.current_thread())
        if len(text) > 20_000:
            self.going.wait(LIMIT_S)
        return text[:1]


def test_a_long_text_is_read_off_the_loop_and_given_up_when_the_time_is_over() -> None:
    task = Slow()
    found = classes(task, ["a", "b" * 30_000, "c"], lambda: 0.2)
    task.going.set()
    assert [found.answer_of(path("", node)) for node in range(3)] == [("a", 0), (None, None), ("c", 1)]
    assert found.timed_out
    assert [thread is threading.main_thread() for thread in task.threads] == [True, False, True]


def test_after_the_time_only_what_was_on_its_way_is_read() -> None:
    found = classes(TextTask(), ["word " * 2000] * 100, lambda: 0.0)
    read = [found.answer_of(path("", node))[0] is not None for node in range(100)]
    assert read == [True] * 50 + [False] * 50
    assert found.timed_out


def candidates(kinds: Sequence[int | None]) -> Candidates:
    made = Candidates()
    for place, kind in enumerate(kinds):
        made.append(Candidate(path("", place), None if kind is None else str(kind), kind, place, 0, {}, math.nan))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_votes_are_counted_as_they_come(seed: int) -> None:
    rng = generator(seed, 0, "votes")
    kinds = [None if kind == 7 else int(kind) for kind in rng.integers(0, 8, 60)]
    growing = candidates([])
    for place, candidate in enumerate(candidates(kinds)):
        growing.append(candidate)
        count = Counter(kind for kind in kinds[: place + 1] if kind is not None)
        most = [*sorted(count.values(), reverse=True), 0, 0]
        votes = votes_of(growing)
        assert (votes.first, votes.second, votes.total) == (most[0], most[1], count.total())
        assert votes.entropy == pytest.approx(answer_entropy(list(count.values())), abs=1e-12)
        assert votes.answer is None or count[int(votes.answer)] == most[0]
        for rule in (Posterior(), Entropy()):
            assert rule.should_stop(growing) == rule.should_stop(list(growing))


@pytest.mark.parametrize(("first", "second"), [(600, 450), (700, 690), (800, 300), (1000, 1)])
def test_many_votes_are_overtaken_as_few_are(first: int, second: int) -> None:
    tosses = first + second + 1
    exact = sum(math.comb(tosses, heads) for heads in range(second + 1)) / 2**tosses
    assert overtaking_probability(first, second) == pytest.approx(exact, rel=1e-9)


MARKS = (
    "answer is",
    "the ",
    " A:",
    "Answer:",
    "####",
    "#",
    "**",
    "*",
    " ",
    "\n",
    ".",
    "$",
    "\\",
    "\\(",
    "\\)",
    "5",
    "\\boxed{",
    "}",
    "{",
)


@pytest.mark.parametrize("seed", range(40))
def test_a_text_that_is_read_in_pieces_is_read_as_a_whole_is(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = generator(seed, 0, "pieces")
    texts = ["".join(MARKS[int(mark)] for mark in rng.integers(0, len(MARKS), 14)) for _ in range(50)]
    whole = [(extraction.final_answer(text), extraction.clean(text)) for text in texts]
    monkeypatch.setattr(extraction, "_PIECE", 7)
    monkeypatch.setattr(extraction, "_LONGEST", 40)
    assert [(extraction.final_answer(text), extraction.clean(text)) for text in texts] == whole


def test_a_search_ends_early_enough_for_its_selection() -> None:
    now = [0.0]
    account = Account(Budget(seconds=10), clock=lambda: now[0], started=0.0)
    account.keep_for_closing(0.4)
    assert (account.deadline, account.seconds_left) == (9.6, 9.6)
    account.keep_for_closing(5)
    assert account.deadline == 9.0
    account.keep_for_closing(0)
    assert account.seconds_left == 10


def test_a_text_of_many_paragraphs_is_asked_about_seldom_and_a_short_one_at_each() -> None:
    asked: list[int] = []

    def finished(text: str) -> bool:
        asked.append(len(text))
        return False

    def asks(text: str) -> list[int]:
        asked.clear()
        StopScanner(StopCondition(("\n\n",), at_step=False, finished=finished), "", "").feed(text)
        return list(asked)

    assert asks("ab\n\n" * 200) == list(range(4, 801, 4))
    few = asks("a\n\n" * 100_000)
    assert few[: 65_536 // 3] == list(range(3, 65_536, 3))
    assert len(few) < 65_536 // 3 + 3 * 256
