"""Batched inverse-CDF sampling on the logits' device: the draw of vLLM's rows.

The draw uses the rows' own uniform numbers. Its plain reference is `tts.backends.sampling.draw`, which has the same
distribution; a test holds the two equal.

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tts.backends.base import Sampling


def draw_tokens(logits: torch.Tensor, samplings: Sequence[Sampling], numbers: NDArray[np.float64]) -> torch.Tensor:
    """Return the tokens [R] that uniform numbers give through the inverse CDF in token-id order.

    Args:
        logits: [R, V] logits of the rows.
        samplings: R sampling parameters, of temperatures above 0.
        numbers: [R] uniform numbers in [0, 1).
    """
    settings = [(s.temperature, s.top_p, s.top_k, s.min_p) for s in samplings]
    temperature, top_p, top_k, min_p = torch.tensor(settings, dtype=torch.float64, device=logits.device).T[..., None]
    wide = logits.double()
    probs = torch.softmax((wide - wide.amax(-1, keepdim=True)) / temperature, dim=-1)
    if any(s.top_k or s.top_p < 1 for s in samplings):
        probs = _most_likely(probs, top_k, top_p)
    if any(s.min_p for s in samplings):
        probs = probs * (probs >= min_p * probs.amax(-1, keepdim=True))
    cumulated = probs.cumsum(-1)
    wanted = torch.as_tensor(numbers, device=logits.device)[:, None] * cumulated[:, -1:]
    return torch.searchsorted(cumulated, wanted, right=True)[:, 0]


def _most_likely(probs: Any, top_k: Any, top_p: Any) -> Any:
    """Keep the `top_k` most likely tokens (0: all), then of these the fewest with `top_p` of their mass.

    Lower ids win ties.
    """
    ranked, ids = torch.sort(probs, dim=-1, descending=True, stable=True)
    places = torch.arange(probs.shape[-1], device=probs.device)
    ranked = ranked * ((places < top_k) | (top_k == 0))
    mass = ranked.cumsum(-1)
    before = torch.nn.functional.pad(mass[:, :-1], (1, 0))
    ranked = ranked * ((before < top_p * mass[:, -1:]) | (top_p == 1))
    return torch.zeros_like(probs).scatter_(-1, ids, ranked)
