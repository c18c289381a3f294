"""Errors of a server by kind, and the API key, which no error message shows."""

from __future__ import annotations

import json
import math
import os
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx

from tts.checks import read_text
from tts.errors import ConfigError, quote

KEY_VARIABLE, KEY_FILE_VARIABLE = "TTS_API_KEY", "TTS_API_KEY_FILE"
HOW_KEY = f"put it into the environment variable {KEY_VARIABLE}, or into a file that {KEY_FILE_VARIABLE} names"
OTHER_VARIABLE = "OPENAI_API_KEY"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_NAMES = re.compile("authorization|api[-_]?key|token|secret|cookie", re.IGNORECASE)
_NO_PAIRS: Mapping[str, str] = {}
_SECRET = 12  # characters; shorter keys may be words of a model's text, and are hidden in error messages alone
# characters of a secret that are shown at the end of an unfinished text; a longer beginning of one is withheld
_BEGUN = 6
_MOST_SAID = 300
_MOST_DETAILS = 20_000  # bytes of an error that are looked at
_MOST_HINTED_S = 7 * 86400.0  # the longest wait that is believed of an error's text
# other statuses from 500 on: "ServerError"
_BUSY = {408: "TimedOut", 425: "Unavailable", 429: "RateLimited", 503: "Unavailable"}
# words of an error's code, type or message, with the status for which each stands
_WORDS = tuple(
    (re.compile(words, re.IGNORECASE), status)
    for words, status in (
        (r"rate.?limit|too.?many|quota|exhausted|throttl|\btry again (?:later|in)\b", 429),
        ("overload|unavailable|capacity", 503),
        ("time.?d?.?out", 408),
        (r"auth(?!ors?\b)|api.?key|(?:wrong|no|bad) key|permission|forbidden", 401),
        (r"not.?found|model\b.{0,80}\bnot (?:exist|loaded)|no such model|unknown model|unexpected endpoint", 404),
        ("invalid|bad.?request|unsupported|unrecognized|not supported|context|cannot both be", 400),
    )
)
# members of an error that may hold its message, in the order in which they are shown
_MESSAGE_MEMBERS = (
    "error",
    "errors",
    "message",
    "detail",
    "msg",
    "error_msg",
    "error_message",
    "title",
    "reason",
    "raw",
    "metadata",
)
_DEEPEST, _MOST_PARTS = 4, 4  # the depth to which a message is searched, and the items of a list that are shown


_NO_ROOM = re.compile(
    r"context[ _](?:length|window|size)|n_ctx|too (?:long|large)|max_(?:completion_)?tokens|(?:prompt|input|tokens?) "
    r"(?:\w+ ){0,3}"
    r"exceeds?\b|max_new_tokens`? must be <|`?inputs`? must have less than",
    re.IGNORECASE,
)
_NOT_TAKEN = re.compile(
    r"(?:unsupported|unrecognized|unknown|unexpected|extra) (?:\w+ )?(?:parameter|argument|field|input)", re.IGNORECASE
)
_QUOTA = re.compile(
    r"insufficient[ _](?:quota|funds|balance|credits?)|exceeded your (?:current |monthly |daily )?(?:quota|usage)"
    r"|(?:usage|spend(?:ing)?|billing|credit|daily|weekly|monthly) (?:hard )?limit|quota (?:\w+ "
    r"){0,6}(?:exceeded|exhausted|reached)"
    r"|out of credits?|not enough (?:credits?|balance|funds)|credit balance|payment required|more credits",
    re.IGNORECASE,
)
# words of a limit that a wait of some seconds does not lift, though the error may state one
_LASTING = re.compile(r"insufficient|per.?(?:day|week|month)|daily|weekly|monthly|\bcredit", re.IGNORECASE)
_LONGEST_MINUTE_S = 120.0  # the longest stated wait of a limit a minute
_SPAN = re.compile(
    r"(\d{1,6}(?:\.\d{1,6})?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)(?![a-z])",
    re.IGNORECASE,
)
_AFTER = re.compile(r"\b(?:(?:re)?try(?: again)?|wait|resets?|available|retryDelay)\b[^.;\d]{0,40}", re.IGNORECASE)
_DATE = re.compile(r"\b(20\d\d-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.\d{1,9})?\s*(Z|UTC|GMT|[+-]\d\d:?\d\d)?)?")
_SCALE = {"ms": 0.001, "m": 60.0, "s": 1.0, "h": 3600.0, "d": 86400.0}


class ServerError(Exception):
    """The error of a call that got no whole reply.

    Args:
        kind: The kind of the error in one word, counted in `Solution.failures`.
        cause: The cause in one line.
        again: Whether the call cost nothing and may be sent again.
        after_s: The seconds that the server asked to wait before the next try.
        status: The status of a reply that is only an error; 0 otherwise.
    """

    def __init__(self, kind: str, cause: str, *, again: bool = False, after_s: float = 0.0, status: int = 0) -> None:
        cause = " ".join(cause.encode(errors="replace").decode().split())
        super().__init__(f"{kind}: {cause}")
        self.kind = kind
        self.cause = cause
        self.again = again
        self.after_s = after_s
        self.status = status

    def hiding(self, key: Key) -> ServerError:
        """Return the error without the key."""
        return ServerError(
            self.kind, key.hidden(self.cause), again=self.again, after_s=self.after_s, status=self.status
        )


class Key:
    """An API key, which no message, `repr` or result shows.

    Args:
        value: The key; "": there is no key.
        source: The place from which the key was read, for messages.
        headers: Further headers of each request, with secrets filled in.
        query: The query of each request, with secrets filled in.
        secrets: The secrets in the headers and the query.
    """

    def __init__(
        self,
        value: str = "",
        source: str = "",
        *,
        headers: Mapping[str, str] = _NO_PAIRS,
        query: Mapping[str, str] = _NO_PAIRS,
        secrets: Sequence[str] = (),
    ) -> None:
        self._value = value
        self._headers, self.query = dict(headers), dict(query)
        self._secrets = [secret for secret in (value, *secrets) if secret]
        # as it is, as in a JSON string, and as in a Python string
        forms = {form for one in self._secrets for form in (one, json.dumps(one)[1:-1], repr(one)[1:-1])}
        self._forms = sorted(forms, key=len, reverse=True)
        self.source = source

    @classmethod
    def find(cls, variable: str = "", file: str = "") -> Key:
        """Return the key in a file or an environment variable.

        Without arguments, the key is in `TTS_API_KEY`, or in the file that `TTS_API_KEY_FILE` names. If neither is set,
        the returned key is empty.

        Args:
            variable: The name of the environment variable; "": none is named.
            file: The path of the file; "": none is named.

        Raises:
            ConfigError: The named place holds no key, the file cannot be read, or the key has characters that no header
                takes.
        """
        if not (file or variable or os.environ.get(KEY_VARIABLE)):
            file = os.environ.get(KEY_FILE_VARIABLE, "")
        if file:
            source = f"the file {file}"
            value = read_text("the file of the key", Path(file).expanduser(), HOW_KEY).strip()
        else:
            source = f"the variable {variable or KEY_VARIABLE}"
            value = os.environ.get(variable or KEY_VARIABLE, "").strip()
        if not value and (file or variable):
            raise ConfigError(f"{source} was named for the key, but holds none", hint=HOW_KEY)
        is_plain = value.isascii() and all(character.isprintable() and character != " " for character in value)
        if not is_plain:
            raise ConfigError(
                f"the key in {source} has characters that no key has (spaces, line ends, or others than ASCII)",
                hint=HOW_KEY,
            )
        return cls(value, source) if value else cls()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request, with the key."""
        return {**({"Authorization": f"Bearer {self._value}"} if self._value else {}), **self._headers}

    def with_parameters(self, headers: Sequence[tuple[str, str]], query: Sequence[tuple[str, str]]) -> Key:
        """Return the key with further headers and a query for each request.

        `${NAME}` stands for the value of an environment variable, which is kept as a secret.

        Raises:
            ConfigError: A variable is not set, a header or parameter holds a plain secret, or a text cannot be sent.
        """
        secrets: list[str] = []
        filled_headers = {name: _fill("header", name, text, secrets) for name, text in headers}
        filled_query = {name: _fill("query parameter", name, text, secrets) for name, text in query}
        source = self.source
        if secrets and not source:
            source = "the record's headers"
        return Key(
            self._value,
            source,
            headers=filled_headers,
            query=filled_query,
            secrets=secrets,
        )

    def hidden(self, text: str) -> str:
        """Return a text without the key, which a server may repeat."""
        for form in self._forms:
            text = text.replace(form, "***")
        return text

    def hide(self, value: Any, text: str) -> Any:
        """Return a JSON value without the key in any of its strings.

        Args:
            value: The value.
            text: The JSON text from which the value was parsed.
        """
        for secret in self._secrets:
            if len(secret) >= _SECRET and (secret in text or "\\" in text):  # an escape may hide the secret in the text
                value = with_strings(value, lambda string, secret=secret: string.replace(secret, "***"))
        return value

    def hidden_behind(self, before: str, text: str, *, cut: bool) -> tuple[str, str]:
        """Return a text without the key, and the withheld end of the text, which is mostly "".

        The key may begin at the end of `before`.

        Args:
            before: The text that was shown before `text`.
            text: The text to show.
            cut: Whether the text goes on later. If so, an end that may begin the key is withheld. The caller prepends
                the withheld end to the text that follows.
        """
        num_withheld = 0
        for secret in self._secrets:
            if len(secret) < _SECRET:
                continue
            num_begun = _overlap(before, secret, _BEGUN - 1)  # characters of the secret that end `before`
            if num_begun and (secret[:num_begun] + text).startswith(secret):
                text = "***" + text[len(secret) - num_begun :]
            text = text.replace(secret, "***")
            num_begun_at_end = _overlap(secret[:num_begun] + text, secret, len(secret) - 1)
            if cut and num_begun_at_end >= _BEGUN:
                num_withheld = max(num_withheld, min(num_begun_at_end, len(text)))
        num_shown = len(text) - num_withheld
        return text[:num_shown], text[num_shown:]

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def __repr__(self) -> str:
        return f"Key(from {self.source})" if self else "Key()"


def with_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with all its strings changed, including the names of members."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [with_strings(item, change) for item in value]
    if isinstance(value, dict):
        return {change(name): with_strings(member, change) for name, member in value.items()}
    return value


def _overlap(text: str, secret: str, most: int) -> int:
    """Return the most characters, up to `most`, that begin a secret and end a text; 0 if there are none."""
    for length in range(min(most, len(text)), 0, -1):
        if text.endswith(secret[:length]):
            return length
    return 0


def how_key() -> str:
    """Return a hint on how to give a key.

    If only the variable that other clients use is set, the hint says that it is not sent.
    """
    if os.environ.get(OTHER_VARIABLE) and not (os.environ.get(KEY_VARIABLE) or os.environ.get(KEY_FILE_VARIABLE)):
        return (
            f"{HOW_KEY}; {OTHER_VARIABLE} is set, but is not sent unless key_variable={OTHER_VARIABLE} "
            "(--model-option, or its record) says so"
        )
    return HOW_KEY


def _fill(what: str, name: str, text: str, secrets: list[str]) -> str:
    """Return a header or parameter with environment variables filled in, and add their values to `secrets`.

    Args:
        what: The kind of the text, "header" or "query parameter".
        name: The name of the header or parameter.
        text: The text, in which `${NAME}` stands for a variable.
        secrets: The list that the values of variables are appended to.

    Raises:
        ConfigError: A variable is not set, the text is a plain secret, or the text cannot be sent.
    """
    if _SECRET_NAMES.search(name) and not _VARIABLE.search(text):
        raise ConfigError(
            f"the {what} {name} holds a secret as it is, which would be written to files and results",
            hint=f"put it into a variable of the environment, and write {name}: ${{THAT_VARIABLE}}",
        )

    def value(match: re.Match[str]) -> str:
        """Return the value of the variable that a match names, and add it to the secrets."""
        secret = os.environ.get(match[1], "").strip()
        if not secret:
            raise ConfigError(
                f"the {what} {name} names the variable {match[1]}, which is not set", hint=f"export {match[1]}=…"
            )
        secrets.append(secret)
        return secret

    filled = _VARIABLE.sub(value, text)
    if not (name.isascii() and name.isprintable() and filled.isascii() and filled.isprintable()):
        raise ConfigError(f"the {what} {name!r} has characters that cannot be sent", hint="use printable ASCII")
    return filled


def decode_json(content: bytes, key: Key) -> Any:
    """Return the JSON that a server sent, its strings without the key.

    Raises:
        ServerError: The content is not JSON.
    """
    try:
        text = content.decode("utf-8", "surrogatepass")
        return key.hide(json.loads(text), text)
    except (ValueError, RecursionError):
        shown_text = key.hidden(content.decode(errors="replace"))[:60]
        raise ServerError("BadReply", f"what is no JSON: {quote(shown_text)}") from None


def status_error(status: int, content: bytes, after_s: float, key: Key) -> ServerError:
    """Return the error of a reply whose status is not 200."""
    try:
        json_or_text = decode_json(content, key)
    except ServerError:
        json_or_text = content.decode(errors="replace")
    message = _message_line(json_or_text, key) or "nothing"
    details = key.hidden(content[:_MOST_DETAILS].decode(errors="replace"))
    return _status_error(status, f"status {status}: {message}", after_s, details=details, began=False)


def no_room(cause: str) -> bool:
    """Whether a server refused the length of a prompt or a row, and not the name of a parameter."""
    return _NO_ROOM.search(cause) is not None and _NOT_TAKEN.search(cause) is None


def stated_wait(text: str, now: float) -> float:
    """Return the seconds to wait that an error's text states; 0 if it states none.

    Examples of such texts are "try again in 3m20s" and "until 2026-01-01T00:00:00Z".

    Args:
        text: The text of the error.
        now: The time, in seconds since 1970.
    """
    opening = _AFTER.search(text)  # such as "try again in"
    if opening is not None:
        seconds, offset = 0.0, opening.end()
        while (span := _SPAN.match(text, offset)) is not None:  # such as "3m", then "20s"
            amount, unit = float(span[1]), span[2].lower()
            scale_name = "ms" if unit.startswith(("ms", "milli")) else unit[:1]
            seconds += amount * _SCALE[scale_name]
            remaining_text = text[span.end() :].lstrip(" ,")
            offset = len(text) - len(remaining_text)
        if seconds:
            return min(seconds, _MOST_HINTED_S)
    date = _DATE.search(text)
    if date is not None:
        day, time_of_day, zone = date[1], date[2] or "00:00", (date[3] or "Z").upper()
        if zone in ("Z", "UTC", "GMT"):
            zone = "+00:00"
        with suppress(ValueError):
            end_s = datetime.fromisoformat(f"{day}T{time_of_day}{zone}").timestamp()
            return min(max(0.0, end_s - now), _MOST_HINTED_S)
    return 0.0


def event_error(event: Any, after_s: float, key: Key, *, began: bool) -> ServerError | None:
    """Return the error in a reply of status 200, or in one of its events; None where there is none.

    Args:
        event: The JSON of the reply or the event.
        after_s: Seconds that the reply's header asks to wait.
        key: The key, which the error does not show.
        began: Whether anything of the reply came before the event.
    """
    if isinstance(event, list) and len(event) == 1:  # one service wraps its errors in a list
        event = event[0]
    if not isinstance(event, Mapping):
        return None
    error: Any = event.get("error") or event.get("errors")
    is_error = event.get("object") == "error" or event.get("type") == "error" or _is_bare_error(event)
    if not error and is_error:
        error = event
    if not error:
        return None
    cause = _message_line(event, key) or "it gives no reason"
    details = _as_json(event)[:_MOST_DETAILS]
    return _status_error(_status_in(error, event), cause, after_s, details=details, began=began)


def _is_bare_error(event: Mapping[str, Any]) -> bool:
    """Whether the members of an object without choices make it an error.

    An error has a message or detail, together with an error's code or status, or with `success: false`.
    """
    if any(event.get(name) is not None for name in ("choices", "usage", "id")):
        return False
    has_message = any(isinstance(event.get(name), str) for name in ("message", "detail", "msg", "error_msg"))
    has_code = any(event.get(name) for name in ("code", "status", "status_code"))
    return has_message and (has_code or event.get("success") is False)


def _as_json(value: Any) -> str:
    """Return a value as JSON, or quoted if it is nested too deeply."""
    try:
        return json.dumps(value)
    except (RecursionError, ValueError, TypeError):
        return quote(value)


def _status_error(status: int, cause: str, after_s: float, *, details: str, began: bool) -> ServerError:
    """Return the error of a status and a cause.

    The words of the cause tell a used-up quota from a rate limit. No second try can pass a used-up quota. A limit a
    minute may be named a quota too: then the error states a short wait, and names no day, month or credit.

    Args:
        status: The status of the reply, or the status that its error names.
        cause: The cause, which may state a time to wait.
        after_s: The seconds that the reply's header asks to wait; 0: it names no time.
        details: The whole error as a text.
        began: Whether anything of the reply came before the error.
    """
    names_quota = _QUOTA.search(cause) is not None or "insufficient_quota" in details
    if not after_s and (status == 429 or names_quota):
        after_s = stated_wait(cause, time.time()) or stated_wait(details, time.time())
    is_short = status == 429 and 0 < after_s <= _LONGEST_MINUTE_S and not _LASTING.search(f"{cause} {details}")
    shown_status = 0 if began else status
    if names_quota and not is_short and status not in (401, 403, 404) and not no_room(cause):
        return ServerError("QuotaExceeded", cause, after_s=after_s, status=shown_status)
    kind = _BUSY.get(status) or ("ServerError" if status >= 500 else "Refused")
    may_retry = kind != "Refused" and not began
    return ServerError(kind, cause, again=may_retry, after_s=after_s, status=shown_status)


def _status_in(*levels: Any) -> int:
    """Return the status that an error names, or for which the error's words stand.

    The status is 500 if the error has neither. Words of codes and types go before words of messages.

    Args:
        levels: The error, then the objects around it.
    """
    code_words, messages = "", ""
    for level in levels:
        members: Mapping[str, Any] = level if isinstance(level, Mapping) else {}
        for name in ("code", "status", "status_code", "type", "error_type"):
            value: Any = members.get(name)
            if isinstance(value, str) and len(value) == 3 and value.isdecimal():
                value = int(value)
            if type(value) is int and 400 <= value < 600:
                return value
            if isinstance(value, str):
                code_words += f" {value}"
        messages += f" {_message(level)}"
    status_of_code = _matched_status(code_words)
    if status_of_code is not None:
        return status_of_code
    if no_room(messages):
        return 400
    number = re.search(r"\b(?:status|code|error)\W{0,8}(?:code\W{0,3})?([45]\d\d)\b", messages, re.IGNORECASE)
    return int(number[1]) if number is not None else _matched_status(messages) or 500


def _matched_status(text: str) -> int | None:
    """Return the status for which the words of a text stand; None: they stand for none."""
    return next((status for pattern, status in _WORDS if pattern.search(text)), None)


def _message(error: Any, depth: int = 0) -> str:
    """Return the message within an error, with the cause that a proxy adds beside or inside the message.

    Args:
        error: The error, as JSON values.
        depth: The number of objects and lists around the error.
    """
    if depth > _DEEPEST:
        return _as_text(error)
    if isinstance(error, list):
        item_messages = [_message(item, depth + 1) for item in error[:_MOST_PARTS]]
        return "; ".join(filter(None, item_messages))
    if not isinstance(error, Mapping):
        return "" if error is None else _as_text(error)
    location = error.get("loc")
    parts: list[str] = [".".join(map(str, location))] if isinstance(location, list) else []
    for name in _MESSAGE_MEMBERS:
        member: Any = error.get(name)
        if not member or (name == "metadata" and not isinstance(member, Mapping)):
            continue
        part = _message(member, depth + 1)
        is_repeated = any(part in earlier_part for earlier_part in parts)
        if part and not is_repeated:
            parts.append(part)
    message = ": ".join(parts)
    if message:
        return message
    if depth == 0:
        return _as_json(error)
    return ", ".join(f"{name} {value}" for name, value in error.items() if isinstance(value, str | int) and value)


def _as_text(value: Any) -> str:
    """Return a text as it is, and another JSON value quoted."""
    return value if isinstance(value, str) else quote(value)


def _message_line(error: Any, key: Key) -> str:
    """Return an error's message in one line without the key.

    If the message is an HTML page, the line is the page's text. The key is hidden before the line is cut, so that no
    part of the key remains.
    """
    text = _message(error)
    if re.match(r"\s*<(?:!doctype|html|head|body|\?xml)", text, re.IGNORECASE):
        text = re.sub(r"<(style|script)\b.{0,20000}?</\1>", " ", text, flags=re.DOTALL | re.IGNORECASE)
        text = re.sub(r"<[^<>]{0,2000}>", " ", text)
    return key.hidden(" ".join(text.split()))[:_MOST_SAID]


def call_error(failure: Exception, key: Key, *, began: bool) -> ServerError:
    """Return the `ServerError` of a call's exception, without the key.

    Args:
        failure: The exception that the call raised.
        key: The key.
        began: Whether the reply had begun.
    """
    if isinstance(failure, ServerError):
        return failure.hiding(key)
    if isinstance(failure, httpx.TransportError):
        return connection_error(failure, key, began=began)
    if isinstance(failure, httpx.DecodingError):
        return ServerError("BadReply", f"its encoding is broken: {failure}").hiding(key)
    return ServerError("ConnectionFailed", f"no host has such a name: {failure}").hiding(key)


def connection_error(failure: httpx.TransportError, key: Key, *, began: bool) -> ServerError:
    """Return the `ServerError` of a connection's exception, without the key.

    Args:
        failure: The exception of the connection.
        key: The key.
        began: Whether the reply had begun.
    """
    cause = key.hidden(" ".join(str(failure).split()))[:_MOST_SAID] or type(failure).__name__
    reason: BaseException | None = failure
    while reason is not None:
        if isinstance(reason, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(reason):
            return ServerError("CertificateError", cause)
        reason = reason.__cause__ or reason.__context__
    if isinstance(failure, httpx.ConnectError | httpx.ConnectTimeout):
        return ServerError("ConnectionFailed", cause, again=True)
    return ServerError("ConnectionLost", cause, again=not began)


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds of a Retry-After header, a number or a date; at least 0."""
    header = headers.get("retry-after", "")
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0
