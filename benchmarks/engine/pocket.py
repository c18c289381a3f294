"""Tokens a second of the engine on a model of a few million parameters.

    python -m benchmarks.engine.pocket [--rows 64] [--tokens 128] [--kv-heads 1] [--repeats 5] [--threads N] [--json]

In such a model, work outside of matrix products counts most. The model has random weights (Llama, hidden 192, 6
layers, 3 heads of 64, 94 tokens). The embedded pair has 8 layers. A run is best-of-N: one prompt of 64 tokens and
`rows` rows of `tokens` tokens, draws included. Figures are medians with the range of the repeats. Keys and values of
64 private tails exceed the cache: with three key-value heads, reading them takes most of a step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.engine.replay import Replayer
from tts.backends.engine.weights import Checkpoint

VOCABULARY = 94
PARTS = ("planning", "draws")


def pocket_checkpoint(kv_heads: int) -> Checkpoint:
    """Return a random model of about 3.5 million parameters, characters as tokens."""
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=3,
        num_key_value_heads=kv_heads,
        head_dim=64,
        max_position_embeddings=1024,
        bos_token_id=None,
        eos_token_id=0,
    )
    model = LlamaForCausalLM(config)
    tokenizer = Tokenizer(models.BPE(vocab={chr(33 + i): i for i in range(VOCABULARY)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return Checkpoint(
        config,
        dict(model.state_dict()),
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="!"),
        None,
        "pocket",
    )


def run_once(replayer: Replayer, rows: int, tokens: int) -> dict[str, float]:
    """Replay one best-of-N, and return tokens a second and the shares of planning and draws in the time.

    The prompt's reading is not counted.
    """
    draw = np.random.default_rng(0)
    replayer.reset()
    prompt = replayer.open(draw.integers(1, VOCABULARY, 64).tolist())
    before, began = replayer.stats(), time.perf_counter()
    children = replayer.expand([(prompt, draw.integers(1, VOCABULARY, tokens).tolist()) for _ in range(rows)])
    seconds = time.perf_counter() - began
    after = replayer.stats()
    replayer.release([prompt, *children])
    shares = {part: (after[f"seconds_{part}"] - before[f"seconds_{part}"]) / seconds for part in PARTS}
    return {"tokens_per_second": rows * tokens / seconds, **shares}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--kv-heads", type=int, default=1, choices=(1, 3))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    replayer = Replayer(pocket_checkpoint(options.kv_heads), threads=options.threads, max_rows=options.rows)
    run_once(replayer, options.rows, 16)
    runs = [run_once(replayer, options.rows, options.tokens) for _ in range(options.repeats)]
    report: dict[str, Any] = {"rows": options.rows, "kv_heads": options.kv_heads, "threads": torch.get_num_threads()}
    report["load"] = round(os.getloadavg()[0], 2)
    for name in runs[0]:
        values = sorted(run[name] for run in runs)
        report[name] = {"median": statistics.median(values), "least": values[0], "most": values[-1]}
    if options.json:
        print(json.dumps(report))
        return
    for name, value in report.items():
        median = (
            f"{value['median']:.3g}  ({value['least']:.3g} to {value['most']:.3g})"
            if isinstance(value, dict)
            else value
        )
        print(f"{name:20} {median}")


if __name__ == "__main__":
    main()
