"""Servers that are recognised by the owner of a model, with the capabilities that they declare.

A probe finds the capabilities that depend on the model, or on the options of the server (`tts.backends.openai.probe`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownServer:
    """A kind of server.

    Args:
        name: The name of the server; "": the server is not recognised.
        owners: The values of `owned_by` in the list of models by which the server is recognised.
        declared: Capabilities of the server, by the names of fields of `Capabilities`.
        takes_ids: Whether completions may take and return token ids.
        neutral: Values that switch the server's own filters off, where these differ from `NEUTRAL`.
    """

    name: str = ""
    owners: tuple[str, ...] = ()
    declared: Mapping[str, Any] = field(default_factory=dict[str, Any])
    takes_ids: bool = False
    neutral: Mapping[str, int] = field(default_factory=dict[str, int])


# `repeat_penalty` is llama.cpp's parameter, whose default there is 1.1
NEUTRAL: Final[Mapping[str, int | float]] = {
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "repeat_penalty": 1.0,
}
_VLLM: Final = KnownServer(
    name="vLLM",
    owners=("vllm",),
    declared={
        "seeds": True,
        "stops": True,
        "filters": True,
        "echo": True,
        "forms": True,
        "pictures": True,
        "thought_limit": "thinking_token_budget",
        "thought_switch": "chat_template_kwargs.enable_thinking",
    },
    takes_ids=True,
)
_SGLANG: Final = KnownServer(
    name="SGLang",
    owners=("sglang",),
    declared={
        "filters": True,
        "forms": True,
        "pictures": True,
        "thought_switch": "chat_template_kwargs.enable_thinking",
    },
    neutral={"top_k": -1},
)
_LLAMA: Final = KnownServer(name="llama.cpp", owners=("me", "llamacpp"), declared={"seeds": True, "filters": True})
_OPENAI: Final = KnownServer(
    name="OpenAI",
    owners=("openai", "openai-internal", "system"),
    declared={"tools": True, "forms": True, "pictures": True},
)
_OF_OWNER: Final = {owner: server for server in (_VLLM, _SGLANG, _LLAMA, _OPENAI) for owner in server.owners}


def recognise(entry: Mapping[str, Any]) -> KnownServer:
    """Return the kind of a server, which is nameless if it is not recognised.

    Args:
        entry: The model's entry in the server's list of models.
    """
    owner = entry.get("owned_by")
    return _OF_OWNER.get(owner, KnownServer()) if isinstance(owner, str) else KnownServer()
