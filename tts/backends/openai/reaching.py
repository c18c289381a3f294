"""Reaches a server before it is probed or used.

The module finds its base url, the models that it lists, and the errors of one that cannot be used.
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

_NO_LIST = (404, 405, 500, 501)  # of servers that list no models
_NAMED = 12  # models in one message
# which are no part of a base url
_ENDPOINT = re.compile(r"/+(chat/completions|completions|models|responses|embeddings)/*$")
PROBE_TIMEOUT_S = 3.5  # of a server's first reply
TURNS = ({"role": "user", "content": "Count from one to twenty in words."},)
_TOKENS = 8


def reach_model(
    url: str, model: str, key: Key, timeout_s: float, ends: float = math.inf
) -> tuple[ProbeClient, Mapping[str, Any], tuple[str, ...]]:
    """Return the client, the server's entry of the model, and the names of all models.

    Some servers list no models. A model that is named is then looked for by a request for chat.

    Args:
        url: The root of the server.
        model: Its name; "": the only one that is served.
        key: The key of the server.
        timeout_s: The most seconds of the first reply.
        ends: The time at which the probe ends, by the monotonic clock.

    Raises:
        ConfigError: the server cannot be used, or has no such model. EngineError: it cannot serve now.
    """
    error: ServerError | None = None
    end = time.monotonic() + timeout_s
    told: Any = None
    for root in roots(url):
        client = ProbeClient(root, key, max(min(0.5, timeout_s), min(timeout_s, end - time.monotonic())), ends)
        try:
            told = client.call("/models")
            listed = [one for one in told["data"] if isinstance(one["id"], str)]
        except ServerError as found:
            # which says more
            error = found if error is None or (error.status == 404 and found.status != 404) else error
            again = found.status in _NO_LIST or found.kind == "BadReply"
        except (TypeError, KeyError, LookupError):
            error, again = error or ServerError("BadReply", f"{quote(told)} where a list of models must be"), True
        else:
            served = tuple(one["id"] for one in listed)
            name = model or (served[0] if len(served) == 1 else "")
            entry = next((one for one in listed if one["id"] == name), None)
            if entry is not None:
                return client, entry, served
            client.close()
            raise ConfigError(
                f"the model is {name or 'not named'}, but {url} serves {_several(served) or 'none'}",
                hint=f"for example --model {_nearest(name, served)}; a name of your own: tts models add NAME --url "
                "URL --served-as "
                f"{_nearest(name, served)}"
                if served
                else "start the server with a model",
            )
        client.close()
        if not again or time.monotonic() > end:
            break
    else:
        if model and (client := _chat_client(url, model, key, timeout_s, ends)) is not None:
            return client, {"id": model}, ()
    found = _connection_error(url, error or ServerError("BadReply", "nothing"), key)
    if isinstance(found, EngineError) and not model:
        found.hint = "try again later, or name the model (--model NAME), which needs no list"
    raise found


def _chat_client(url: str, model: str, key: Key, timeout_s: float, ends: float) -> ProbeClient | None:
    """Return the client of a server that answers a request for chat; None where there is none."""
    for root in roots(url):
        client = ProbeClient(root, key, timeout_s, ends)
        try:
            told = client.call("/chat/completions", {"model": model, "messages": list(TURNS), "max_tokens": _TOKENS})
        except ServerError as error:
            if error.status in (401, 403):
                client.close()
                raise refusal(url, error, key) from None
            if error.status in (400, 422):  # of a parameter, which the probe finds out
                return client
            told = None
        if isinstance(told, dict) and "choices" in told:
            return client
        client.close()
    return None


def owner_of(entry: Mapping[str, Any]) -> str:
    """Return the owner that the list of models states for a model; "": none."""
    owner = entry.get("owned_by")
    return owner if isinstance(owner, str) else ""


def check_reachable(capabilities: Capabilities, url: str, key: Key, timeout_s: float) -> bool:
    """Return whether a server that was probed before seems to be the same.

    One request is sent, for its version or its list of models.

    Raises:
        ConfigError: it cannot be reached, or refuses the key.
    """
    client = ProbeClient(capabilities.root, key, timeout_s)
    try:
        told = client.call(f"{capabilities.site}/version" if capabilities.version else "/models")
    except ServerError as error:
        if error.kind in ("ConnectionFailed", "ConnectionLost", "CertificateError", "TimedOut") or error.status in (
            401,
            403,
        ):
            raise _connection_error(url, error, key) from None
        told = None
    finally:
        client.close()
    if capabilities.version:
        return isinstance(told, dict) and str(told.get("version")) == capabilities.version
    if not capabilities.served:  # it had no list of models
        return True
    listed = told.get("data") if isinstance(told, dict) else None
    entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    entry = next((one for one in entries if one.get("id") == capabilities.model), None)
    return (
        entry is not None
        and owner_of(entry) == capabilities.owner
        and entry.get("max_model_len") in (None, capabilities.context)
    )


def _several(served: Sequence[str]) -> str:
    """Return the names of models; the first of them where there are many."""
    return ", ".join(served[:_NAMED]) + (f" and {len(served) - _NAMED} others" if len(served) > _NAMED else "")


def _nearest(name: str, served: Sequence[str]) -> str:
    """Return the served name that is nearest; of a gateway the model without a search, where none was given."""
    plain = f"{served[0]}:single"
    first = plain if not name and plain in served else served[0]
    return next(iter(difflib.get_close_matches(name, served, n=1)), first)


def refusal(url: str, error: ServerError, key: Key) -> ConfigError:
    """Return the error of a server that needs a key, or another one."""
    sent = f"the key in {key.source} was refused" if key else "it requires a key, and none was sent"
    return ConfigError(f"{url} refuses access: {sent} ({error.cause})", hint=how_key())


def _connection_error(url: str, error: ServerError, key: Key) -> TTSError:
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
    return ConfigError(
        f"{url} does not answer as an OpenAI-compatible server does ({error.cause})",
        hint="give the url of its API, for example "
        f"{_ENDPOINT.sub('', url) if _ENDPOINT.search(url) else 'http://host:8000'}",
    )
