"""The same trees on our engine, in this project's own environment.

    python -m benchmarks.engine.peer_ours [--precision float32|int8] [--halves] [--unshared] [--no-reuse]

`--unshared`: every row reads its whole path, as if nobody shared it. `--no-reuse`: every child computes its whole path
again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from benchmarks.engine.facts import Facts
from benchmarks.engine.protocol import Children, own_stdout, serve


class Ours:
    def __init__(self, replayer: Any) -> None:
        self.replayer = replayer
        self.nodes: dict[int, Any] = {}

    def reset(self) -> None:
        self.replayer.reset()
        self.nodes = {}

    def open(self, node: int, ids: Sequence[int]) -> Sequence[int]:
        self.nodes[node] = self.replayer.open(list(ids))
        return self.nodes[node].ids

    def expand(self, first: int, children: Children) -> Sequence[Sequence[int]]:
        made = self.replayer.expand([(self.nodes[parent], list(ids)) for parent, ids in children])
        self.nodes |= enumerate(made, first)
        return [node.ids for node in made]

    def read(self, nodes: Sequence[int], ids: Sequence[int], *, process: bool) -> Sequence[Sequence[float]]:
        asked = [self.nodes[node] for node in nodes]
        return (self.replayer.reward(asked, list(ids)) if process else self.replayer.score(asked, list(ids))).tolist()

    def release(self, nodes: Sequence[int]) -> None:
        self.replayer.release([self.nodes.pop(node) for node in nodes])

    def counters(self) -> dict[str, Any]:
        stats = self.replayer.stats()
        stats["per_step"] = [
            {"rows": rows, "keys": keys, "seconds": planning + forward + rest}
            for rows, _, keys, planning, forward, rest in stats.pop("step_reports")
        ]
        known = {
            "prefill_computed": "prefill_tokens",
            "prefill_reused": "reused_tokens",
            "peak_kv_tokens": "peak_unique_tokens",
        }
        return {name: stats.get(key) for name, key in known.items()} | {"stats": stats}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--halves", action="store_true", help="keys and values in float16")
    parser.add_argument("--unshared", action="store_true")
    parser.add_argument("--no-reuse", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--kv-budget-bytes", type=int)
    options = parser.parse_args()
    out = own_stdout()

    def make(_: Sequence[Facts]) -> tuple[Ours, dict[str, str]]:
        from benchmarks.engine.replay import Replayer

        replayer = Replayer(
            options.model,
            precision=options.precision,
            sharing=not options.unshared,
            reuse=not options.no_reuse,
            threads=options.threads,
            kv_budget_bytes=options.kv_budget_bytes,
            kv_precision="float16" if options.halves else None,
        )
        return Ours(replayer), {"torch": version("torch"), "numba": version("numba")}

    serve(make, out)


if __name__ == "__main__":
    main()
