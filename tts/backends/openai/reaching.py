"""The first contact with a server, before it is probed or used.

The module finds a server's base url and its list of models, and makes the errors of servers that cannot be used.
"""

from __future__ import annotations

import asyncio
import difflib
import re
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from tts.backends.openai.call import HOW_CERTIFICATE
from tts.backends.openai.errors import Key, ServerError, how_key
from tts.backends.openai.http import HttpClient, Timeouts, roots
from tts.errors import ConfigError, EngineError, TTSError, quote

T = TypeVar("T")
_NO_LIST = (404, 405, 500, 501)  # statuses of servers that list no models
_NAMED = 12  # models in one message
# paths of endpoints, which are no part of a base url
_ENDPOINT = re.compile(r"/+(chat/completions|completions|models|responses|embeddings)/*$")
PROBE_TIMEOUT_S = 3.5  # the timeout of a server's first reply
TURNS = ({"role": "user", "content": "Count from one to twenty in words."},)
_TOKENS = 8


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that runs in an event loop and a thread of its own.

    A name resolution that hangs in the loop is not waited for.
    """
    result = Future[T]()

    def run() -> None:
        loop = asyncio.new_event_loop()
        try:
            result.set_result(loop.run_until_complete(coroutine))
        except BaseException as failure:  # noqa: BLE001 - raised in the thread that waits for the result
            result.set_exception(failure)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())  # of replies that were not read to their ends
            loop.close()

    threading.Thread(target=run, name="tts-probe", daemon=True).start()
    return result.result()


async def reach_model(
    url: str, model: str, key: Key, timeout_s: float
) -> tuple[HttpClient, Mapping[str, Any], tuple[str, ...]]:
    """Return a client, the server's entry of the model, and the names of all models.

    The caller closes the client. The base urls of `roots` are tried in order. Some servers list no models. There, a
    request for chat tests whether a named model is served.

    Args:
        url: The url of the server.
        model: The name of the model; "": the only model that is served.
        key: The key of the server.
        timeout_s: The most seconds of each reply.

    Raises:
        ConfigError: The server cannot be used, or has no such model.
        EngineError: The server cannot serve now.
    """
    error: ServerError | None = None
    timeouts = Timeouts(tries=1, connect_s=timeout_s, first_s=2 * timeout_s, call_s=2 * timeout_s)
    for root in roots(url):
        http = HttpClient(root, key, timeouts)
        try:
            entries = _entries(await http.request_json("/models"))
            return http, _entry_of(entries, model, url), tuple(entry["id"] for entry in entries)
        except ServerError as refused:
            await http.close()
            if error is None or (error.status == 404 and refused.status != 404):  # other errors say more than 404
                error = refused
            if refused.status not in _NO_LIST and refused.kind != "BadReply":
                break
        except BaseException:
            await http.close()
            raise
    else:  # no base url lists models
        for root in roots(url) if model else ():
            http = HttpClient(root, key, timeouts)
            if await _chats(http, url, model):
                return http, {"id": model}, ()
            await http.close()
    failure = _connection_error(url, error or ServerError("BadReply", "nothing"), key)
    if isinstance(failure, EngineError) and not model:
        failure.hint = "try again later, or name the model (--model NAME), which needs no list"
    raise failure


def _entries(reply: Any) -> list[Mapping[str, Any]]:
    """Return the entries of a list of models.

    Raises:
        ServerError: The reply is no such list.
    """
    try:
        return [entry for entry in reply["data"] if isinstance(entry["id"], str)]
    except (TypeError, KeyError, LookupError):
        raise ServerError("BadReply", f"{quote(reply)} where a list of models must be") from None


def _entry_of(entries: Sequence[Mapping[str, Any]], model: str, url: str) -> Mapping[str, Any]:
    """Return the entry of a model in a server's list. If no model is named, the only entry is returned.

    Args:
        entries: The server's list of models.
        model: The name of the model; "": no model is named.
        url: The url of the server, for messages.

    Raises:
        ConfigError: There is no such entry.
    """
    served = [entry["id"] for entry in entries]
    name = served[0] if not model and len(served) == 1 else model
    for entry in entries:
        if entry["id"] == name:
            return entry
    hint = "start the server with a model"
    if served:
        nearest = _nearest(name, served)
        hint = f"for example --model {nearest}; a name of your own: tts models add NAME --url URL --served-as {nearest}"
    raise ConfigError(f"the model is {name or 'not named'}, but {url} serves {_several(served) or 'none'}", hint=hint)


async def _chats(http: HttpClient, url: str, model: str) -> bool:
    """Whether a base url answers a request for chat.

    Raises:
        ConfigError: The server refuses the key.
    """
    body = {"model": model, "messages": list(TURNS), "max_tokens": _TOKENS}
    try:
        reply = await http.request_json("/chat/completions", body)
    except ServerError as error:
        if error.status in (401, 403):
            raise refusal(url, error, http.key) from None
        return error.status in (400, 422)  # the server refuses a parameter, which the probe finds out
    return isinstance(reply, dict) and "choices" in reply


def _several(served: Sequence[str]) -> str:
    """Return the names of models for a message; of many models, the first few and the number of the others."""
    names = ", ".join(served[:_NAMED])
    return f"{names} and {len(served) - _NAMED} others" if len(served) > _NAMED else names


def _nearest(name: str, served: Sequence[str]) -> str:
    """Return the served name that is nearest to `name`.

    If no name is near, the first served name is returned. If `name` is "", the name of a gateway's model without a
    search, which ends in ":single", goes first.
    """
    near_names = difflib.get_close_matches(name, served, n=1)
    if near_names:
        return near_names[0]
    plain_name = f"{served[0]}:single"
    return plain_name if not name and plain_name in served else served[0]


def refusal(url: str, error: ServerError, key: Key) -> ConfigError:
    """Return the error of a server that needs a key, or another key than the given one."""
    cause = f"the key in {key.source} was refused" if key else "it requires a key, and none was sent"
    return ConfigError(f"{url} refuses access: {cause} ({error.cause})", hint=how_key())


def _connection_error(url: str, error: ServerError, key: Key) -> TTSError:
    """Return the error of a server that cannot be used, with a cure by its kind."""
    if error.status in (401, 403):
        return refusal(url, error, key)
    if error.kind == "CertificateError":
        return ConfigError(f"{url} has a certificate that cannot be trusted: {error.cause}", hint=HOW_CERTIFICATE)
    if error.kind in ("ConnectionFailed", "ConnectionLost"):
        return ConfigError(
            f"{url} cannot be reached: {error.cause}",
            hint="start the server, or correct the url (host, port, http or https)",
        )
    if error.kind in ("ServerError", "Unavailable", "RateLimited"):
        return EngineError(f"{url} cannot serve now: {error.cause}", hint="try again later")
    if error.kind in ("TimedOut", "TooSlow"):
        return ConfigError(
            f"{url} takes connections but does not answer", hint="is it still loading, or is it another kind of server?"
        )
    example = _ENDPOINT.sub("", url) if _ENDPOINT.search(url) else "http://host:8000"
    return ConfigError(
        f"{url} does not answer as an OpenAI-compatible server does ({error.cause})",
        hint=f"give the url of its API, for example {example}",
    )
