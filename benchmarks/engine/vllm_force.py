"""vLLM's side of forced tokens: its worker loads this module by name.

Each request has its ids in `extra_args`.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality


class Force(LogitsProcessor):
    """Lets each row choose the id that is its turn; rows without forced ids choose their own."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:  # noqa: FBT001  # vLLM's signature
        # row -> forced ids, ids made so far (vLLM's own list, which grows)
        self.rows: dict[int, tuple[list[int], list[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.rows.pop(row, None)
        for row, parameters, _, made in batch_update.added:
            self.rows.pop(row, None)
            if forced := (parameters.extra_args or {}).get("forced"):
                self.rows[row] = (forced, made)
        for source, target, direction in batch_update.moved:
            moving, replaced = self.rows.pop(source, None), self.rows.pop(target, None)
            if moving is not None:
                self.rows[target] = moving
            if replaced is not None and direction == MoveDirectionality.SWAP:
                self.rows[source] = replaced

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        turns = [(row, forced[len(made)]) for row, (forced, made) in self.rows.items() if len(made) < len(forced)]
        if turns:
            rows, ids = zip(*turns, strict=True)
            logits[list(rows), list(ids)] = 1e9
        return logits
