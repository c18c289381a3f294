"""Errors in the form of the API that a request came by."""

from __future__ import annotations

from starlette.responses import Response

from tts.serve.failures import ApiError, JsonReply
from tts.serve.wire import messages


def error_reply(error: ApiError, path: str) -> Response:
    """Return the reply to a request that is refused or failed.

    Args:
        error: The error.
        path: The path of the request.
    """
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        more = {"www-authenticate": "Bearer"} if error.status == 401 else {}
        return JsonReply(messages.error_body(error, ""), error.status, {**error.headers(), **more})
    return error.response()
