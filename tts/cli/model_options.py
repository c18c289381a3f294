"""Options that name a model and its settings.

The commands `solve`, `sample`, `run`, `doctor` and `models add` share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tts.models.registry import ModelRecord

ModelName = Annotated[
    str | None,
    typer.Option("--model", help="A name of `tts models`, a folder, a Hub name, or a name on the server; else pocket."),
]
Url = Annotated[
    str | None, typer.Option("--url", help="A server that runs the model; without --model the only one it serves.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--model-option",
        metavar="KEY=VALUE",
        help="A field of the model's record or an option of its backend: usd_out=0.60/M, rpm=60, probe=never, "
        "key_variable=MY_KEY, extra_body=JSON.",
    ),
]


def settings_of(texts: Sequence[str] | None, **fields: Any) -> dict[str, Any]:
    """Return a model's settings from options of the command line.

    Args:
        texts: The texts of --model-option, each "KEY=VALUE"; None: not given.
        fields: Other settings, by name; None: not given.

    Raises:
        ConfigError: a text has another form, or a setting is given twice.
    """
    from tts.errors import ConfigError
    from tts.models.settings import from_texts

    from_option = from_texts(texts or ())
    named_options = {name: value for name, value in fields.items() if value is not None}
    for name in named_options:
        if name in from_option:
            raise ConfigError(
                f"{name} is given twice, by --model-option and by an option of its own", hint="leave one out"
            )
    return {**from_option, **named_options}


def named_model(model: str | None, url: str | None, settings: dict[str, Any]) -> ModelRecord | str | None:
    """Return a model as `Solver` takes it: its record where there are settings, else its name.

    Raises:
        ConfigError: the model is unknown, or a setting is not valid.
    """
    from tts.models import registry
    from tts.solver.model_cache import DEFAULT_MODEL

    if not settings:
        return model
    default_name = DEFAULT_MODEL if url is None else ""  # a server may run only one model, without a name here
    return registry.resolve(model or default_name, url, settings)
