"""Tiny models built in memory: a random Llama with a byte-level tokenizer, and one that says what it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tts.backends.engine.backend import EngineBackend
    from tts.backends.transformers.backend import TransformersBackend

EOS = "<eos>"
_MERGES = (
    *(
        ("Ċ", "Ċ"),
        ("Ċ", "a"),
        ("t", "h"),
        ("th", "e"),
        ("Ġ", "t"),
        ("Ġ", "the"),
        ("a", "n"),
        ("an", "d"),
        ("Ġ", "and"),
        ("i", "n"),
    ),
    *(
        ("in", "g"),
        ("e", "r"),
        ("o", "n"),
        ("o", "f"),
        ("Ġ", "of"),
        ("1", "2"),
        ("Ã", "©"),
        ("Ġ", "a"),
        ("Ġ", "b"),
        ("x", "ĊĊ"),
        ("a", "b"),
    ),
    *(
        ("ab", "c"),
        ("r", "e"),
        ("s", "t"),
        ("u", "n"),
        ("Ġ", "="),
        ("Ġ", "+"),
        ("q", "Ċ"),
        ("qĊ", "z"),
        ("w", "h"),
        ("i", "s"),
    ),
)
_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt "
    "%}assistant: {% endif %}"
)


def tiny_tokenizer(*, template: str | None = _TEMPLATE) -> Any:
    """Return a byte-level BPE tokenizer: the end of sequence, 256 bytes and a few merges."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    merges = list(_MERGES)
    tokens = [EOS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(EOS, special=True, normalized=False)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, chat_template=template)


def tiny_model(vocab_size: int, *, context: int = 1024, seed: int = 3) -> Any:
    """Return a random Llama: 2 layers, 2 heads of 32, one key-value head."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=context,
        eos_token_id=0,
        bos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if "norm" not in name:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.15
    return model.eval()


def tiny_backend(*, context: int = 1024, template: str | None = _TEMPLATE, **options: Any) -> TransformersBackend:
    """Return the transformers backend on the tiny random model."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tts.backends.transformers.backend import TransformersBackend

    tokenizer = tiny_tokenizer(template=template)
    return TransformersBackend(tiny_model(len(tokenizer), context=context), tokenizer, **options)


def checkpoint_of(model: Any, tokenizer: Any) -> Any:
    """Return a model of the transformers library as the engine reads it from files."""
    from tts.backends.engine.weights import Checkpoint

    return Checkpoint(model.config, dict(model.state_dict()), tokenizer, None, "tiny")


def engine_of(
    model: Any, tokenizer: Any, *, heads: Any = None, reward_models: Any = None, **options: Any
) -> EngineBackend:
    """Return the engine on a model of the transformers library."""
    pytest.importorskip("numba")
    from tts.backends.engine.backend import EngineBackend
    from tts.backends.engine.loading import EngineOptions, make_runner

    runner, renderer = make_runner(checkpoint_of(model, tokenizer), EngineOptions(device="cpu", **options), heads=heads)
    return EngineBackend(runner, renderer, identity="tiny", reward_models=reward_models)


def tiny_engine(*, context: int = 1024, template: str | None = _TEMPLATE, **options: Any) -> EngineBackend:
    """Return the engine on the tiny random model."""
    pytest.importorskip("torch")
    tokenizer = tiny_tokenizer(template=template)
    return engine_of(tiny_model(len(tokenizer), context=context), tokenizer, **options)


def scripted_backend(script: str, *, context: int = 256) -> tuple[TransformersBackend, str]:
    """Return a backend whose model, after a prompt of one token, writes a text byte by byte and ends; and that
    prompt.
    """
    torch = pytest.importorskip("torch")
    from tts.backends.transformers.backend import TransformersBackend

    tokenizer = tiny_tokenizer()
    alphabet = [tokenizer.convert_tokens_to_ids(token) for token in _byte_tokens(script)]
    base = tiny_model(len(tokenizer), context=context)

    class Scripted(type(base)):
        def forward(self, input_ids: Any, position_ids: Any = None, **options: Any) -> Any:
            output = super().forward(input_ids=input_ids, position_ids=position_ids, **options)
            positions = position_ids.expand(input_ids.shape)[:, -output.logits.shape[1] :]
            follows = torch.tensor([*alphabet, *[0] * context])[positions]
            output.logits = torch.nn.functional.one_hot(follows, len(tokenizer)).float() * 100
            return output

    base.__class__ = Scripted
    return TransformersBackend(base, tokenizer), ">"


def _byte_tokens(text: str) -> list[str]:
    from tokenizers import pre_tokenizers

    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return list("".join(piece for piece, _ in level.pre_tokenize_str(text)))


@pytest.fixture
def make_tiny() -> Callable[..., TransformersBackend]:
    """The maker of tiny backends."""
    return tiny_backend


@pytest.fixture
def make_scripted() -> Callable[..., tuple[TransformersBackend, str]]:
    """The maker of backends that write a given text."""
    return scripted_backend


@pytest.fixture(scope="session")
def tiny() -> TransformersBackend:
    """One tiny backend for tests that leave no trace in it."""
    return tiny_backend()
