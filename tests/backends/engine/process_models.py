"""A process model of another size and tokenizer than the tiny policy, and what a plain pass of it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the engine runs on torch")
transformers = pytest.importorskip("transformers", reason="the referee is the transformers library")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.conftest import checkpoint_of  # noqa: E402 - torch comes first
from tests.backends.engine.stepping import BLOCK  # noqa: E402
from tests.backends.rows import opened  # noqa: E402
from tests.support.guard import LIMIT_S  # noqa: E402
from tts.backends.engine.heads import HeadReadout, LabelReadout, LikelihoodReadout, StepTemplate, ValueHead  # noqa: E402
from tts.backends.engine.loading import EngineOptions, make_runner  # noqa: E402
from tts.backends.engine.reward import RewardModel  # noqa: E402
from tts.tasks.base import split_after  # noqa: E402

STEP = ("z", "!")
PROMPT = "kkk77 KZ kk?"
TEXTS = ("k77z", "kk!", "5z", "KKKKKKKKKKKKKKKKKKKKz", "7")
KINDS = ("label", "head", "likelihood")


def plain_tokenizer(letters: str, merges: Sequence[tuple[str, str]] = ()) -> Any:
    """Return a tokenizer that knows an end of sequence, a newline, a blank, some letters, and some pairs of them."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = ["<eos>", "Ċ", "Ġ", *letters, *map("".join, merges)]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<eos>", special=True, normalized=False)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


def process_parts(context: int = 1024) -> tuple[Any, Any]:
    """Return a model of another size, and a tokenizer of another order, than the policy's."""
    tokenizer = plain_tokenizer("zZkK75!?#+-")
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=3,
        head_dim=32,
        max_position_embeddings=context,
        eos_token_id=0,
        bos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(11)
    for name, weight in model.named_parameters():
        if "norm" not in name:
            weight.data = torch.randn(weight.shape, generator=generator) * 0.1
    return model, tokenizer


def weight_of(size: int) -> Any:
    return np.cos(np.arange(size, dtype=np.float32))


def readout_of(kind: str, renderer: Any, size: int) -> Any:
    if kind == "head":
        return HeadReadout(ValueHead(weight_of(size), bias=0.2))
    if kind == "likelihood":
        return LikelihoodReadout(0.2, 1.5)
    return LabelReadout(renderer.single("+"), (renderer.single("-"), renderer.single("?")))


def process(
    kind: str = "label", *, separator: str = "#", context: int = 1024, blocks: int | None = None, **options: Any
) -> RewardModel:
    """Return a process model, read at the end of each step or behind a separator."""
    model, tokenizer = process_parts(context)
    if blocks is not None:
        options["kv_budget"] = blocks * BLOCK * 2 * 3 * 3 * 32 * 4
    runner, renderer = make_runner(checkpoint_of(model, tokenizer), EngineOptions(device="cpu", threads=1, **options))
    readout = readout_of(kind, renderer, 96)
    return RewardModel(runner, StepTemplate(renderer.text, readout, step=STEP, separator=separator), renderer.prompt)


def expected(kind: str, text: str, separator: str) -> list[float]:
    """Return what a plain pass over the whole path gives at the last token of each step."""
    model, tokenizer = process_parts()
    ids, ends = tokenizer.encode(PROMPT), []
    for step in split_after(text, STEP):
        ids += tokenizer.encode(step + separator)
        ends.append(len(ids) - 1)
    with torch.no_grad():
        output = model(torch.tensor([ids]), output_hidden_states=True)
    if kind == "head":
        raw = output.hidden_states[-1][0, ends].double().numpy() @ weight_of(96).astype(np.float64) + 0.2
        return list(1 / (1 + np.exp(-raw)))
    if kind == "likelihood":
        start = len(tokenizer.encode(PROMPT))
        logprobs = output.logits[0].double().log_softmax(-1)[range(start - 1, len(ids) - 1), ids[start:]].cumsum(0)
        odds = logprobs - torch.log(-torch.expm1(logprobs))
        return torch.sigmoid(0.2 * odds + 1.5)[[end - start for end in ends]].tolist()
    good, *bad = (tokenizer.convert_tokens_to_ids(label) for label in "+-?")
    return output.logits[0, ends][:, [good, *bad]].double().softmax(-1)[:, 0].tolist()


async def paths_of(backend: Any) -> tuple[Any, list[Any], list[str]]:
    """Return a prompt's handle, handles of the growing path of `TEXTS` behind it, and the text of each."""
    (handle,) = await opened(backend, PROMPT)
    handles, texts = [handle], [""]
    for text in TEXTS:
        [reply] = await backend.extend([handles[-1]], [text])
        handles.append(reply.value.handle)
        texts.append(texts[-1] + text)
    return handle, handles, texts


async def read(backend: Any, handles: Sequence[Any], name: str = "prm") -> list[Any]:
    return [reply.value for reply in await asyncio.wait_for(backend.value(handles, name), LIMIT_S)]
