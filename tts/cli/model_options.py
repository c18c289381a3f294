"""Options that name a model and its settings, which `solve`, `sample`, `run`, `doctor` and `models add` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tts.models.registry import ModelRecord

ModelName = Annotated[
    str | None, typer.Option("--model", help="A name of `tts models`, a folder, a Hub name, or a name on the server; else pocket.")
]
Url = Annotated[str | None, typer.Option("--url", help="A server that runs the model; without --model the only one it serves.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--model-option", metavar="KEY=VALUE", help="A field of the model's record or an option of its backend: usd_out=0.60/M."),
]
KeyFrom = Annotated[
    str | None, typer.Option("--key-from", metavar="VARIABLE", help="The environment variable that holds the server's key.")
]


def settings_of(texts: Sequence[str] | None, **options: Any) -> dict[str, Any]:
    """Return the settings of a model that the command line gives.

    Args:
        texts: "KEY=VALUE" each. options: of the backend, by name; None: not given.

    Raises:
        ConfigError: a text has another form, or a setting is given twice.
    """
    from tts.errors import ConfigError
    from tts.models.registry import ModelRecord
    from tts.models.settings import from_texts

    given = from_texts(ModelRecord, texts or ())
    named = {name: value for name, value in options.items() if value is not None}
    for name in named:
        if name in given:
            raise ConfigError(f"{name} is given twice, by --model-option and by an option of its own", hint="leave one out")
    return {**given, **named}


def named_model(model: str | None, url: str | None, settings: dict[str, Any]) -> ModelRecord | str | None:
    """Return what `Solver` takes as a model: its record where there are settings, else its name.

    Raises:
        ConfigError: the model is unknown, or a setting is not valid.
    """
    from tts.models import registry
    from tts.solver.model_cache import DEFAULT_MODEL

    if not settings:
        return model
    return registry.resolve(model or (DEFAULT_MODEL if url is None else ""), url, settings)
