"""The same trees on vLLM: one request a child, its prompt the parent's path, prefix caching on.

    python -m benchmarks.engine.peer_vllm MODEL_FOLDER

The module runs in an environment that has vLLM. A process model is the same weights under another cache salt: its keys
are its own, as a second engine's would be. Readings are requests for one token with the log-probabilities of the ids
asked for. Such requests do use the cache.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from typing import Any

from benchmarks.engine.facts import Facts
from benchmarks.engine.protocol import Children, own_stdout, serve

LENGTH, ROWS = 2048, 256  # at least, so that small and large trees find the same compiled model
BLOCK = 32  # the least that its attention on CPUs takes


class Vllm:
    def __init__(self, llm: Any, parameters: Any) -> None:
        self.llm, self.parameters = llm, parameters
        self.reset()

    def reset(self) -> None:
        self.llm.reset_prefix_cache()
        self.paths: dict[int, list[int]] = {}
        self.computed = self.reused = 0

    def open(self, node: int, ids: Sequence[int]) -> Sequence[int]:
        self.paths[node] = list(ids)  # read with its first children: blocks are shared within one step too
        return ids

    def _generate(self, nodes: Sequence[int], parameters: Sequence[Any], salt: str) -> list[Any]:
        prompts = [{"prompt_token_ids": self.paths[node], "cache_salt": salt} for node in nodes]
        done = self.llm.generate(prompts, list(parameters), use_tqdm=False)
        cached = sum(request.num_cached_tokens or 0 for request in done)
        self.reused += cached
        self.computed += sum(len(self.paths[node]) for node in nodes) - cached
        return [request.outputs[0] for request in done]

    def expand(self, first: int, children: Children) -> Sequence[Sequence[int]]:
        forced = [
            self.parameters(
                temperature=0.0,
                max_tokens=len(ids),
                ignore_eos=True,
                detokenize=False,
                extra_args={"forced": list(ids)},
            )
            for _, ids in children
        ]
        made = self._generate([parent for parent, _ in children], forced, "policy")
        for node, ((parent, _), output) in enumerate(zip(children, made, strict=True), first):
            self.paths[node] = self.paths[parent] + list(output.token_ids)
        return [list(output.token_ids) for output in made]

    def read(self, nodes: Sequence[int], ids: Sequence[int], *, process: bool) -> Sequence[Sequence[float]]:
        asked = self.parameters(
            temperature=0.0, max_tokens=1, ignore_eos=True, detokenize=False, logprob_token_ids=list(ids)
        )
        made = self._generate(nodes, [asked] * len(nodes), "process" if process else "policy")
        return [[math.exp(output.logprobs[0][token].logprob) for token in ids] for output in made]

    def release(self, nodes: Sequence[int]) -> None:
        pass  # blocks that nobody uses are evicted when others need them; no request can say so earlier

    def counters(self) -> dict[str, Any]:
        return {"prefill_computed": self.computed, "prefill_reused": self.reused, "peak_kv_tokens": None}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--kv-gib", default="2")
    parser.add_argument(
        "--cpus", default="auto", help="cores of the worker, as VLLM_CPU_OMP_THREADS_BIND takes them, or all"
    )
    options = parser.parse_args()
    cpus = f"0-{(os.cpu_count() or 1) - 1}" if options.cpus == "all" else options.cpus
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": options.kv_gib, "VLLM_CPU_OMP_THREADS_BIND": cpus, "HF_HUB_OFFLINE": "1"}
    out = own_stdout()

    import torch
    import vllm

    def make(templates: Sequence[Facts]) -> tuple[Vllm, dict[str, str]]:
        llm = vllm.LLM(
            options.model,
            dtype="float32",
            enable_prefix_caching=True,
            block_size=BLOCK,
            max_model_len=max(LENGTH, *(one.longest + BLOCK for one in templates)),
            max_num_seqs=max(ROWS, *(one.width for one in templates)),
            logits_processors=["benchmarks.engine.vllm_force:Force"],
            disable_log_stats=True,
            seed=0,
        )
        return Vllm(llm, vllm.SamplingParams), {"vllm": vllm.__version__, "torch": torch.__version__}

    serve(make, out)


if __name__ == "__main__":
    main()
