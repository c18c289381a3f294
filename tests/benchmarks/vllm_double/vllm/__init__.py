"""What stands in for vLLM in a test of the throughput benchmark: every row is as long as it may be, and nothing is
computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

__version__ = "double"


class SamplingParams:
    def __init__(self, *, n: int, temperature: float, max_tokens: int, output_kind: object) -> None:
        self.n, self.max_tokens = n, max_tokens


class LLM:
    """The engine is the object itself; one step answers one request."""

    def __init__(self, model: str, **options: Any) -> None:
        self.waiting: list[tuple[str, Sequence[int], SamplingParams]] = []
        self.llm_engine = self

    def reset_prefix_cache(self) -> None:
        self.waiting = []

    def generate(self, prompts: Sequence[Any], params: SamplingParams, *, use_tqdm: bool) -> list[Any]:
        for i, prompt in enumerate(prompts):
            self.add_request(str(i), prompt, params)
        return [reply for _ in prompts for reply in self.step()]

    def add_request(self, name: str, prompt: Any, params: SamplingParams) -> None:
        self.waiting.append((name, prompt["prompt_token_ids"], params))

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting)

    def step(self) -> list[Any]:
        name, ids, params = self.waiting.pop(0)
        rows = [SimpleNamespace(token_ids=[i] * params.max_tokens, finish_reason="length") for i in range(params.n)]
        return [
            SimpleNamespace(
                request_id=name, prompt_token_ids=list(ids), outputs=rows, num_cached_tokens=0, finished=True
            )
        ]
