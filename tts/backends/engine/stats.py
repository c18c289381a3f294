"""Exact counters of what the engine's steps computed, moved and held, and a report of each step."""

from __future__ import annotations

from dataclasses import dataclass, field

from tts.backends.engine.decoder import Decoder
from tts.backends.engine.planning import StepPlan


@dataclass(frozen=True)
class StepReport:
    """One step, as measured.

    The seconds are `planning` on the host, the `forward` pass, and the `rest`: drawing, and ending rows.
    """

    tokens: int
    sequences: int
    keys_read: int
    planning: float
    forward: float
    rest: float


@dataclass(slots=True)
class EngineStats:
    """Exact counters of a model's steps since it was made.

    A problem is charged for its own calls only. These counters include the work that memory pressure adds, and leave
    out the work that sharing between problems saves.

    Args:
        steps: Forward passes.
        rows: Nodes fed, summed over passes.
        rows_histogram: Passes by number of tokens fed.
        prefill_computed: Tokens read (prompts, forced texts, scored texts, last tokens of rows), recomputed ones
            included.
        prefill_reused: Tokens of paths that had keys and values when work on them began.
        recomputed: Tokens read again after eviction, or for logits that were dropped.
        decode_tokens: Tokens drawn.
        cancelled_tokens: Tokens drawn for rows that were cancelled.
        flops_linear: The FLOPs of linear layers for all tokens fed.
        flops_attention: The FLOPs of attention for all tokens fed.
        weight_bytes_read: Passes times bytes of weights.
        kv_read_actual: Bytes of keys and values that plans read.
        kv_read_unshared: Bytes of keys and values that plans would read without sharing.
        kv_tokens_peak: Most tokens ever held, in whole blocks.
        parked: How often a job was set aside for older work.
        evictions: How many nodes were evicted.
        shrunk: How often a step ran out of memory, so that later ones are smaller.
    """

    steps: int = 0
    rows: int = 0
    rows_histogram: dict[int, int] = field(default_factory=dict[int, int])
    prefill_computed: int = 0
    prefill_reused: int = 0
    recomputed: int = 0
    decode_tokens: int = 0
    cancelled_tokens: int = 0
    flops_linear: int = 0
    flops_attention: int = 0
    weight_bytes_read: int = 0
    kv_read_actual: int = 0
    kv_read_unshared: int = 0
    kv_tokens_peak: int = 0
    parked: int = 0
    evictions: int = 0
    shrunk: int = 0

    def count_pass(self, decoder: Decoder, planned: StepPlan, *, rows: int, prefill: int, num_logits: int) -> None:
        """Count one forward pass.

        Args:
            decoder: The model.
            planned: The step.
            rows: Nodes fed.
            prefill: Tokens read.
            num_logits: Tokens whose logits were computed.
        """
        config = decoder.config
        num_tokens = len(planned.plan.positions)
        kv_bytes = decoder.kv_shape.bytes_per_token
        layer_weights, head_weights = decoder.products
        self.steps += 1
        self.rows += rows
        self.rows_histogram[num_tokens] = self.rows_histogram.get(num_tokens, 0) + 1
        self.prefill_computed += prefill
        self.flops_linear += 2 * (layer_weights * num_tokens + head_weights * num_logits)
        self.flops_attention += 4 * config.heads * config.head_size * config.layers * planned.keys_unshared
        self.weight_bytes_read += decoder.weight_bytes
        self.kv_read_actual += kv_bytes * planned.keys_read
        self.kv_read_unshared += kv_bytes * planned.keys_unshared
