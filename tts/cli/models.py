"""`tts models`: the known models, and how to get those that are not here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts.cli.boundary import Debug, boundary

if TYPE_CHECKING:
    from tts.models.registry import ModelRecord


def models(*, debug: Debug = False) -> None:
    """List the known models. Local folders and Hub names (organisation/model) work beside them; one that scores serves another."""
    with boundary(debug=debug):
        from rich import box
        from rich.table import Table

        from tts.cli.terminal import output
        from tts.models import registry

        table = Table(box=box.ROUNDED)
        for title in ("model", "does", "backend", "parameters", "licence", "here"):
            table.add_column(title, justify="right" if title == "parameters" else "left", overflow="fold", no_wrap=title == "model")
        for name in registry.names():
            record = registry.get(name)
            size = "none" if record.source == "none" else "unknown" if record.parameters is None else scaled(record.parameters)
            table.add_row(
                name, "scores" if record.readout else "writes", record.backend, size, record.licence or "unknown", presence(record)
            )
        output().print(table)


def presence(record: ModelRecord) -> str:
    """Return "present", or the command that gets the model."""
    from tts.errors import ConfigError
    from tts.models.registry import locate

    try:
        locate(record)
    except ConfigError as missing:
        return missing.hint
    return "present"


def scaled(count: int) -> str:
    """Return a count as people say it: 134.5 M."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return str(count)
