"""The pair's architecture: made, saved, loaded, and applied to a batch for its loss."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from research.pocket.train.examples import IGNORED, Batch
from tts.backends.loading.cpu import has_bfloat16
from tts.backends.loading.hub import quiet

CONTEXT = 1024
HEAD = "head.safetensors"


def config_of(tokenizer: Any, **sizes: Any) -> LlamaConfig:
    """Return the configuration of one of the pair's models, for a tokenizer."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        **sizes,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def new_policy(tokenizer: Any, seed: int, device: str = "cpu") -> LlamaForCausalLM:
    """Return an untrained policy: Llama, 3.2 million parameters, heads of 64."""
    sizes = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 8}
    config = config_of(tokenizer, **sizes, num_attention_heads=3, num_key_value_heads=1, head_dim=64)
    with torch.random.fork_rng():
        torch.default_generator.manual_seed(seed)
        return _move(LlamaForCausalLM(config), device)


def load(folder: Path, device: str = "cpu") -> LlamaForCausalLM:
    """Return a saved model in float32."""
    with quiet():
        return _move(LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True), device)


def _move(model: LlamaForCausalLM, device: str) -> LlamaForCausalLM:
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
    weights = {
        name: p.detach().to(torch.float16).contiguous()
        for name, p in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_tensors(weights, folder / "model.safetensors")


def save_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(dict(tensors), path.with_suffix(".new"), metadata={"format": "pt"})
    path.with_suffix(".new").replace(path)


class Reader(torch.nn.Module):
    """A decoder and two linear heads on its hidden states.

    The head `head` says whether a solution is right as far as a token. In the process model it says whether the
    solution
    still leads to the right answer. The head `fits` says whether a token should follow the tokens before it, right or
    wrong. `fits` helps in learning, and no file keeps it.
    """

    def __init__(self, trunk: LlamaForCausalLM) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = _fill_zeros(torch.nn.Linear(trunk.config.hidden_size, 1)).to(trunk.device)
        self.fits = _fill_zeros(torch.nn.Linear(trunk.config.hidden_size, 1)).to(trunk.device)


def _fill_zeros(head: torch.nn.Linear) -> torch.nn.Linear:
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    return head


def load_reader(folder: Path, device: str = "cpu") -> Reader:
    """Return a saved model with its head."""
    model = Reader(load(folder, device))
    model.head.load_state_dict(
        {name: value.reshape(getattr(model.head, name).shape) for name, value in load_file(folder / HEAD).items()}
    )
    return model


def save_reader(model: Reader, tokenizer: Any, folder: Path, head: Path | None = None) -> None:
    """Write a model and, as FOLDER/head.safetensors unless another file is named, its head."""
    save(model.trunk, tokenizer, folder)
    save_head(model.head.weight[0], model.head.bias, folder / HEAD if head is None else head)


def save_head(weight: torch.Tensor, bias: torch.Tensor, path: Path) -> None:
    """Write a linear head.

    Args:
        weight: The weights, [hidden].
        bias: The bias, [1].
        path: The file.
    """
    save_tensors(
        {"weight": weight.detach().float().cpu().contiguous(), "bias": bias.detach().float().cpu().contiguous()}, path
    )


def save_likelihood(scale: float, shift: float, path: Path) -> None:
    """Write how the likelihood under a model is read: the scale and the shift of its log-odds."""
    save_tensors(
        {name: torch.tensor([value], dtype=torch.float64) for name, value in (("scale", scale), ("shift", shift))}, path
    )


def mixed_precision(device: torch.device) -> torch.autocast:
    """Return the context that training computes in.

    Products are in bfloat16 on a GPU, and on a CPU with instructions for them. Elsewhere they are in float32.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type != "cpu" or has_bfloat16())


def written_loss(model: Reader, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean loss of the tokens that a batch labels, and the hidden states.

    The loss is in nats. The states are [rows, tokens, hidden].
    """
    with mixed_precision(model.trunk.device):
        states = model.trunk.model(input_ids=batch.ids.to(model.trunk.device), use_cache=False).last_hidden_state
        labels = batch.labels[:, 1:].to(states.device)
        logits = model.trunk.lm_head(states[:, :-1][labels != IGNORED])
    return torch.nn.functional.cross_entropy(logits.float(), labels[labels != IGNORED]), states


def right_loss(model: Reader, states: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the mean loss, in nats, of telling at each judged token whether the solution is right so far."""
    return _binary_loss(model.head, states, batch.right >= 0, batch.right)


def fits_loss(model: Reader, states: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the mean loss, in nats, of telling at each judged token whether the token should stand there."""
    judged, written = batch.right >= 0, batch.labels != IGNORED
    # the other tokens of a slip say nothing
    before = torch.nn.functional.pad(written | ~judged, (1, 0), value=True)[:, :-1]
    return _binary_loss(model.fits, states, judged & (written | before), written.float())


def _binary_loss(head: torch.nn.Linear, states: torch.Tensor, at: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    with mixed_precision(states.device):
        found = head(states[at.to(states.device)])[:, 0]
    return torch.nn.functional.binary_cross_entropy_with_logits(found.float(), wanted[at].to(states.device))


@torch.no_grad()
def mean_loss(model: Reader, batches: list[Batch]) -> float:
    """Return the mean of `written_loss` over batches."""
    model.eval()
    return sum(written_loss(model, batch)[0].item() for batch in batches) / len(batches)
