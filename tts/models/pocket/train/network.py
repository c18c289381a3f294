"""The pair's architecture, made, saved and loaded; and how a batch becomes a loss."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from tts.backends.loading import quiet
from tts.models.pocket.train.examples import IGNORED, Batch

CONTEXT = 1024
HEAD = "head.safetensors"


def new_policy(tokenizer: Any, seed: int, device: str = "cpu") -> LlamaForCausalLM:
    """Return an untrained policy: Llama, 3.2 million parameters, heads of 64."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=8,
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


class Reader(torch.nn.Module):
    """A decoder and a linear head on its hidden states, which says whether a solution is right as far as a token, or still leads there."""

    def __init__(self, trunk: LlamaForCausalLM) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = torch.nn.Linear(trunk.config.hidden_size, 1)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self.head.to(trunk.device)


def load_reader(folder: Path, device: str = "cpu") -> Reader:
    """Return a saved model with its head."""
    model = Reader(load(folder, device))
    model.head.load_state_dict({name: value.reshape(getattr(model.head, name).shape) for name, value in load_file(folder / HEAD).items()})
    return model


def save_reader(model: Reader, tokenizer: Any, folder: Path, head: Path | None = None) -> None:
    """Write a model and, as FOLDER/head.safetensors unless another file is named, its head."""
    save(model.trunk, tokenizer, folder)
    save_head(model.head.weight[0], model.head.bias, folder / HEAD if head is None else head)


def save_head(weight: torch.Tensor, bias: torch.Tensor, path: Path) -> None:
    """Write a linear head. weight: [hidden]; bias: [1]."""
    save_tensors({"weight": weight.detach().float().cpu().contiguous(), "bias": bias.detach().float().cpu().contiguous()}, path)


def losses(model: Reader, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean loss of the tokens that a batch labels, and that of its rights, in nats."""
    with torch.autocast(model.trunk.device.type, torch.bfloat16):
        states = model.trunk.model(input_ids=batch.ids.to(model.trunk.device), use_cache=False).last_hidden_state
        labels = batch.labels[:, 1:].to(states.device)
        logits = model.trunk.lm_head(states[:, :-1][labels != IGNORED])
        judged = batch.right.to(states.device)
        rights = model.head(states[judged >= 0])[:, 0]
    written = torch.nn.functional.cross_entropy(logits.float(), labels[labels != IGNORED])
    return written, torch.nn.functional.binary_cross_entropy_with_logits(rights.float(), judged[judged >= 0])


@torch.no_grad()
def mean_losses(model: Reader, batches: list[Batch]) -> tuple[float, float]:
    """Return the means of `losses` over batches."""
    model.eval()
    found = [losses(model, batch) for batch in batches]
    return sum(one.item() for one, _ in found) / len(found), sum(one.item() for _, one in found) / len(found)
