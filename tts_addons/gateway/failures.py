"""Errors in the form that clients of the OpenAI API read.

They have a message, type, param, code, and whether a retry can help.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from tts.errors import CapabilityError, ConfigError, EngineError, MissingDependency, PromptTooLong, TTSError

_LONGEST = 500  # characters of a message
_LONGEST_RETRY_S = 60.0  # for which clients wait by themselves; a later renewal is a person's to wait for
_RETRY_S = 1.0  # where the busy server of a model names no time
# status, OpenAI's type of error and code, by the kind of an `EngineError`; other kinds give a 502
_UPSTREAM = {
    "RateLimited": (429, "rate_limit_error", "model_rate_limited"),
    "QuotaExceeded": (429, "insufficient_quota", "model_quota_exceeded"),
    "Unavailable": (503, "server_error", "model_unavailable"),
    "TimedOut": (504, "server_error", "model_timed_out"),
    "ConnectionFailed": (503, "server_error", "model_unavailable"),
}
_MAY_RETRY = ("RateLimited", "Unavailable", "ConnectionFailed")
_REFUSALS = (400, 413, 422)  # statuses by which a model's server refuses one request
_REFUSED = re.compile(r"(?:Refused|ContentFilter): (?:status (\d{3}): )?(.*)", re.DOTALL)
_FILTER = re.compile(r"content.?(?:filter|policy|management)|moderation|withheld", re.IGNORECASE)
# the context, and the length of the prompt, in the words of servers
_BOUND = re.compile(r"(?:<=|>) ?(\d{1,12})\b")
_CONTEXT = re.compile(
    r"(?:context|maximum|limit|allowed|window|holds)\D{0,40}?(\d{1,12})\b|\b(\d{1,12})(?: tokens?)? max"
)
_NO_COUNTS = re.compile(r"(?<!\w)'[^']*'(?!\w)|status \d+|(?<=\d),(?=\d{3})")  # names, statuses and separators
_PRIVATE = re.compile(r"\S*(?:[/\\@]|\w\.\w|:\d)\S*")  # words that may be paths, urls, hosts and addresses


class ApiError(Exception):
    """A request that is refused or failed.

    Args:
        status: The status of the HTTP reply.
        message: One line: argument, value, rule and cure.
        kind: OpenAI's type of error.
        param: The field, as "messages[0].content".
        code: The name of the error for programs.
        retry_s: The seconds after which a retry may succeed; None: a retry does not help.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.limit_headers: Mapping[str, str] = {}  # the remaining amounts of an account whose limit is the reason
        if len(message) > _LONGEST:  # the middle repeats a text of the client, and the end has the cure
            message = f"{message[: _LONGEST - 152]} … {message[-149:]}"
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_s = retry_s

    def body(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def headers(self) -> Mapping[str, str]:
        """Return the headers that state whether and when a client shall retry; openai-python reads all three."""
        may_retry = self.retry_s is not None and self.retry_s <= _LONGEST_RETRY_S
        headers = {**self.limit_headers, "x-should-retry": "true" if may_retry else "false"}
        if self.retry_s is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_s)))
            headers["retry-after-ms"] = str(round(self.retry_s * 1000))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


def refuse_field(param: str, fault: str, code: str = "invalid_value") -> ApiError:
    """Return the refusal of a field of a request; the fault goes on after the field's name."""
    return ApiError(400, f"{param} {fault}", param=param, code=code)


def too_long(param: str, found: str, most: int, cure: str = "send fewer at once") -> ApiError:
    """Return the refusal of a field that is above a limit of the operator's.

    `found` is the count, with what it counts.
    """
    return refuse_field(param, f"has {found}, but this server takes {most}; {cure}", "too_long")


class JsonReply(Response):
    """A JSON response without NaN, which is not JSON."""

    media_type = "application/json"

    def __init__(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(
            json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode(), status, headers
        )


def server_refusal(failure: Exception | None, param: str | None = None) -> ApiError | None:
    """Return the refusal of one request by the server of a model; None: the failure is of another kind.

    The client gets the server's reason without words that may name paths, urls and hosts.

    Args:
        failure: The failure of the request.
        param: The field with the prompt, where it is known.
    """
    if not isinstance(failure, EngineError) or failure.kind not in ("NoRoom", "Refused", "ContentFilter"):
        return None
    if failure.kind == "NoRoom":
        return _no_room(failure.cause, param)
    found = _REFUSED.search(failure.cause)
    status = int(found[1] or _REFUSALS[0]) if found else 0
    if found is None or status not in _REFUSALS:
        return None
    code = "content_filter" if _FILTER.search(found[2]) else "model_refused"
    return ApiError(status, f"the model's server refused the request: {_PRIVATE.sub('…', found[2])}", code=code)


def _no_room(cause: str, param: str | None) -> ApiError:
    """Return the refusal of a prompt that does not fit the context, in the words that clients compare.

    The numbers are those of the cause, the words of a server or of a check. Names in it may have numbers too.
    """
    text = _PRIVATE.sub("", _NO_COUNTS.sub("", cause))
    found = _BOUND.search(text) or _CONTEXT.search(text)
    context = int(found[found.lastindex or 0]) if found else 0
    longest = max(map(int, re.findall(r"\b\d{1,12}\b", text)), default=0)
    message = "prompt is too long: it and its answer do not fit the context of the model; shorten it, or ask for less"
    if 0 < context < longest:
        message = f"prompt is too long: {longest} tokens > {context} maximum"
    return ApiError(400, message, param=param, code="context_length_exceeded")


def api_error(failure: Exception, param: str | None = None) -> ApiError:
    """Return the error that a client gets for a failure.

    Only the caller's mistakes are quoted, since other messages may name paths and servers. A server's refusal of one
    request is such a mistake.

    Args:
        failure: The failure of a request.
        param: The field with the caller's mistake, where it is known.
    """
    if isinstance(failure, ApiError):
        return failure
    if isinstance(failure, PromptTooLong):
        return _no_room(failure.cause, param or "messages")
    if isinstance(failure, CapabilityError):
        return ApiError(400, str(failure), param=param, code="unsupported")
    if isinstance(failure, ConfigError):
        return ApiError(400, str(failure), param=param, code="invalid_value")
    if isinstance(failure, MissingDependency):
        return ApiError(501, str(failure), kind="server_error", param=param, code="not_installed")
    if (refusal := server_refusal(failure, param)) is not None:
        return refusal
    if isinstance(failure, EngineError):
        status, kind, code = _UPSTREAM.get(failure.kind, (502, "server_error", "model_failed"))
        retry_s = failure.retry_s or _RETRY_S if failure.kind in _MAY_RETRY else None
        return ApiError(
            status,
            f"the model failed; the server's log has the reason ({failure.kind})",
            kind=kind,
            code=code,
            retry_s=retry_s,
        )
    if isinstance(failure, TTSError):
        return ApiError(
            500, f"the search failed with a {type(failure).__name__}", kind="server_error", code="search_failed"
        )
    return ApiError(
        500, "the server failed on this request; its log has the reason", kind="server_error", code="internal_error"
    )
