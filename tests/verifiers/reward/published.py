"""Reward models of the published architectures and tokenizer kinds, tiny and random, saved as their authors save
theirs.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HIDDEN = 32
PROBLEM = "What is 3 + 4 - 2?"
STEPS = ["First, 3 + 4 = 7.", "Then the 7 - 2 = 5.", "So the answer is 5."]

LLAMA_TEMPLATE = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim %}"
    "{% set messages = messages[1:] %}"
    "{% else %}{% set system = '' %}{% endif %}"
    "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul "
    "2024\n\n{{ system }}<|eot_id|>"
    "{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] | trim "
    "}}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
QWEN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Where the vocabularies of Mistral 7B and Llama 3 have what the records name as text, by the authors' own code and
# comments.
MISTRAL_IDS = {"▁+": 648, "▁-": 387, "▁ки": 12902}
LLAMA_IDS = {"+": 10, "-": 12}
_BYTE_MERGES = (
    ("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "="), ("Ġ", "+"), ("Ġ", "-"), (".", "Ċ"), ("Ċ", "Ċ"), (".", "ĊĊ"),
    ("i", "s"), ("Ġ", "is"), ("e", "n"), ("Ġ", "T"), ("ĠT", "h"), ("ĠTh", "en"), ("Ġ", "F"),
)  # fmt: skip


def byte_level(special: list[str], template: str | None, *, bos: str | None, eos: str) -> Any:
    """Return a byte-level BPE tokenizer, as those of Llama 3 and Qwen 2."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in _BYTE_MERGES), *special]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=list(_BYTE_MERGES)))
    words = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    if bos is not None and bos == special[0] and template == LLAMA_TEMPLATE:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        eos_token=eos,
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


@cache
def sentencepiece_like() -> Any:
    """Return a tokenizer as that of Mistral 7B: a blank put before every text, blanks as ▁, bytes for what it has no
    characters for.
    """
    transformers = pytest.importorskip("transformers")
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    merges = [
        ("к", "и"),
        ("▁", "ки"),
        ("▁", "+"),
        ("▁", "-"),
        ("t", "h"),
        ("th", "e"),
        ("▁", "the"),
        ("i", "s"),
        ("▁", "is"),
        ("▁", "="),
    ]
    letters = [chr(code) for code in range(33, 127)] + ["▁", "к", "и"]
    known = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *letters,
        *("".join(pair) for pair in merges),
    ]
    tokens = [token for token in known if token not in MISTRAL_IDS] + [
        f"<{i}>" for i in range(max(MISTRAL_IDS.values()))
    ]
    for token, i in sorted(MISTRAL_IDS.items(), key=lambda one: one[1]):
        tokens.insert(i, token)
    vocab = {token: i for i, token in enumerate(tokens[: 1 + max(MISTRAL_IDS.values())])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in ("<unk>", "<s>", "</s>")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


def llama_tokenizer() -> Any:
    special = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
    return byte_level(special, LLAMA_TEMPLATE, bos="<|begin_of_text|>", eos="<|eot_id|>")


def qwen_tokenizer(*, bos: str | None = None) -> Any:
    return byte_level(
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<extra_0>"], QWEN_TEMPLATE, bos=bos, eos="<|im_end|>"
    )


def model_of(kind: str, vocab: int, *, context: int = 512, hidden: int = HIDDEN, seed: int = 5) -> Any:
    """Return a random model: "mistral", "llama" or "qwen2", of 2 layers and 2 heads."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    configs = {
        "mistral": transformers.MistralConfig,
        "llama": transformers.LlamaConfig,
        "qwen2": transformers.Qwen2Config,
    }
    more = {"sliding_window": None} if kind == "mistral" else {}
    config = configs[kind](
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=hidden // 2,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
        **more,
    )
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if "norm" not in name:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.3
    return model


def head_tensors(record: Any, hidden: int = HIDDEN, seed: int = 9) -> dict[str, Any]:
    """Return random tensors for a record's head, by name."""
    torch = pytest.importorskip("torch")
    draws = np.random.Generator(np.random.Philox(seed))
    tensors: dict[str, Any] = {}
    for i, layer in enumerate(record.readout.layers):
        size = record.readout.outputs if i == len(record.readout.layers) - 1 else hidden
        tensors[layer.weight] = torch.from_numpy(draws.normal(0, 0.5, (size, hidden)).astype(np.float32))
        if layer.bias is not None:
            tensors[layer.bias] = torch.from_numpy(draws.normal(0, 0.5, size).astype(np.float32))
    return tensors


TOKENIZERS = {
    "math-shepherd": sentencepiece_like,
    "rlhflow-mistral": llama_tokenizer,
    "rlhflow-deepseek": llama_tokenizer,
    "rlhflow-orm-mistral": llama_tokenizer,
    "rlhflow-orm-deepseek": llama_tokenizer,
    "qwen2.5-math-prm-7b": qwen_tokenizer,
    "qwen2.5-math-prm-72b": qwen_tokenizer,
    "skywork-o1-prm-1.5b": lambda: qwen_tokenizer(bos="<|endoftext|>"),
    "skywork-o1-prm-7b": lambda: qwen_tokenizer(bos="<|endoftext|>"),
}


def saved(record: Any, folder: Path, *, context: int = 512, hidden: int = HIDDEN) -> Any:
    """Write a tiny model for a record, with its head among its weights; return the model."""
    from safetensors.torch import load_file, save_file

    tokenizer = TOKENIZERS[record.name]()
    model = model_of(record.architecture, len(tokenizer), context=context, hidden=hidden)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if record.readout.kind == "head":
        file = folder / "model.safetensors"
        save_file({**load_file(file), **head_tensors(record, hidden)}, file, metadata={"format": "pt"})
    return model
