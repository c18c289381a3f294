"""Settings in words, such as "server chat-only no-verifier".

A setting says where strategies are to run, by what is known of that place without a request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from tts import tasks
from tts.backends import BACKENDS
from tts.backends.base import Caps
from tts.backends.function import FunctionBackend
from tts.backends.openai.capabilities import Capabilities, Mode
from tts.errors import ConfigError, MissingDependency
from tts.models import registry
from tts.search.families import RunSetting

MODES: Mapping[str, Mode] = MappingProxyType(
    {"chat-only": "chat", "continued-chat": "continued chat", "text": "text", "tokens": "tokens"}
)
_WORDS = ("thinking", "no-verifier")


def setting_of(words: str) -> RunSetting:
    """Return the setting that words describe.

    Args:
        words: Words separated by blanks. One is a backend ("engine", "function", …), a model's name (`tts models`), or
            "server" with its interface: "chat-only" (the default), "continued-chat", "text" or "tokens". Others may be
            "thinking" (the model thinks between known marks), "no-verifier", and a task.

    Raises:
        ConfigError: a word is unknown, or there is no backend, or two.
    """
    known_backends = {*BACKENDS.names(), "server", "function"}
    if not known_backends & {*words.split()}:
        words = " ".join(_name_backend(word) for word in words.split())
    backends = [word for word in words.split() if word in known_backends]
    if len(backends) != 1:
        backend_names = " and ".join(backends) or "no backend"
        raise ConfigError(
            f"the setting is {words!r}, which has {backend_names}, but must have one",
            hint="for example 'server chat-only' or 'engine'; `tts doctor --url URL` asks a server what runs there",
        )
    modes = [word for word in words.split() if word in MODES and backends == ["server"]]
    if len(modes) > 1:
        raise ConfigError(
            f"the setting is {words!r}, which asks the server as {' and '.join(modes)}, but must name one of them"
        )
    task_names = [word for word in words.split() if word not in (*backends, *modes, *_WORDS)]
    if len(task_names) > 1 or any(name not in tasks.names() for name in task_names):
        known = ", ".join((*MODES, *_WORDS, *tasks.names()))
        raise ConfigError(
            f"the setting is {words!r}, but may only have one task beside its backend, and words that are known",
            hint=known,
        )
    caps, shows_tokens = _caps(backends[0], modes)
    return RunSetting(
        caps=dataclasses.replace(caps, thoughts="thinking" in words.split()),
        shows_tokens=shows_tokens,
        task=tasks.get(task_names[0]) if task_names else None,
        roles=() if "no-verifier" in words.split() else None,
    )


def settings_with(capability: str) -> list[str]:
    """Return the settings of one model that have a capability, in the words of `setting_of`.

    A backend whose package is not installed is left out.
    """
    places = [*(("server", mode) for mode in MODES), *((name, "") for name in ("engine", "transformers", "vllm"))]
    return [f"{name} {mode}".rstrip() for name, mode in places if _has(name, mode, capability)]


def _has(backend: str, mode: str, capability: str) -> bool:
    try:
        caps, _ = _caps(backend, [mode] if mode else [])
    except MissingDependency:
        return False
    return getattr(caps, capability, False) not in ("absent", False)


def _name_backend(word: str) -> str:
    """Return a word, or for the name of a model its backend and task."""
    if word not in registry.names():
        return word
    record = registry.get(word)
    return f"{'server' if record.url else record.backend} {record.task}"


def _caps(backend: str, modes: list[str]) -> tuple[Caps, bool]:
    """Return the capabilities of a backend, and whether the backend shows the text of single tokens."""
    if backend in ("server", "openai"):
        mode = MODES[modes[0]] if modes else "chat"
        return Capabilities(root="", model="", mode=mode, logprobs=mode in ("tokens", "text")).caps, False
    if backend == "function":
        return FunctionBackend.caps, False
    return BACKENDS.get(backend).caps, True
