"""The quality that fewer bits cost: next-token distributions in float32 and in lower precision.

    python -m benchmarks.engine.int8_quality [MODEL] [--precision int8|bfloat16|float32] [--halves] [--head]
        [--tokens 64] [--json]

The linear layers or the keys of the model have fewer bits. Every prompt is continued greedily in float32.

- Teacher-forced: both models read that continuation. At each of its tokens two things are taken: the divergence
  KL(float32 || int8) in nats, and whether both would choose the same token.
- Free-running: int8 continues the prompts itself. Agreement is the share of places with the same token. The prefix is
  the number of tokens before the first other one.

The LM head stays float32 unless --head is given, as in the engine. With --halves, rotated keys and values are rounded
to float16, as with the engine's option `kv_precision="float16"`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from tts.backends.engine.linear import Linear, Precision, make_linear
from tts.backends.loading.models import load
from tts.errors import TTSError
from tts.models.registry import get

_ROUNDED = "rounded"
PROMPTS = (
    "What is 17 + 26?",
    "Tom has 3 boxes with 12 pencils each. He gives away 9 pencils. How many are left?",
    "A train leaves at 9:40 and arrives at 13:05. How long does the trip take?",
    "Solve for x: 3x - 7 = 20.",
    "What is the sum of the first ten positive integers?",
    "Is 91 a prime number? Explain.",
    "A shirt costs $40 and is sold at 15% off. What is the price?",
    "List the factors of 36.",
    "Write a Python function that reverses a string.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "What does the SQL statement SELECT do?",
    "Explain what a hash table is.",
    "What is the capital of France?",
    "Why is the sky blue?",
    "Name three planets of the solar system and one fact about each.",
    "How do plants make food?",
    "Who wrote Romeo and Juliet, and what is it about?",
    "Summarise in one sentence: The meeting was moved to Friday because the room was double-booked and two speakers "
    "were ill.",
    "Translate to French: Good morning, how are you?",
    "Write a two-line poem about the sea.",
    "Give me a recipe for pancakes.",
    "Write a polite e-mail asking for a day off.",
    "What are the advantages of riding a bicycle to work?",
    "Tell a short story about a lost dog.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The distance of a model in another precision from the model in float32, over all tokens."""

    model: str
    precision: str
    prompts: int
    tokens: int
    kl_mean: float
    kl_median: float
    kl_p99: float
    kl_max: float
    forced_agreement: float
    free_agreement: float
    free_prefix: float

    def __str__(self) -> str:
        return (
            f"{self.model} {self.precision}: KL {self.kl_mean:.4f} nats a token (p99 {self.kl_p99:.3f}), the same "
            "greedy token "
            f"{self.forced_agreement:.1%} teacher-forced and {self.free_agreement:.1%} free-running ({self.tokens} "
            "tokens)"
        )


class Swapped(torch.nn.Module):
    """One of our layers where a model expects one of torch's: rows of all sequences at once."""

    def __init__(self, layer: Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], self.layer.out_features)


@contextmanager
def swap_layers(model: Any, precision: Precision, *, head: bool) -> Generator[None]:
    """Replace a model's linear layers, and put them back."""
    output = model.get_output_embeddings()
    places = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, torch.nn.Linear) and (head or child is not output)
    ]
    for parent, name, child in places:
        setattr(
            parent, name, Swapped(make_linear(child.weight.detach(), child.bias, precision=precision, strict=False))
        )
    try:
        yield
    finally:
        for parent, name, child in places:
            setattr(parent, name, child)


@contextmanager
def rounded_keys(model: Any) -> Generator[None]:
    """Round the keys and values that a model's attention reads to float16, and put its attention back."""
    before, exact = model.config._attn_implementation, ALL_ATTENTION_FUNCTIONS["sdpa"]

    def attention(module: Any, queries: Any, keys: Any, values: Any, *args: Any, **options: Any) -> Any:
        return exact(module, queries, keys.half().float(), values.half().float(), *args, **options)

    ALL_ATTENTION_FUNCTIONS.register(_ROUNDED, attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(_ROUNDED, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    model.set_attn_implementation(_ROUNDED)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def measure(
    name: str,
    *,
    precision: Precision = "int8",
    halves: bool = False,
    head: bool = False,
    tokens: int = 64,
    prompts: Sequence[str] = PROMPTS,
) -> Quality:
    """Return how far a model of the registry moves in another precision, and with float16 keys."""
    loaded = load(get(name), device="cpu", dtype=torch.float32)
    model = loaded.model.eval()
    starts = [render_prompt(loaded.tokenizer, prompt) for prompt in prompts]
    with torch.no_grad():
        wanted = continue_texts(model, starts, tokens)
        expected = score_ends(model, starts, wanted)
        with swap_layers(model, precision, head=head), rounded_keys(model) if halves else nullcontext():
            logprobs = score_ends(model, starts, wanted)
            free = continue_texts(model, starts, tokens)
    divergence = functional.kl_div(logprobs, expected, reduction="none", log_target=True).sum(-1)
    same = [[a == b for a, b in zip(mine, theirs, strict=False)] for mine, theirs in zip(free, wanted, strict=True)]
    lengths = [max(len(mine), len(theirs)) for mine, theirs in zip(free, wanted, strict=True)]
    return Quality(
        model=name,
        precision=precision + (" with its head" if head else "") + (", keys and values float16" if halves else ""),
        prompts=len(prompts),
        tokens=len(divergence),
        kl_mean=float(divergence.mean()),
        kl_median=float(divergence.median()),
        kl_p99=float(divergence.quantile(0.99)),
        kl_max=float(divergence.max()),
        forced_agreement=float((logprobs.argmax(-1) == expected.argmax(-1)).double().mean()),
        free_agreement=sum(map(sum, same)) / sum(lengths),
        free_prefix=sum([*row, False].index(False) for row in same) / len(same),
    )


def render_prompt(tokenizer: Any, prompt: str) -> list[int]:
    """Return a prompt's tokens, as a user's turn where the model knows turns."""
    if not tokenizer.chat_template:
        return tokenizer.encode(prompt)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    return tokenizer.encode(text, add_special_tokens=False)


def continue_texts(model: Any, starts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Return greedy continuations, each up to its end of sequence.

    All prompts are read together, padded on the left.
    """
    width = max(map(len, starts))
    ids = torch.tensor([[0] * (width - len(start)) + list(start) for start in starts])
    mask = torch.tensor([[0] * (width - len(start)) + [1] * len(start) for start in starts])
    out = model.generate(ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, pad_token_id=0)[
        :, width:
    ].tolist()
    ends = model.generation_config.eos_token_id
    ends = set(ends if isinstance(ends, list) else [ends])
    return [row[: next((i + 1 for i, token in enumerate(row) if token in ends), len(row))] for row in out]


def score_ends(model: Any, starts: Sequence[Sequence[int]], ends: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the log-probabilities `[tokens of all ends, vocabulary]` before each token of continuations."""
    rows = []
    for start, end in zip(starts, ends, strict=True):
        logits = model(torch.tensor([[*start, *end]])).logits[0, len(start) - 1 : -1]
        rows.append(logits.log_softmax(-1))
    return torch.cat(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--precision", default="int8", choices=["int8", "bfloat16", "float32"])
    parser.add_argument("--halves", action="store_true", help="keys and values in float16")
    parser.add_argument("--head", action="store_true", help="the LM head too")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        quality = measure(
            options.model, precision=options.precision, halves=options.halves, head=options.head, tokens=options.tokens
        )
    except TTSError as failure:
        sys.exit(f"error: {failure}")
    if options.json:
        print(json.dumps(asdict(quality)))
        return
    for name, value in asdict(quality).items():
        print(f"{name:18}{value:>12.4f}" if isinstance(value, float) else f"{name:18}{value:>12}")
    print(quality)


if __name__ == "__main__":
    main()
