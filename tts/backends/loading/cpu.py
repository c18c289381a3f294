"""Checks of this CPU's instructions for bfloat16 products."""

from __future__ import annotations

from typing import Any

import torch

from tts.errors import ConfigError


def has_bfloat16() -> bool:
    """Whether this CPU has instructions for products of bfloat16, and oneDNN is there to use them.

    Without these instructions such products take minutes.
    """
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    has_instructions = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return torch.backends.mkldnn.is_available() and has_instructions


def check_bfloat16(option: str, instead: str) -> None:
    """Check that this CPU has instructions for bfloat16.

    Args:
        option: The name of the option, for the error.
        instead: The other values of the option, for the error.

    Raises:
        ConfigError: This CPU has no such instructions.
    """
    if not has_bfloat16():
        raise ConfigError(
            f"{option} is 'bfloat16', but this CPU has no instructions for it", hint=f"use {instead}, or leave it out"
        )
