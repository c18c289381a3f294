"""The loss of GRPO over groups of any sizes. It needs torch alone."""

from __future__ import annotations

import torch
from torch import Tensor


def policy_loss(logprobs: Tensor, before: Tensor, advantages: Tensor, mask: Tensor, *, clip: float = 0.2) -> Tensor:
    """Return the clipped loss: the mean over rollouts of the mean over their tokens.

    Source: Shao et al., "DeepSeekMath" (2402.03300), equation 3 without the penalty for leaving the reference; the
    `grpo` loss of TRL. The groups are in the advantages alone, so their sizes may differ.

    Args:
        logprobs: The natural log-probabilities of the tokens under the model that is trained, [rollouts, tokens].
        before: The log-probabilities under the model that wrote the tokens, [rollouts, tokens].
        advantages: The advantages of the rollouts, [rollouts].
        mask: 1 for tokens that the model wrote, else 0, [rollouts, tokens].
        clip: The greatest distance of the ratio of probabilities from 1.
    """
    ratio = torch.exp(logprobs - before)
    gains = torch.minimum(ratio * advantages[:, None], ratio.clamp(1 - clip, 1 + clip) * advantages[:, None])
    return -((gains * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)).mean()
