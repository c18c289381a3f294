"""The commands by name, and what they share: help, version, log, and streams that can write any text."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tts.cli.boundary import LogLevel, within_boundary, write_log
from tts.cli.calibrate import calibrate
from tts.cli.compare import compare
from tts.cli.datasets import datasets
from tts.cli.doctor import doctor
from tts.cli.fit import fit
from tts.cli.models import models
from tts.cli.plot import plot
from tts.cli.replay import replay
from tts.cli.run import run as run_study
from tts.cli.runs import merge, report, runs, show
from tts.cli.sample import sample
from tts.cli.solve import Solve, solve
from tts.cli.strategies import strategies
from tts.cli.verifiers import verifiers
from tts.errors import MissingDependency
from tts.registry import find_own

app = typer.Typer(
    help="Spend inference compute where it helps: search with language models under one hard budget.",
    epilog="Exit codes: 0 a result, even if no answer was found; 1 the run failed; 2 something asked for is not "
    "valid; 130 Ctrl-C.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# beside `solve`, in the order of `tts --help`
COMMANDS: dict[str, Callable[..., None] | str] = {  # a text is the place of a command of an add-on
    "run": run_study, "runs": runs, "merge": merge, "show": show, "sample": sample,
    "import": "tts_addons.logs.command:import_samples",
    "replay": replay, "fit": fit, "calibrate": calibrate, "plot": plot, "compare": compare,
    "report": report,
    "export": "tts_addons.training.command:export",
    "strategies": strategies, "datasets": datasets, "doctor": doctor,
    "serve": "tts_addons.gateway.process.command:serve",
    "patch": "tts_addons.agents.command:patch",
}  # fmt: skip
app.command(cls=Solve)(solve)


def _add_missing(name: str, failure: MissingDependency) -> None:
    """Add the command of an add-on that is not installed, which says so."""

    @app.command(name, context_settings={"ignore_unknown_options": True}, help=f"Not installed: {failure.cause}.")
    @within_boundary
    def missing(_arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise failure


for _name, _command in COMMANDS.items():
    try:
        app.command(_name)(within_boundary(find_own(_command) if isinstance(_command, str) else _command))
    except MissingDependency as _failure:
        _add_missing(_name, _failure)
app.add_typer(models, name="models")
app.add_typer(verifiers, name="verifiers")
try:
    app.add_typer(find_own("tts_addons.agents.command:workspace"), name="workspace")
except MissingDependency as _failure:
    _add_missing("workspace", _failure)


def _version(asked: bool) -> None:  # noqa: FBT001 - the form of a typer callback
    if asked:
        from tts import __version__

        typer.echo(f"tts {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    *,
    log: Annotated[
        LogLevel | None, typer.Option("--log", help="Write the log: each search (info) or each call (debug).")
    ] = None,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options of `tts` itself, which stand before the command."""
    if log is not None:
        context.with_resource(write_log(log))


def run() -> None:
    """Run the command line. A character that a stream cannot encode is written as its escape.

    Modules in the current folder can be named as places (`module:name`), as with `python -m`.
    """
    sys.path.append(str(Path.cwd()))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="tts")
