"""`tts workspace`: what searches over repositories left behind."""

from __future__ import annotations

import typer

from tts.cli.boundary import within_boundary

workspace = typer.Typer(help="Clean up after searches over repositories.", no_args_is_help=True)


@workspace.command("clean")
@within_boundary
def clean() -> None:
    """Remove states and forks of processes that were killed. Those of running processes stay."""
    from tts.backends.workspace.store import clean as clean_stores

    for store in (removed := clean_stores()):
        typer.echo(f"removed {store}")
    typer.echo(f"{len(removed)} workspace{'' if len(removed) == 1 else 's'} removed")
