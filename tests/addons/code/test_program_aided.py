from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.search.written import run as written
from tests.support.guard import LIMIT_S
from tests.support.runs import check_books, make_run, search_one, solve_and_show, texts_of
from tts import tasks
from tts.backends.base import StopCondition
from tts.backends.function import Answer, Ask, FunctionBackend
from tts.backends.text.stops import StopScanner
from tts.backends.toy.backend import ToyBackend
from tts.budget.budget import Budget
from tts.errors import CapabilityError, ConfigError
from tts.search.ends import Stops
from tts.search.plan import parse
from tts.search.search import Search
from tts.types import Message
from tts_addons.code.sandbox import why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
HEAD = "I compute it.\n\n"
SEEN = "\n```output\n"


def block(program: str) -> str:
    return f"```python\n{program}\n```\n"


class Writer:
    """A model that writes a block for each program in turn, then what the last output says; `babbles`: what it writes
    behind a block.
    """

    def __init__(self, programs: Sequence[str], babbles: str = "", *, ends: bool = False) -> None:
        self.programs, self.babbles, self.ends = programs, babbles, ends
        self.asked: list[Ask] = []

    def __call__(self, ask: Ask) -> Answer:
        self.asked.append(ask)
        seen = ask.text.count("```output\n")
        if seen < len(self.programs):
            text = ("" if ask.text else HEAD) + block(self.programs[seen]) + self.babbles
            return Answer(text, tokens=len(text.split()), finished=self.ends)
        told = ask.text.rpartition("```output\n")[2].partition("\n```")[0]
        return Answer(f"So it is {told}.", tokens=4)


def run(writer: Writer, plan: str = "program_aided(n=1)", budget: Any = 20_000) -> Any:
    end = solve_and_show(make_run("How much is it?", budget, plan, FunctionBackend(writer), task="text"))
    if end.search is not None:
        check_books(end.search)
    return end


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("babbles", ["", "It prints 5, I guess.\n\nSo it is 5."])
def test_the_model_goes_on_behind_what_its_program_prints(ends: bool, babbles: str) -> None:
    writer = Writer(["print(6 * 7)"], babbles, ends=ends)
    (only,) = run(writer).solution.candidates
    assert only.trajectory.full_text == HEAD + block("print(6 * 7)") + babbles.replace(
        "It prints 5, I guess.\n\nSo it is 5.", ""
    ) + ("```output\n42\n```\nSo it is 42.")


def test_its_prompt_asks_for_programs_and_else_says_what_the_task_says() -> None:
    writer = Writer(["print(1)"])
    run(writer)
    (turn,) = writer.asked[0].prompt
    assert isinstance(turn, Message)
    assert turn.content.startswith("How much is it?\n\nWhere computing helps, write a Python program")
    assert tasks.get("text").typical_tokens("program") == tasks.get("text").typical_tokens("solve")


@pytest.mark.slow
def test_each_block_runs_by_itself_up_to_the_most() -> None:
    writer = Writer(["x = 3\nprint(x)", "print(x)", "print(9)"])
    text = run(writer).solution.candidates[0].trajectory.full_text
    outputs = [part.partition("\n```")[0] for part in text.split("```output\n")[1:]]
    assert outputs == ["3", "NameError: name 'x' is not defined", "9"]
    two = Writer(["print(1)", "print(2)", "print(3)"], ends=True)
    text = run(two, "program_aided(n=1, programs=2)").solution.candidates[0].trajectory.full_text
    assert text.count("```output") == 2
    assert text.endswith(block("print(3)"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "shown"),
    [
        ("print('a' * 500)", "a" * 40),
        ("while True: pass", "1 seconds"),
        ("print('```')", "'''"),
        ("raise ValueError('no\\nsuch')", "ValueError"),
        ("x = 1", ""),
        ("import os; os.fork()", ""),
    ],
)
def test_what_is_shown_is_short_and_ends_no_block(program: str, shown: str) -> None:
    end = run(Writer([program]), "program_aided(n=1, characters=40, seconds=1)")
    told = end.solution.candidates[0].trajectory.full_text.partition("```output\n")[2].partition("\n```\n")[0]
    assert shown in told
    assert all(len(line) <= 40 for line in told.split("\n"))
    assert "```" not in told


def test_a_program_that_several_paths_write_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from tts_addons.code.verifier import Code

    ran: list[str] = []
    outcome = Code.outcome

    def counted(self: Code, program: str, *rest: Any) -> Any:
        ran.append(program)
        return outcome(self, program, *rest)

    monkeypatch.setattr(Code, "outcome", counted)
    end = run(Writer(["print(8)"]), "program_aided(n=4) | majority")
    assert len(end.solution.candidates) == 4
    assert ran == ["print(8)\n"]


def numbered() -> Any:
    """A model of which each solution runs a program of its own."""
    written = itertools.count()

    def write(ask: Ask) -> Answer:
        if "```output\n" not in ask.text:
            return Answer(HEAD + block(f"print({next(written)})"), tokens=8)
        return Answer(f"So it is {ask.text.rpartition('```output')[2].split()[0]}.", tokens=4)

    return FunctionBackend(write, concurrency=1)


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 3])
def test_different_programs_run_side_by_side_and_show_what_they_would_alone(
    monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    """Each waits until as many run as there are cores, so that the first that began is not the first to end."""
    from tts_addons.code.verifier import Code

    running, most, lock, met, outcome = 0, 0, threading.Lock(), threading.Barrier(cores, timeout=LIMIT_S), Code.outcome

    def counted(self: Code, program: str, *rest: Any) -> Any:
        nonlocal running, most
        if program == "print(0)\n":  # of the solution that is written alone, before the wave
            return outcome(self, program, *rest)
        with lock:
            running += 1
            most = max(most, running)
        met.wait()
        found = outcome(self, program, *rest)
        with lock:
            running -= 1
        return found

    monkeypatch.setattr(Code, "outcome", counted)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    end = search_one("How much is it?", Budget(samples=4), "program_aided(n=4)", numbered(), task="text")
    assert most == cores
    for c in end.solution.candidates:
        text = c.trajectory.full_text
        (number,) = re.findall(r"print\((\d+)\)", text)
        assert text.endswith(f"```output\n{number}\n```\nSo it is {number}.")
    monkeypatch.setattr(Code, "outcome", outcome)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    alone = search_one("How much is it?", Budget(samples=4), "program_aided(n=4)", numbered(), task="text").solution
    assert texts_of(alone) == texts_of(end)
    assert alone.usage.tokens == end.solution.usage.tokens


def test_output_is_charged_as_input() -> None:
    long, short = (run(Writer([f"print('word ' * {count})"])).solution.usage for count in (150, 1))
    assert long.prompt_tokens + (long.reused_tokens or 0) > short.prompt_tokens + (short.reused_tokens or 0) + 100


def test_where_it_cannot_run_it_is_refused_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts_addons.code.verifier.why_not", lambda: "it takes Linux, and this is plan9")
    writer = Writer(["print(1)"])
    end = run(writer)
    assert isinstance(end.solution, CapabilityError)
    assert "it takes Linux, and this is plan9" in str(end.solution)
    assert not writer.asked


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("program_aided(programs=0)", "programs is 0"),
        ("program_aided(seconds=0)", "seconds is 0"),
        ("program_aided(characters=0)", "characters is 0"),
        ("program_aided(sandbox='box')", "sandbox is 'box'"),
    ],
)
def test_bad_parameters_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text)


def test_with_time_alone_it_comes_to_an_answer() -> None:
    solution = run(Writer(["print(2)"]), "program_aided(n=2)", Budget(seconds=5)).solution
    assert solution.answer == solution.candidates[0].answer
    assert "So it is 2." in solution.candidates[0].trajectory.full_text


def test_a_row_that_is_cut_anywhere_ends_at_the_same_place() -> None:
    """Also inside of the stop text, where a shorter boundary of the task's begins it."""
    text = "a\n\nb\n```x\n\n\n```\nc"
    stop = StopCondition(("\n\n", "\n```\n"), at_step=True, at=("\n```\n",))
    for cut in range(len(text)):
        scanner, before = StopScanner(stop, "", ""), ""
        for place, character in enumerate(text):
            if place == cut:
                before += scanner.text
                scanner = StopScanner(stop, before, scanner.carry)
            if scanner.feed(character):
                break
        assert before + scanner.text == text[:-1], cut
        assert scanner.ended == "stop"


def test_a_row_up_to_a_text_ends_where_the_task_says_that_it_is_over() -> None:
    async def body(search: Search) -> None:
        (of,) = await search.expand([search.root], 1, Stops(("1 + 1",)))
        search.finish(of[0])

    end = written(body, ToyBackend())
    (only,) = end.solution.candidates
    assert only.trajectory.status == "finished"
    assert only.answer is not None
