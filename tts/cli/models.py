"""`tts models`: the known models, how to get those that are not here, and the user's own records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tts.cli.boundary import within_boundary
from tts.cli.model_options import Settings, settings_of
from tts.cli.terminal import output, table

if TYPE_CHECKING:
    from tts.models.registry import ModelRecord

models = typer.Typer(help="List the known models, and keep records of your own.", invoke_without_command=True)

Price = Annotated[
    str | None, typer.Option(metavar="USD/M", help="Dollars with their unit: 0.15/M for a million tokens.")
]


@models.callback(invoke_without_command=True)
@within_boundary
def list_models(context: typer.Context) -> None:
    """List the known models.

    Local folders and Hub names (organisation/model) work beside them. A model that scores serves another one.
    """
    if context.invoked_subcommand is not None:
        return
    from tts.models import registry

    listing = table("model", "does", "backend", "parameters", "licence", "here", whole="model", numbers=["parameters"])
    for name in registry.names():
        record = registry.get(name)
        size = "unknown" if record.parameters is None else shorten_count(record.parameters)
        if record.source == "none" and record.url is None:
            size = "none"
        listing.add_row(
            name,
            "scores" if record.readout else "writes",
            record.backend,
            size,
            record.licence or "unknown",
            presence(record),
        )
    output().print(listing)


@models.command()
@within_boundary
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What --model and studies call it.")],
    *,
    url: Annotated[str | None, typer.Option(help="The server that runs it.")] = None,
    served_as: Annotated[str | None, typer.Option(metavar="NAME", help="Its name there, if another.")] = None,
    usd_in: Price = None,
    usd_reused: Price = None,
    usd_out: Price = None,
    parameters: Annotated[str | None, typer.Option(help="Weights that a token passes, for FLOPs: 8B.")] = None,
    model_option: Settings = None,
) -> None:
    """Keep a record of a model, which every command reads. Nothing is asked of its server."""
    from tts.models import registry
    from tts.models.user_records import write_record

    prices = {"usd_in": usd_in, "usd_reused": usd_reused, "usd_out": usd_out}
    settings = settings_of(model_option, served_as=served_as, url=url, **prices, parameters=parameters)
    registry.check_own(name, settings)
    typer.echo(f"{name} is in {write_record(name, settings)}")


@models.command()
@within_boundary
def remove(name: Annotated[str, typer.Argument(metavar="NAME", help="A record of your own.")]) -> None:
    """Remove a record of your own."""
    from tts.models.user_records import remove_record

    typer.echo(f"{name} is no longer in {remove_record(name)}")


def presence(record: ModelRecord) -> str:
    """Return the place of a model, or the command that gets it.

    The place is the url of the model's server, or "present" for files that are here.
    """
    from tts.errors import ConfigError
    from tts.models.registry import locate

    if record.url is not None:
        return record.url
    try:
        locate(record)
    except ConfigError as missing:
        return missing.hint
    return "present"


def shorten_count(count: int) -> str:
    """Return a count in a short form: 134.5 M."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return str(count)
