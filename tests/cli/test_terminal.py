from __future__ import annotations

import io
import signal

import pytest
from rich.console import Console

from tts._core.display import one_visible_line, visible
from tts.cli.boundary import raise_at_sigterm, report
from tts.cli.terminal import ProgressLine, output, progress, table
from tts.solver.live import Event
from tts.types import Problem


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\tb\r", r"a\tb\r"),
        ("é 漢 [bold]", "é 漢 [bold]"),
        ("\udcff", r"\udcff"),
        ("a\nb", "a\nb"),
    ],
)
def test_nothing_that_a_terminal_obeys_is_written(text, shown):
    assert visible(text) == shown


def test_one_line_is_one_line():
    assert one_visible_line("a\nb\r\nc\u2028d") == "a b c d"


def test_an_answer_cannot_colour_the_terminal_or_the_markup(solve, monkeypatch):
    from tts.tasks.arithmetic.task import ArithmeticTask

    monkeypatch.setattr(ArithmeticTask, "extract", lambda *_: "[red]5[/red]\x1b[31m")
    shown = solve("3 + 4", "--strategy", "single").stdout
    assert r"[red]5[/red]\x1b[31m" in shown


def drawn(line: ProgressLine, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(line)
    return console.file.getvalue()[2:]


def test_the_progress_line():
    now = iter([10.0, 11.5, 12.0])
    line = ProgressLine(clock=lambda: next(now))
    assert drawn(line) == "starting · 1.5 s\n"
    line.update(Event(Problem("3 + 4"), calls=2, tokens=1500, candidates=8, answer="7\n8"))
    assert drawn(line) == "2 calls · 1,500 tokens · 8 candidates · leading 7 8 · 2.0 s\n"


def test_the_progress_line_is_cut_to_one_line():
    line = ProgressLine(clock=lambda: 0.0)
    line.update(Event(Problem("3 + 4"), calls=2, tokens=15, candidates=8, answer="x" * 500))
    assert drawn(line, width=50).count("\n") == 1
    assert drawn(line).count("x") == 39


def test_no_answer_yet():
    line = ProgressLine(clock=lambda: 0.0)
    line.update(Event(Problem("3 + 4"), calls=1, tokens=0, candidates=0, answer=None))
    assert "leading none yet" in drawn(line)


def test_there_is_no_progress_where_nobody_looks(monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with progress() as on_event:
        assert on_event is None


def test_progress_is_taken_away_at_the_end(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress() as on_event:
        assert on_event is not None
        on_event(Event(Problem("3 + 4"), calls=1, tokens=7, candidates=1, answer="7"))
    assert "leading 7" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[1A\x1b[2K")


def test_a_process_that_is_asked_to_end_raises_and_gets_its_handler_back():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, raise_at_sigterm(lambda number: SystemExit(128 + number)):
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_cells_of_a_table_are_visible(capsys):
    shown = table("name\x1b[2J")
    shown.add_row("a\x1b[31mb\u202ec")
    output().print(shown)
    output().print("line\x9b2J")
    written = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in written)
    assert r"a\x1b[31mb\u202ec" in written


@pytest.mark.parametrize("debug", [False, True])
def test_an_error_writes_nothing_that_a_terminal_obeys(capsys, debug):
    report(RuntimeError("boom\x1b[2J\rhint: forged\u2028x"), debug=debug)
    written = capsys.readouterr().err
    assert all(c.isprintable() or c == "\n" for c in written.replace("\x1b[31m\x1b[1merror:\x1b[0m", ""))
    assert not any(line.startswith("hint: forged") for line in written.splitlines())


def test_the_end_of_what_is_written_is_below_the_line():
    line = ProgressLine(clock=lambda: 0.0)
    line.update(
        Event(Problem("3 + 4"), calls=2, tokens=15, candidates=0, answer=None, writing=f"{'a' * 200}\nthe end\x1b[31m")
    )
    first, second, rest = drawn(line, width=60).split("\n")
    assert "15 tokens" in first
    assert second.startswith("  aaa")
    assert second.endswith(r"the end\x1b[31m")
    assert len(second) < 60
    assert rest == ""
