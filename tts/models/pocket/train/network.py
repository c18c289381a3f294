"""The pair's architecture, made, saved and loaded; and how a batch becomes a loss."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from tts.backends.loading import quiet
from tts.models.pocket.train.examples import IGNORED, Batch

CONTEXT = 1024


def new_policy(tokenizer: Any, seed: int, device: str = "cpu") -> LlamaForCausalLM:
    """Return an untrained policy: Llama, 2.4 million parameters, heads of 64."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=6,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(seed)
        return _on(LlamaForCausalLM(config), device)


def load(folder: Path, device: str = "cpu") -> LlamaForCausalLM:
    """Return a saved model in float32."""
    with quiet():
        return _on(LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True), device)


def _on(model: LlamaForCausalLM, device: str) -> LlamaForCausalLM:
    torch.nn.Module.to(model, device)  # transformers' own `to` hides its signature
    return model


def save(model: LlamaForCausalLM, tokenizer: Any, folder: Path) -> None:
    """Write a model in the format of the transformers library, its weights in float16, as one file."""
    folder.mkdir(parents=True, exist_ok=True)
    config = LlamaConfig.from_dict(model.config.to_dict() | {"dtype": "float16"})
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(folder)
    GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
        temperature=0.8,
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = {name: p.detach().to(torch.float16).contiguous() for name, p in model.state_dict().items() if name != "lm_head.weight"}
    save_tensors(weights, folder / "model.safetensors")


def save_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), path.with_suffix(".new"), metadata={"format": "pt"})
    path.with_suffix(".new").replace(path)


def next_token_loss(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Return the mean loss of the tokens that a batch labels, in nats."""
    device = model.device
    with torch.autocast(device.type, torch.bfloat16):
        states = model.model(input_ids=batch.ids[:, :-1].to(device), use_cache=False).last_hidden_state
        labels = batch.labels[:, 1:].to(device)
        wanted = labels != IGNORED
        logits = model.lm_head(states[wanted])
    return torch.nn.functional.cross_entropy(logits.float(), labels[wanted])


@torch.no_grad()
def mean_loss(model: LlamaForCausalLM, batches: list[Batch]) -> float:
    """Return the mean of `next_token_loss` over batches."""
    model.eval()
    return sum(next_token_loss(model, batch).item() for batch in batches) / len(batches)
