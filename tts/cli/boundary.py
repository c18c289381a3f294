"""The one place where an exception becomes a line for people and an exit code."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

from tts._core.display import one_visible_line, visible
from tts.errors import TROUBLES, ConfigError, MissingDependency, TTSError

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130
_NOTED = ("tts.servers", "tts.tasks", "tts.runs")  # loggers whose lines are notes of every command
_warned: set[str] = set()  # by the command that runs
_HELP = "its options, with what each takes, are listed by the same command with --help"

Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


@contextmanager
def boundary(*, debug: bool) -> Generator[None]:
    """Turn errors of a command into one line, a hint and an exit code, and each warning into a line.

    Raises:
        typer.Exit: 2 for a mistake of the caller's, 1 for any other failure and where the output is closed, 130 for
        Ctrl-C.
    """
    try:
        with warnings.catch_warnings(), ExitStack() as note_handlers:
            _warned.clear()
            for logger_name in _NOTED:
                note_handlers.enter_context(_log(logger_name, _Notes(), logging.INFO))
            if not debug:
                warnings.showwarning = lambda message, *_, **__: warn(str(message))
            yield
        sys.stdout.flush()
    except (typer.Exit, typer.Abort):
        raise
    except BrokenPipeError:
        # else the interpreter fails to flush standard output at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        _line("error", "interrupted", typer.colors.RED)
        raise typer.Exit(INTERRUPTED) from None
    except Exception as failure:  # noqa: BLE001 - the boundary
        report(failure, debug=debug)
        raise typer.Exit(MISTAKE if isinstance(failure, ConfigError | MissingDependency) else FAILED) from None


def within_boundary(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with one more option, --debug, that runs within `boundary`."""
    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug)

    @functools.wraps(command)
    def run(*, debug: bool, **arguments: Any) -> None:
        with boundary(debug=debug):
            command(**arguments)

    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # pyright: ignore[reportAttributeAccessIssue]
    return run


@contextmanager
def raise_at_sigterm(end: Callable[[int], BaseException]) -> Generator[None]:
    """Raise `end(number of the signal)` when the process gets SIGTERM within the block."""

    def stop(number: int, _: object) -> None:
        raise end(number)

    previous_handler = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


class _Notes(logging.Handler):
    """Writes what the library logs to standard error, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        if record.levelno >= logging.WARNING:
            warn(record.getMessage())
        else:
            _line("note", record.getMessage(), typer.colors.CYAN)


@contextmanager
def _log(name: str, handler: logging.Handler, level: int | str) -> Generator[None]:
    """Within the block, pass a logger's records of at least a level to a handler."""
    logger = logging.getLogger(name)
    previous_level = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(previous_level)
        logger.removeHandler(handler)


class LogLevel(StrEnum):
    """The least severe level that is written to the log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def write_log(level: LogLevel) -> AbstractContextManager[None]:
    """Within the block, write the library's log to standard error.

    Loggers whose records `boundary` writes as notes are left out.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(lambda record: record.name not in _NOTED)
    return _log("tts", handler, level.name)


def report(failure: BaseException, *, debug: bool) -> None:
    """Write an error to standard error: its cause and, if it has one, its hint.

    With `debug` the traceback of the error is written first.
    """
    if debug:
        typer.echo(visible("".join(traceback.format_exception(failure))), err=True, nl=False)
    if isinstance(failure, TTSError):
        cause, hint, unexpected = failure.cause, failure.hint, failure.__cause__
        if not hint and isinstance(failure, ConfigError):
            hint = _HELP
    else:
        text, kind = str(failure), type(failure).__name__
        cause, hint, unexpected = f"{kind}: {text}" if text else kind, "", failure
    is_foreign = unexpected is not None and not isinstance(unexpected, TTSError)
    if not hint and not debug and is_foreign:
        hint = "add --debug to see where it was raised"
    if not hint and isinstance(failure, TTSError):
        hint = f"see {TROUBLES}"
    _line("error", cause, typer.colors.RED)
    if hint:
        _line("hint", hint, typer.colors.CYAN)


def warn(text: str) -> None:
    """Write a warning to standard error, unless this command has written it."""
    if text not in _warned:
        _warned.add(text)
        _line("warning", text, typer.colors.YELLOW)


def _line(label: str, text: str, colour: str) -> None:
    typer.echo(f"{typer.style(f'{label}:', fg=colour, bold=True)} {one_visible_line(text)}", err=True)
