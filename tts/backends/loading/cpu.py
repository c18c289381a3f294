"""Which products this CPU has instructions for."""

from __future__ import annotations

from typing import Any

import torch

from tts.errors import ConfigError


def has_bfloat16() -> bool:
    """Whether this CPU has instructions for products of bfloat16, and oneDNN is there to use them.

    Without these instructions such products take minutes.
    """
    able: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return torch.backends.mkldnn.is_available() and bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def check_bfloat16(option: str, instead: str) -> None:
    """Check that bfloat16 can be had on this CPU.

    Args:
        option: Its name, for the error.
        instead: What it may be.

    Raises:
        ConfigError: this CPU has no instructions for it.
    """
    if not has_bfloat16():
        raise ConfigError(
            f"{option} is 'bfloat16', but this CPU has no instructions for it", hint=f"use {instead}, or leave it out"
        )
