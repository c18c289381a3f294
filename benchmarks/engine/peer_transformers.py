"""The same trees on transformers, in two ways that people use.

    python -m benchmarks.engine.peer_transformers MODEL_FOLDER --variant generate|cache

`generate`: one call of `model.generate` a level, all rows together; their paths are read anew each time, once for each
row, as `num_return_sequences` does it. `cache`: `forward` with a cache. Each node keeps its own keys, and a child's row
starts from a copy of its path's. Rows of all parents decode in one batch, padded on the left. A finished row leaves the
batch.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.engine.facts import Facts
from benchmarks.engine.protocol import own_stdout, serve

OUT = own_stdout()

import torch  # after standard output is ours
import transformers

from benchmarks.engine.transformers_trees import Cached, Generate, Shared


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--variant", choices=("generate", "cache"), required=True)
    parser.add_argument("--most-rows", type=int, default=64)
    options = parser.parse_args()

    def make(_: Sequence[Facts]) -> tuple[Shared, dict[str, str]]:
        transformers.logging.set_verbosity_error()
        model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
        kind = Generate if options.variant == "generate" else Cached
        return kind(model.eval(), options.most_rows), {
            "transformers": transformers.__version__,
            "torch": torch.__version__,
        }

    with torch.inference_mode():
        serve(make, OUT)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
