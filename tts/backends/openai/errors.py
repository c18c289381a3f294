"""Errors of a server by kind, and the key, which no error message shows."""

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
# characters of one that a text may end with; where it goes on, a longer end is withheld until it is known what follows
_BEGUN = 6
_MOST_SAID = 300
_MOST_HINTED_S = 7 * 86400.0  # of a time that an error's text names
# other statuses from 500 on: "ServerError"
_BUSY = {408: "TimedOut", 425: "Unavailable", 429: "RateLimited", 503: "Unavailable"}
_WORDS = tuple(  # of errors that have no number, and the status that each stands for
    (re.compile(words, re.IGNORECASE), status)
    for words, status in (
        ("rate.?limit|too.?many|quota|exhausted|throttl", 429),
        ("overload|unavailable|capacity", 503),
        ("time.?d?.?out", 408),
        ("auth|api.?key|permission|forbidden", 401),
        ("not.?found", 404),
        ("invalid|bad.?request|unsupported|context", 400),
    )
)
_TEXT_WORDS = tuple(  # of the text of an error that has neither a number nor a type
    (re.compile(words, re.IGNORECASE), status)
    for words, status in (
        (r"rate.?limit|too many requests|throttl|\btry again (?:later|in)\b", 429),
        (r"overloaded|temporarily unavailable|at capacity", 503),
        (r"timed? ?out", 408),
        (
            r"(?:invalid|incorrect|missing|wrong|no|bad) (?:api.?)?key|unauthorized|not authori[sz]ed|authentication",
            401,
        ),
        (
            r"model\b.{0,80}\b(?:not (?:found|exist|loaded)|does not exist)|no such model|unknown model|unexpected "
            r"endpoint",
            404,
        ),
        (r"unsupported|unrecognized|not supported|invalid|bad request|cannot both be", 400),
    )
)
_DEEPEST, _MOST_PARTS = 4, 4  # of an error's message: how deep it is looked for, and how many of a list are told


_NO_ROOM = re.compile(
    r"context[ _](?:length|window|size)|n_ctx|too (?:long|large)|max_(?:completion_)?tokens|(?:prompt|input|tokens?) "
    r"(?:\w+ ){0,3}"
    r"exceeds?\b",
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
_SPAN = re.compile(
    r"(\d{1,6}(?:\.\d{1,6})?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)(?![a-z])",
    re.IGNORECASE,
)
_AFTER = re.compile(r"\b(?:(?:re)?try(?: again)?|wait|resets?|available|retry)\b[^.;\d]{0,40}", re.IGNORECASE)
_DATE = re.compile(r"\b(20\d\d-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:\.\d{1,9})?\s*(Z|UTC|GMT|[+-]\d\d:?\d\d)?)?")
_SCALE = {"ms": 0.001, "m": 60.0, "s": 1.0, "h": 3600.0, "d": 86400.0}


class ServerError(Exception):
    """A call without a whole reply.

    Args:
        kind: One word, counted in `Solution.failures`.
        cause: One line.
        again: Whether the call cost nothing and may be sent again.
        after_s: Seconds that the server asked to wait first.
        status: The status of a reply that is only an error; else 0.
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
        value: The key; "": none.
        source: Where it is from, for messages.
        headers: The headers of each request beside it, with secrets in place.
        query: The query of each request beside it, with secrets in place.
        secrets: The secrets in them.
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
        self._secrets = [one for one in (value, *secrets) if one]
        # as it is, in JSON, in Python
        forms = {form for one in self._secrets for form in (one, json.dumps(one)[1:-1], repr(one)[1:-1])}
        self._forms = sorted(forms, key=len, reverse=True)
        self.source = source

    @classmethod
    def find(cls, variable: str = "", file: str = "") -> Key:
        """Return the key in a file or an environment variable.

        By default it is that of `TTS_API_KEY` or `TTS_API_KEY_FILE`, or none.

        Raises:
            ConfigError: the named place holds no key, the file cannot be read, or the key has characters that no header
                takes.
        """
        file = file or ("" if variable or os.environ.get(KEY_VARIABLE) else os.environ.get(KEY_FILE_VARIABLE, ""))
        if file:
            source = f"the file {file}"
            value = read_text("the file of the key", Path(file).expanduser(), HOW_KEY).strip()
        else:
            source = f"the variable {variable or KEY_VARIABLE}"
            value = os.environ.get(variable or KEY_VARIABLE, "").strip()
        if not value and (file or variable):
            raise ConfigError(f"{source} was named for the key, but holds none", hint=HOW_KEY)
        if not (value.isascii() and all(character.isprintable() and character != " " for character in value)):
            raise ConfigError(
                f"the key in {source} has characters that no key has (spaces, line ends, or others than ASCII)",
                hint=HOW_KEY,
            )
        return cls(value, source) if value else cls()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request with it."""
        return {**({"Authorization": f"Bearer {self._value}"} if self._value else {}), **self._headers}

    def with_parameters(self, headers: Sequence[tuple[str, str]], query: Sequence[tuple[str, str]]) -> Key:
        """Return the key with headers and a query of each request.

        `${NAME}` stands for a variable of the environment, a secret.

        Raises:
            ConfigError: a variable is not set, a header holds a secret as it is, or something cannot be sent.
        """
        secrets: list[str] = []
        sent = {name: _fill("header", name, text, secrets) for name, text in headers}
        asked = {name: _fill("query parameter", name, text, secrets) for name, text in query}
        return Key(
            self._value,
            self.source or ("the record's headers" if secrets else ""),
            headers=sent,
            query=asked,
            secrets=secrets,
        )

    def hidden(self, text: str) -> str:
        """Return a text without the key, which a server may repeat."""
        for form in self._forms:
            text = text.replace(form, "***")
        return text

    def hide(self, value: Any, text: str) -> Any:
        """Return a value without the key in any of its strings; `text`: the JSON that it is read from."""
        for secret in self._secrets:
            if len(secret) >= _SECRET and (secret in text or "\\" in text):  # without escapes it stands there as it is
                value = with_strings(value, lambda one, secret=secret: one.replace(secret, "***"))
        return value

    def hidden_behind(self, before: str, text: str, *, cut: bool) -> tuple[str, str]:
        """Return a text without the key, and what is withheld at its end, "" for most texts.

        The key may begin in the text before this one.

        Args:
            before: The text that was shown before this one.
            text: The text to show.
            cut: Whether the text goes on later: then an end that may begin the key is withheld, and opens what follows.
        """
        withheld = 0
        for secret in self._secrets:
            if len(secret) < _SECRET:
                continue
            begun = _overlap(before, secret, _BEGUN - 1)
            text = "***" + text[len(secret) - begun :] if begun and (secret[:begun] + text).startswith(secret) else text
            text = text.replace(secret, "***")
            size = _overlap(secret[:begun] + text, secret, len(secret) - 1)
            withheld = max(withheld, min(size, len(text)) if cut and size >= _BEGUN else 0)
        kept = len(text) - withheld
        return text[:kept], text[kept:]

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def __repr__(self) -> str:
        return f"Key(from {self.source})" if self else "Key()"


def with_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with all its strings changed, also those that are names of members."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [with_strings(one, change) for one in value]
    return (
        {change(name): with_strings(one, change) for name, one in value.items()} if isinstance(value, dict) else value
    )


def _overlap(text: str, secret: str, most: int) -> int:
    """Return the most characters, up to `most`, that end a text and begin a secret."""
    return next((size for size in range(min(most, len(text)), 0, -1) if text.endswith(secret[:size])), 0)


def how_key() -> str:
    """Return how a key is given; where a variable that others use is set, that it is not sent."""
    if os.environ.get(OTHER_VARIABLE) and not (os.environ.get(KEY_VARIABLE) or os.environ.get(KEY_FILE_VARIABLE)):
        return (
            f"{HOW_KEY}; {OTHER_VARIABLE} is set, but is not sent unless --key-from {OTHER_VARIABLE}, or the "
            "record's key_variable, says so"
        )
    return HOW_KEY


def _fill(what: str, name: str, text: str, secrets: list[str]) -> str:
    """Return a value with variables of the environment in place; `secrets`: receives theirs.

    Raises:
        ConfigError: as `Key.with_parameters`.
    """
    if _SECRET_NAMES.search(name) and not _VARIABLE.search(text):
        raise ConfigError(
            f"the {what} {name} holds a secret as it is, which would be written to files and results",
            hint=f"put it into a variable of the environment, and write {name}: ${{THAT_VARIABLE}}",
        )

    def value(found: re.Match[str]) -> str:
        secret = os.environ.get(found[1], "").strip()
        if not secret:
            raise ConfigError(
                f"the {what} {name} names the variable {found[1]}, which is not set", hint=f"export {found[1]}=…"
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
        ServerError: it is not JSON.
    """
    try:
        text = content.decode("utf-8", "surrogatepass")
        return key.hide(json.loads(text), text)
    except (ValueError, RecursionError):
        raise ServerError(
            "BadReply", f"what is no JSON: {quote(key.hidden(content.decode(errors='replace'))[:60])}"
        ) from None


def status_error(status: int, content: bytes, after_s: float, key: Key) -> ServerError:
    """Return the error of a reply with another status than 200."""
    try:
        told = decode_json(content, key)
    except ServerError:
        told = content.decode(errors="replace")
    return _status_error(status, f"status {status}: {_message_line(told, key) or 'nothing'}", after_s, began=False)


def no_room(cause: str) -> bool:
    """Whether a server refused the length of a prompt or a row, and not the name of the parameter."""
    return _NO_ROOM.search(cause) is not None and _NOT_TAKEN.search(cause) is None


def stated_wait(text: str, now: float) -> float:
    """Return the seconds to wait that an error's text states; else 0.

    Such texts are "try again in 3m20s" or "until 2026-01-01T00:00:00Z".

    Args:
        text: The text of the error.
        now: The time, in seconds since 1970.
    """
    if (begin := _AFTER.search(text)) is not None:
        seconds, at = 0.0, begin.end()
        while (found := _SPAN.match(text, at)) is not None:
            unit = found[2].lower()
            seconds += float(found[1]) * _SCALE["ms" if unit.startswith(("ms", "milli")) else unit[:1]]
            at = found.end() + len(text[found.end() :]) - len(text[found.end() :].lstrip(" ,"))
        if seconds:
            return min(seconds, _MOST_HINTED_S)
    if (found := _DATE.search(text)) is not None:
        zone = (found[3] or "Z").upper().replace("UTC", "Z").replace("GMT", "Z").replace("Z", "+00:00")
        with suppress(ValueError):
            return min(
                max(0.0, datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}{zone}").timestamp() - now),
                _MOST_HINTED_S,
            )
    return 0.0


def event_error(event: Any, after_s: float, key: Key, *, began: bool) -> ServerError | None:
    """Return the error in a reply of status 200, or in an event of it; None where it is none.

    Args:
        event: The JSON of the reply or the event.
        after_s: Seconds that the reply's header asks to wait.
        key: The key, which the error does not show.
        began: Whether anything came before it.
    """
    if isinstance(event, list) and len(event) == 1:  # as one service sends its errors
        event = event[0]
    if not isinstance(event, Mapping):
        return None
    error: Any = next((event[name] for name in ("error", "errors") if event.get(name)), None)
    if error is None and (event.get("object") == "error" or event.get("type") == "error" or _is_bare_error(event)):
        error = event
    if error is None:
        return None
    return _status_error(
        _status_in(error, event), _message_line(event, key) or "it gives no reason", after_s, began=began
    )


def _is_bare_error(event: Mapping[str, Any]) -> bool:
    """Whether an object without choices is an error by its members: a message or detail, with a code or status of
    one.
    """
    code: Any = next((event[name] for name in ("code", "status", "status_code") if event.get(name)), None)
    if any(event.get(name) is not None for name in ("choices", "usage", "id")):
        return False
    said = any(isinstance(event.get(name), str) for name in ("message", "detail", "msg", "error_msg"))
    return said and (code is not None or event.get("success") is False)


def _status_error(status: int, cause: str, after_s: float, *, began: bool) -> ServerError:
    """Return the error of a status. Its text tells a quota, which no second try can pass, from a rate, and states when
    to come back.
    """
    after_s = after_s or (stated_wait(cause, time.time()) if status == 429 or _QUOTA.search(cause) else 0.0)
    if status not in (401, 403, 404) and _QUOTA.search(cause) and not no_room(cause):
        return ServerError("QuotaExceeded", cause, after_s=after_s, status=0 if began else status)
    kind = _BUSY.get(status) or ("ServerError" if status >= 500 else "Refused")
    return ServerError(
        kind, cause, again=kind != "Refused" and not began, after_s=after_s, status=0 if began else status
    )


def _status_in(*told: Any) -> int:
    """Return the status that an error names, or that its words stand for, those of its text last; else 500."""
    words, texts = "", ""
    for one in told:
        for name in ("code", "status", "status_code", "type", "error_type") if isinstance(one, Mapping) else ():
            value = one.get(name)
            if isinstance(value, str) and len(value) == 3 and value.isdecimal():
                value = int(value)
            if type(value) is int and 400 <= value < 600:
                return value
            words += f" {value}" if isinstance(value, str) else ""
        texts += f" {_message(one)}"
    found = next((status for pattern, status in _WORDS if pattern.search(words)), None)
    if found is None and no_room(texts):
        return 400
    named = re.search(r"\b(?:status|code|error)\W{0,8}(?:code\W{0,3})?([45]\d\d)\b", texts, re.IGNORECASE)
    if found is None and named is not None:
        return int(named[1])
    return found or next((status for pattern, status in _TEXT_WORDS if pattern.search(texts)), 500)


def _message(told: Any, depth: int = 0) -> str:
    """Return the message within an error, with the cause that a proxy puts beside or inside of it."""
    if isinstance(told, str) or depth > _DEEPEST:
        return told if isinstance(told, str) else quote(told)
    if isinstance(told, list):
        return "; ".join(filter(None, (_message(one, depth + 1) for one in told[:_MOST_PARTS])))
    if not isinstance(told, Mapping):
        return "" if told is None else quote(told)
    place = told.get("loc")
    parts: list[str] = [".".join(map(str, place))] if isinstance(place, list) else []
    for name in (
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
    ):
        if told.get(name) and (name != "metadata" or isinstance(told[name], Mapping)):
            part = _message(told[name], depth + 1)
            parts += [part] if part and not any(part in other for other in parts) else []
    if not parts and depth == 0:
        try:
            return json.dumps(told)
        except (RecursionError, ValueError, TypeError):
            return quote(told)
    return ": ".join(parts) or ", ".join(
        f"{name} {value}" for name, value in told.items() if isinstance(value, str | int) and value
    )


def _message_line(told: Any, key: Key) -> str:
    """Return an error's message in one line without the key, which is hidden before the line is cut; of a page, its
    text.
    """
    text = _message(told)
    if re.match(r"\s*<(?:!doctype|html|head|body|\?xml)", text, re.IGNORECASE):
        text = re.sub(r"<(style|script)\b.{0,20000}?</\1>", " ", text, flags=re.DOTALL | re.IGNORECASE)
        text = re.sub(r"<[^<>]{0,2000}>", " ", text)
    return key.hidden(" ".join(text.split()))[:_MOST_SAID]


def call_error(failure: Exception, key: Key, *, began: bool) -> ServerError:
    """Return what a call raised as an error without the key; `began`: whether the reply had begun."""
    if isinstance(failure, ServerError):
        return failure.hiding(key)
    if isinstance(failure, httpx.TransportError):
        return connection_error(failure, key, began=began)
    if isinstance(failure, httpx.DecodingError):
        return ServerError("BadReply", f"its encoding is broken: {failure}").hiding(key)
    return ServerError("ConnectionFailed", f"no host has such a name: {failure}").hiding(key)


def connection_error(failure: httpx.TransportError, key: Key, *, began: bool) -> ServerError:
    """Return the error of a connection, without the key; `began`: whether the reply had begun."""
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
