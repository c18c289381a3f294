"""A vLLM server's own batch, in process, without HTTP; run in an environment that has vLLM.

    python -m benchmarks.servers.offline MODEL ENGINE_ARGUMENTS_AS_JSON

In:  {"prompts": [[id, ...], ...], "n": 16, "kept": 4, "levels": 1, "tokens": 8}     a line of JSON a run
Out: {"ready": version}, then {"seconds": ..., "generated": ..., "inputs": ..., "cached": ...} a run

One level is one call of `generate`. With several, each prompt's rows wait for its rows of the level before, as in a
search, and for nothing else. The first `kept` paths that have not ended go on.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any


class Offline:
    def __init__(self, model: str, options: dict[str, Any]) -> None:
        import vllm
        from vllm.sampling_params import RequestOutputKind

        self._llm = vllm.LLM(model, **options, seed=0)
        self._params, self._kind = vllm.SamplingParams, RequestOutputKind.FINAL_ONLY
        self.version = vllm.__version__

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        self._llm.reset_prefix_cache()
        started = time.perf_counter()
        done = self._batch(job) if job["levels"] == 1 else self._replay(job)
        seconds = time.perf_counter() - started
        return {
            "seconds": seconds,
            "generated": sum(len(row.token_ids) for one in done for row in one.outputs),
            "inputs": sum(len(one.prompt_token_ids) for one in done),
            "cached": sum(one.num_cached_tokens or 0 for one in done),
        }

    def _sampling(self, job: dict[str, Any], n: int) -> Any:
        return self._params(n=n, temperature=1.0, max_tokens=job["tokens"], output_kind=self._kind)

    def _batch(self, job: dict[str, Any]) -> Sequence[Any]:
        prompts = [{"prompt_token_ids": ids} for ids in job["prompts"]]
        return self._llm.generate(prompts, self._sampling(job, job["n"]), use_tqdm=False)

    def _replay(self, job: dict[str, Any]) -> Sequence[Any]:
        engine, done = self._llm.llm_engine, list[Any]()
        under_way: dict[str, tuple[int, int]] = {}  # the prompt and the level of each request
        live: dict[tuple[int, int], list[list[int]]] = {}

        def ask(prompt: int, level: int, paths: Sequence[Sequence[int]]) -> None:
            for place, path in enumerate(paths):
                name = f"{prompt}/{level}/{place}"
                under_way[name] = (prompt, level)
                rows = len(range(place, job["n"], len(paths)))
                engine.add_request(name, {"prompt_token_ids": list(path)}, self._sampling(job, rows))

        for prompt, ids in enumerate(job["prompts"]):
            ask(prompt, 0, [ids])
        while engine.has_unfinished_requests():
            for reply in (one for one in engine.step() if one.finished):
                done.append(reply)
                address = prompt, level = under_way.pop(reply.request_id)
                paths = live.setdefault(address, [])
                paths += [
                    [*reply.prompt_token_ids, *row.token_ids] for row in reply.outputs if row.finish_reason == "length"
                ]
                if level + 1 < job["levels"] and address not in under_way.values():
                    ask(prompt, level + 1, live.pop(address)[: job["kept"]])
        return done


def main() -> None:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what vLLM prints is no reply
    offline = Offline(sys.argv[1], json.loads(sys.argv[2]))
    out.write(json.dumps({"ready": offline.version}) + "\n")
    for line in sys.stdin:
        out.write(json.dumps(offline.run(json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
