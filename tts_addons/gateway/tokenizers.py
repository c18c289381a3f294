"""`POST /tokenize`, `POST /detokenize` and `GET /tokenizer_info`, as vLLM's server has them.

Programs such as lm-eval count tokens by these routes. A request that names no model gets the first one of the
configuration.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tts.backends.base import Backend
from tts.backends.metadata import Tokenizer, metadata_of
from tts.errors import CapabilityError, quote
from tts_addons.gateway.bodies import read_body, read_in_turn
from tts_addons.gateway.failures import JsonReply, api_error, refuse_field, too_long
from tts_addons.gateway.gateway import Gateway
from tts_addons.gateway.wire.chat import ChatMessage, history_of
from tts_addons.gateway.wire.request import MOST_VALUES, BodyPart, parse_json, validate_body


class TokenizeBody(BodyPart):
    """A text, or messages that the model's template renders.

    `add_special_tokens` states whether the tokenizer adds its special tokens to a text.
    """

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool = True
    return_token_strs: bool | None = None


class DetokenizeBody(BodyPart):
    """Tokens of a model."""

    model: str | None = None
    tokens: list[int]


async def tokenize(request: Request) -> Response:
    """Return the tokens of a text or of messages."""
    raw = await read_body(request)
    body = await read_in_turn(request, lambda: validate_body(TokenizeBody, parse_json(raw)))
    if (body.prompt is None) == (body.messages is None):
        raise refuse_field("prompt", "or messages must be given, and not both")
    gateway: Gateway = request.app.state.gateway
    backend, tokenizer = await _tokenizer(gateway, body.model)
    messages = None if body.messages is None else history_of(body.messages, gateway.config.limits).messages()
    size, max_characters = len(body.prompt or ""), gateway.config.limits.characters
    if size > max_characters:
        raise too_long("prompt", f"{size} characters", max_characters)
    return JsonReply(await gateway.run_in_thread(request.state.client, _tokenize, body, messages, backend, tokenizer))


def _tokenize(body: TokenizeBody, messages: Any, backend: Backend, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the reply of `/tokenize`; it is about the messages, if there are any, or else about the text."""
    try:
        if messages is not None:
            ids = tokenizer.prompt(messages)
        elif not body.prompt:
            ids = ()
        elif body.add_special_tokens:
            ids = tokenizer.prompt(body.prompt)
        else:
            ids = tokenizer.text(body.prompt)
        token_texts = [tokenizer.write((token,)) for token in ids] if body.return_token_strs else None
    except Exception as failure:
        raise api_error(failure, "prompt" if messages is None else "messages") from failure
    return {"count": len(ids), "max_model_len": backend.context, "tokens": list(ids), "token_strs": token_texts}


async def detokenize(request: Request) -> Response:
    """Return the text of tokens."""
    gateway: Gateway = request.app.state.gateway
    raw, most = await read_body(request), MOST_VALUES + gateway.config.limits.characters
    body = await read_in_turn(request, lambda: validate_body(DetokenizeBody, parse_json(raw, most)))
    size, max_tokens = len(body.tokens), gateway.config.limits.characters
    if size > max_tokens:
        raise too_long("tokens", f"{size} tokens", max_tokens)
    _backend, tokenizer = await _tokenizer(gateway, body.model)
    return JsonReply({"prompt": await gateway.run_in_thread(request.state.client, _detokenize, body.tokens, tokenizer)})


def _detokenize(tokens: list[int], tokenizer: Tokenizer) -> str:
    """Return the text of tokens.

    Raises:
        ApiError: an id is out of range, or the tokenizer refuses the tokens.
    """
    for token in tokens:
        if not 0 <= token < 2**31:
            raise refuse_field("tokens", f"has {quote(token)}, which is the id of no token")
    try:
        return tokenizer.write(tokens)
    except Exception as failure:
        raise api_error(failure, "tokens") from failure


async def tokenizer_info(request: Request) -> Response:
    """Describe a model's tokenizer; `?model=` names the model."""
    backend, tokenizer = await _tokenizer(request.app.state.gateway, request.query_params.get("model"))
    return JsonReply({**tokenizer.special(), "model_max_length": backend.context})


async def _tokenizer(gateway: Gateway, name: str | None) -> tuple[Backend, Tokenizer]:
    """Return a model's backend and its tokenizer; without a name, those of the first model."""
    if name is None:
        name = next(iter(gateway.offers.by_name))
    offer = gateway.offers.get(name)
    with gateway.offers.servers[offer.model].borrow() as loan:
        backend = await asyncio.to_thread(gateway.cache.backend, loan.records["policy"])
    tokenizer = metadata_of(backend).tokenizer
    if tokenizer is None:
        raise api_error(
            CapabilityError(
                f"the tokenizer of {offer.model!r} is not known here: the model runs on the backend {backend.name!r}",
                hint="ask its own server",
            ),
            "model",
        )
    return backend, tokenizer


ROUTES = (
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
    Route("/tokenizer_info", tokenizer_info, methods=["GET"]),
)
