"""A tiny random policy with a process model and a probe, in files and on the engine.

The files are laid out as a user may bring them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tts.models.record import ModelRecord, Question

# what tests write, each character a token; a newline is one in 30, so that paths have steps
LETTERS = "0123456789+-=A:?,sothenywr"
QUESTION = Question(question="s?", yes="y", no="n")
HIDDEN, PROCESS_HIDDEN = 64, 96


def tokenizer_of(letters: str) -> Any:
    """Return a tokenizer that knows an end of sequence, a newline, a blank and some letters."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = ["<eos>", "Ċ", "Ġ", *letters]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<eos>", special=True, normalized=False)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


def model_of(vocab: int, hidden: int, layers: int, context: int, seed: int) -> Any:
    """Return a random Llama whose heads have 32 numbers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        eos_token_id=0,
        bos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if "norm" not in name:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.12
    return model


def _pocket_tokenizer() -> Any:
    pytest.importorskip("transformers")
    pytest.importorskip("research.pocket", reason="research is no part of the wheel")
    from research.pocket.train.tokenizer import build

    return build()


def save_head(path: Path, hidden: int, **changes: Any) -> Path:
    """Write a head's tensors; a change of None leaves one out."""
    from safetensors.numpy import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Any] = {
        "weight": np.cos(np.arange(hidden, dtype=np.float32)),
        "bias": np.full(1, 0.2, np.float32),
    }
    save_file({name: tensor for name, tensor in (tensors | changes).items() if tensor is not None}, path)
    return path


def save_pair(
    folder: Path,
    *,
    context: int = 160,
    process_context: int | None = None,
    process_letters: str = LETTERS,
    pocket: bool = False,
) -> ModelRecord:
    """Write a pair in the layout of the shipped one, and return its record.

    The process model is of another size than the policy.

    Args:
        folder: The folder.
        context: The context of the policy.
        process_context: The context of the process model; None: that of the policy.
        process_letters: The letters of the process model.
        pocket: Whether the tokenizer is the shipped pair's, to which words are one token.
    """
    pytest.importorskip("torch")
    for name, letters, hidden, layers, length, seed in (
        ("policy", LETTERS, HIDDEN, 2, context, 3),
        ("process", process_letters, PROCESS_HIDDEN, 1, process_context or context, 5),
    ):
        tokenizer = _pocket_tokenizer() if pocket else tokenizer_of(letters)
        model_of(len(tokenizer), hidden, layers, length, seed).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    probe, readout = save_head(folder / "heads" / "probe.safetensors", HIDDEN), folder / "heads" / "process.safetensors"
    save_head(readout, PROCESS_HIDDEN)
    return ModelRecord(
        name="pair",
        backend="engine",
        source="folder",
        location=str(folder / "policy"),
        task="arithmetic",
        heads=(("probe", str(probe)),),
        process_model=ModelRecord(
            name="pair-process",
            backend="engine",
            source="folder",
            location=str(folder / "process"),
            readout=str(readout),
        ),
        self_evaluation=QUESTION,
        verifier="process",
    )


_HOME: list[Path] = []


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where pairs are written that several tests share; a module of tests that asks for one imports this."""
    _HOME.append(tmp_path_factory.mktemp("pairs"))


@cache
def _save_once(**options: Any) -> ModelRecord:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return save_pair(_HOME[-1] / "-".join(map(str, ("pair", *options.values()))), **options)


def record(**options: Any) -> ModelRecord:
    """Return the record of a pair that is written once a process."""
    return _save_once(**options)


def engine(*, endless: bool = True, **options: Any) -> Any:
    """Return the pair on the engine.

    Args:
        endless: Whether no token ends a row, so that a row has several steps.
        options: The options of the pair.
    """
    pytest.importorskip("numba")
    from tts.backends.engine import build

    backend = build(record(**options), device="cpu", threads=1)
    if endless:
        backend.runner._eos = frozenset()
    return backend


@cache
def shared_engine() -> Any:
    """Return one such backend for tests that leave no trace in it."""
    return engine()
