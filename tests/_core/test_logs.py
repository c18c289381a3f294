"""Log lines: texts of others neither begin a line nor move a terminal's cursor; lines that repeat are counted."""

from __future__ import annotations

import io
import logging

import pytest

import tts
from tts._core.logs import RepeatLimit, get_logger

FORGED = "ERROR 2026 forged"
# what ends a line, what a terminal obeys, and what turns the order of a text round
MARKS = [
    "\n",
    "\r",
    "\r\n",
    "\x0b",
    "\x0c",
    "\x1b[2J",
    "\x7f",
    "\x85",
    "\x9b2J",
    "\u2028",
    "\u2029",
    "\u202e",
    "\u2066",
    "\0",
]


@pytest.fixture
def written():
    stream, handler = io.StringIO(), None
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    loggers = [get_logger("tts"), get_logger("tts.serve")]
    loggers[0].addHandler(handler)
    yield stream.getvalue
    loggers[0].removeHandler(handler)


def assert_unforged(log: str, lines: int | None = None) -> None:
    assert log
    assert all(c.isprintable() or c == "\n" for c in log), ascii(log)
    assert not [line for line in log.splitlines() if line.startswith(FORGED)]
    assert lines is None or len(log.splitlines()) == lines


@pytest.mark.parametrize("mark", MARKS)
def test_an_argument_of_a_record_stays_within_its_line(written, mark):
    class Odd:
        def __str__(self) -> str:
            return f"odd{mark}{FORGED}"

    logger = logging.getLogger("tts.serve")
    logger.error("%s, %d", f"text{mark}{FORGED}", 3)
    logger.error("failed: %s", ValueError(f"boom{mark}{FORGED}"))
    logger.error("%(name)s", {"name": Odd()})
    assert_unforged(written(), 3)


@pytest.mark.parametrize("mark", MARKS)
def test_a_traceback_begins_no_line_like_a_record(written, mark):
    try:
        raise ValueError(f"boom{mark}{FORGED}")
    except ValueError:
        logging.getLogger("tts.serve").exception("a request failed")
    assert_unforged(written())
    assert "Traceback" in written()


def test_an_object_that_cannot_be_written_fails_no_search(written):
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    logging.getLogger("tts.serve").error("%s", Broken())
    assert "a Broken without a text" in written()


@pytest.mark.parametrize("mark", ["\n", "\x1b[2J", "\u2028", "\u202e"])
@pytest.mark.parametrize("source", ["model", "verifier", "problem"])
def test_a_search_logs_other_peoples_texts_in_one_line(written, source, mark):
    text = f"boom{mark}{FORGED}"

    def model(ask):
        if source == "model":
            raise ConnectionError(text)
        return tts.Answer("\\boxed{3}", tokens=3)

    def verifier(problem, answer):
        if source == "verifier":
            raise ValueError(text)
        return 0.5

    name = text if source == "problem" else "p"
    try:
        tts.solve(
            tts.Problem("What?", id=name),
            tts.Budget(samples=2),
            backend=model,
            verifier=verifier,
            task="math",
            strategy="best_of_n | best",
        )
    except tts.TTSError:
        assert source != "problem"
    else:
        logging.getLogger("tts").error("%s: failed", name)  # without a failure nothing is above INFO
    assert_unforged(written())
    assert FORGED in written()


def test_equal_lines_are_counted_beyond_a_limit():
    now = [0.0]
    stream = io.StringIO()
    handler, logger = logging.StreamHandler(stream), logging.Logger("repeats")
    handler.addFilter(RepeatLimit(most=3, seconds=60, clock=lambda: now[0]))
    logger.addHandler(handler)
    for _ in range(100):
        logger.error("no file is free")
    logger.error("another %s", "fault")
    now[0] = 61.0
    logger.error("no file is free")
    logger.error("another %s", "fault")
    lines = stream.getvalue().splitlines()
    assert lines == [
        *["no file is free"] * 3,
        "another fault",
        "no file is free (and 97 times more before)",
        "another fault",
    ]


def test_the_text_of_an_error_is_one_line_whatever_others_wrote() -> None:
    def fails(ask: tts.Ask) -> tts.Answer:
        raise ConnectionError("boom\nERROR forged \x1b[2J\r\u2028ERROR forged\x85")

    with pytest.raises(tts.TTSError) as caught:
        tts.solve("3 + 4", tts.Budget(samples=2), backend=fails, task="math")
    assert str(caught.value).isprintable()
    assert "boom ERROR forged \\x1b[2J" in str(caught.value)
    assert caught.value.cause.isprintable()
    assert tts.TTSError("a", hint="b\nc").hint == "b c"
