"""Errors in the form of the API that a request came by."""

from __future__ import annotations

from starlette.responses import Response

from tts_addons.gateway.failures import ApiError, JsonReply
from tts_addons.gateway.wire import messages


def is_messages(path: str) -> bool:
    """Return whether a path is of the API of Messages."""
    return path == "/v1/messages" or path.startswith("/v1/messages/")


def error_reply(error: ApiError, path: str, number: str) -> Response:
    """Return the reply to a request that was refused or has failed, in the form of its API.

    Args:
        error: The error.
        path: The path of the request.
        number: The number of the request.
    """
    body = messages.error_body(error, number) if is_messages(path) else error.body()
    return JsonReply(body, error.status, error.headers())
