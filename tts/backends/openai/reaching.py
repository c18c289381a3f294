"""The first contact with a server, before it is probed or used.

The module finds a server's base url and its list of models, and makes the errors of servers that cannot be used.
"""

from __future__ import annotations

import difflib
import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tts.backends.openai.call import HOW_CERTIFICATE
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.errors import Key, ServerError, how_key
from tts.backends.openai.http import roots
from tts.backends.openai.probe_client import ProbeClient
from tts.errors import ConfigError, EngineError, TTSError, quote

_NO_LIST = (404, 405, 500, 501)  # statuses of servers that list no models
_NAMED = 12  # models in one message
# paths of endpoints, which are no part of a base url
_ENDPOINT = re.compile(r"/+(chat/completions|completions|models|responses|embeddings)/*$")
PROBE_TIMEOUT_S = 3.5  # the timeout of a server's first reply
TURNS = ({"role": "user", "content": "Count from one to twenty in words."},)
_TOKENS = 8


def reach_model(
    url: str, model: str, key: Key, timeout_s: float, ends: float = math.inf
) -> tuple[ProbeClient, Mapping[str, Any], tuple[str, ...]]:
    """Return the client, the server's entry of the model, and the names of all models.

    The base urls of `roots` are tried in order. Some servers list no models. There, a request for chat tests whether a
    named model is served.

    Args:
        url: The url of the server.
        model: The name of the model; "": the only model that is served.
        key: The key of the server.
        timeout_s: The most seconds of the first reply.
        ends: The time at which the probe ends, by the monotonic clock.

    Raises:
        ConfigError: The server cannot be used, or has no such model.
        EngineError: The server cannot serve now.
    """
    error: ServerError | None = None
    deadline = time.monotonic() + timeout_s
    reply: Any = None
    for root in roots(url):
        remaining_s = min(timeout_s, deadline - time.monotonic())
        least_s = min(0.5, timeout_s)
        client = ProbeClient(root, key, max(least_s, remaining_s), ends)
        try:
            reply = client.call("/models")
            entries = [entry for entry in reply["data"] if isinstance(entry["id"], str)]
        except ServerError as refused:
            if error is None or (error.status == 404 and refused.status != 404):  # other errors say more than 404
                error = refused
            may_try_next = refused.status in _NO_LIST or refused.kind == "BadReply"
        except (TypeError, KeyError, LookupError):
            error = error or ServerError("BadReply", f"{quote(reply)} where a list of models must be")
            may_try_next = True
        else:
            try:
                entry = _entry_of(entries, model, url)
            except ConfigError:
                client.close()
                raise
            return client, entry, tuple(entry["id"] for entry in entries)
        client.close()
        if not may_try_next or time.monotonic() > deadline:
            break
    else:  # no base url lists models
        client = _chat_client(url, model, key, timeout_s, ends) if model else None
        if client is not None:
            return client, {"id": model}, ()
    failure = _connection_error(url, error or ServerError("BadReply", "nothing"), key)
    if isinstance(failure, EngineError) and not model:
        failure.hint = "try again later, or name the model (--model NAME), which needs no list"
    raise failure


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
    name = model
    if not model and len(served) == 1:
        name = served[0]
    for entry in entries:
        if entry["id"] == name:
            return entry
    hint = "start the server with a model"
    if served:
        nearest = _nearest(name, served)
        hint = f"for example --model {nearest}; a name of your own: tts models add NAME --url URL --served-as {nearest}"
    raise ConfigError(f"the model is {name or 'not named'}, but {url} serves {_several(served) or 'none'}", hint=hint)


def _chat_client(url: str, model: str, key: Key, timeout_s: float, ends: float) -> ProbeClient | None:
    """Return the client of the first base url that answers a request for chat; None: no base url answers it."""
    for root in roots(url):
        client = ProbeClient(root, key, timeout_s, ends)
        try:
            reply = client.call("/chat/completions", {"model": model, "messages": list(TURNS), "max_tokens": _TOKENS})
        except ServerError as error:
            if error.status in (401, 403):
                client.close()
                raise refusal(url, error, key) from None
            if error.status in (400, 422):  # the server refuses a parameter, which the probe finds out
                return client
            reply = None
        if isinstance(reply, dict) and "choices" in reply:
            return client
        client.close()
    return None


def owner_of(entry: Mapping[str, Any]) -> str:
    """Return the owner of a model by its entry in the list of models; "": none is stated."""
    owner = entry.get("owned_by")
    return owner if isinstance(owner, str) else ""


def check_reachable(capabilities: Capabilities, url: str, key: Key, timeout_s: float) -> bool:
    """Return whether a server seems to be unchanged since its probe.

    One request is sent, for the server's version or its list of models.

    Raises:
        ConfigError: The server cannot be reached, or refuses the key.
    """
    client = ProbeClient(capabilities.root, key, timeout_s)
    try:
        reply = client.call(f"{capabilities.site}/version" if capabilities.version else "/models")
    except ServerError as error:
        is_unreachable = error.kind in ("ConnectionFailed", "ConnectionLost", "CertificateError", "TimedOut")
        if is_unreachable or error.status in (401, 403):
            raise _connection_error(url, error, key) from None
        reply = None
    finally:
        client.close()
    if capabilities.version:
        return isinstance(reply, dict) and str(reply.get("version")) == capabilities.version
    if not capabilities.served:  # the server had no list of models
        return True
    data: Any = reply.get("data") if isinstance(reply, dict) else None
    entries: list[Any] = data if isinstance(data, list) else []
    for entry in entries:
        if isinstance(entry, dict) and entry.get("id") == capabilities.model:
            has_same_context = entry.get("max_model_len") in (None, capabilities.context)
            return has_same_context and owner_of(entry) == capabilities.owner
    return False


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
    if error.kind == "TimedOut":
        return ConfigError(
            f"{url} takes connections but does not answer", hint="is it still loading, or is it another kind of server?"
        )
    example = _ENDPOINT.sub("", url) if _ENDPOINT.search(url) else "http://host:8000"
    return ConfigError(
        f"{url} does not answer as an OpenAI-compatible server does ({error.cause})",
        hint=f"give the url of its API, for example {example}",
    )
