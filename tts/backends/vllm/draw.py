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
    columns = torch.tensor(settings, dtype=torch.float64, device=logits.device).T[..., None]
    temperature, top_p, top_k, min_p = columns  # each [R, 1]
    wide_logits = logits.double()
    probs = torch.softmax((wide_logits - wide_logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    if any(s.top_k or s.top_p < 1 for s in samplings):
        probs = _most_likely(probs, top_k, top_p)
    if any(s.min_p for s in samplings):
        probs = probs * (probs >= min_p * probs.amax(-1, keepdim=True))
    cumulated = probs.cumsum(-1)
    targets = torch.as_tensor(numbers, device=logits.device)[:, None] * cumulated[:, -1:]  # [R, 1]
    return torch.searchsorted(cumulated, targets, right=True)[:, 0]


def _most_likely(probs: Any, top_k: Any, top_p: Any) -> Any:
    """Return probabilities [R, V] with those of all tokens set to 0 except those that top-k and then top-p keep.

    Top-k keeps the `top_k` most likely tokens (0: all). Among these, top-p keeps the fewest tokens that have the share
    `top_p` of their mass. Lower ids win ties.
    """
    sorted_probs, ids = torch.sort(probs, dim=-1, descending=True, stable=True)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    sorted_probs = sorted_probs * ((rank < top_k) | (top_k == 0))
    mass = sorted_probs.cumsum(-1)
    mass_before = torch.nn.functional.pad(mass[:, :-1], (1, 0))
    sorted_probs = sorted_probs * ((mass_before < top_p * mass[:, -1:]) | (top_p == 1))
    return torch.zeros_like(probs).scatter_(-1, ids, sorted_probs)
