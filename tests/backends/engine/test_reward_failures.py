"""Process models that lack room, tokens or sense: the call fails with a reason, and nothing else does."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the engine runs on torch")
transformers = pytest.importorskip("transformers", reason="the referee is the transformers library")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.conftest import tiny_engine  # noqa: E402
from tests.backends.engine.process_models import (  # noqa: E402
    PROMPT,
    STEP,
    expected,
    paths_of,
    process,
    process_parts,
    read,
    weight_of,
)
from tests.backends.engine.stepping import emptied, engine  # noqa: E402
from tests.backends.rows import drained, opened, start  # noqa: E402
from tts.backends.base import Row  # noqa: E402
from tts.backends.engine.heads import LabelReadout, StepTemplate, ValueHead  # noqa: E402
from tts.errors import CapabilityError, ConfigError, EngineError, PromptTooLong  # noqa: E402
from tts.tasks.base import split_after  # noqa: E402


def test_an_unknown_head_is_a_capability_that_is_lacking_and_the_names_are_told() -> None:
    async def main() -> None:
        backend = engine(heads={"truth": ValueHead(weight_of(64))}, reward_models={"prm": process()})
        (handle,) = await opened(backend, PROMPT)
        with pytest.raises(CapabilityError, match=r"'judge'.* truth, prm"):
            await backend.value([handle], "judge")

    asyncio.run(main())


@pytest.mark.slow
def test_a_path_that_the_process_model_has_no_room_for_is_refused_and_shorter_ones_are_not() -> None:
    async def main() -> None:
        backend = engine(reward_models={"prm": process(context=40)})
        stats = backend.reward_models["prm"].runner.stats
        with pytest.raises(PromptTooLong):
            await backend.open(["k" * 40])
        assert backend.stats.prefill_computed == 0
        _, handles, texts = await paths_of(backend)
        fits = [len(PROMPT) + len(text) + len(split_after(text, STEP)) <= 40 for text in texts]
        assert fits[1]
        assert not fits[-1]
        for handle, fit in list(zip(handles, fits, strict=True))[::-1]:
            before = stats.prefill_computed
            if fit:
                await read(backend, [handle])
            else:
                with pytest.raises(PromptTooLong, match="process model"):
                    await read(backend, [handle])
                assert stats.prefill_computed == before
        backend.release(handles)
        await emptied(backend)

    asyncio.run(main())


def test_a_step_in_tokens_that_the_process_model_lacks_is_refused() -> None:
    backend = engine(reward_models={"prm": process()})
    template = backend.reward_models["prm"].template
    for ids in ((), (999,)):
        object.__setattr__(template, "encode", lambda text, ids=ids: ids)

        async def main() -> None:
            _, handles, _ = await paths_of(backend)
            with pytest.raises(ConfigError, match=r"process model|knows"):
                await read(backend, handles[1:2])
            (sample,) = await drained(start(backend, handles[1], Row(1, 0, 5)))
            assert sample.finish in ("length", "eos")

        asyncio.run(main())


def test_readings_that_are_nan_are_nan() -> None:
    prm, labels = process("head"), process("label")
    prm.template.readout.head.weight[5] = np.nan
    decoder = labels.runner.decoder
    decoder._embedding = decoder._embedding.clone()
    decoder._embedding[process_parts()[1].convert_tokens_to_ids("5")] = float("nan")
    head = ValueHead(np.full(64, np.nan, np.float32), step=STEP)
    backend = engine(heads={"truth": head}, reward_models={"prm": prm, "labels": labels})

    async def main() -> None:
        _, handles, _ = await paths_of(backend)
        for name in ("truth", "prm"):
            assert np.isnan((await read(backend, handles[-1:], name))[0]).all()
        found = (await read(backend, handles[-1:], "labels"))[0]
        assert np.isnan(found).tolist() == [False, False, True, True, True]  # behind the 5 of the third step

    asyncio.run(main())


class Raising:
    labels = (5,)

    def __call__(self, found: np.ndarray) -> float:
        return float(found[1])


def test_a_label_that_the_model_lacks_is_refused() -> None:
    model = process("label")
    with pytest.raises(ConfigError, match="token 10000"):
        dataclasses.replace(model, template=StepTemplate(None, LabelReadout(5, (10_000,))))


@pytest.mark.slow
def test_a_readout_that_raises_fails_its_call_and_nothing_else() -> None:
    backend = engine(reward_models={"prm": process("label"), "bad": process("label")})
    object.__setattr__(backend.reward_models["bad"].template, "readout", Raising())

    async def main() -> None:
        _, handles, texts = await paths_of(backend)
        running = start(backend, handles[0], *(Row(stream, 0, 40) for stream in range(4)))
        for _ in range(2):
            with pytest.raises(EngineError, match="IndexError"):
                await read(backend, handles[-1:], "bad")
        np.testing.assert_allclose((await read(backend, handles[-1:]))[0], expected("label", texts[-1], "#"), atol=1e-4)
        assert {sample.finish for sample in await drained(running)} <= {"length", "eos"}
        backend.release([*handles, *(sample.handle for sample in running.samples)])
        await emptied(backend)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["label", "likelihood"])
@pytest.mark.parametrize("at", range(1, 9))
def test_a_process_models_pass_that_breaks_fails_the_call_leaves_nothing_and_is_made_up_for(at: int, kind: str) -> None:
    backend = engine(reward_models={"prm": process(kind, step_tokens=6)})
    decoder, calls = backend.reward_models["prm"].runner.decoder, [0]
    forward = decoder.forward

    def breaking(*args: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            raise RuntimeError("out of memory")
        return forward(*args, **options)

    decoder.forward = breaking

    async def main() -> None:
        _, handles, texts = await paths_of(backend)
        broken = False
        try:
            await read(backend, handles[-1:])
        except EngineError as failure:
            broken = "out of memory" in str(failure)
            assert broken
        assert calls[0] >= at, "nothing broke: the test saw nothing"
        np.testing.assert_allclose((await read(backend, handles[-1:]))[0], expected(kind, texts[-1], "#"), atol=1e-4)
        backend.release(handles)
        await emptied(backend)

    asyncio.run(main())


def test_a_value_head_of_another_size_is_refused_when_it_is_given() -> None:
    with pytest.raises(ConfigError, match=r"'truth'.*\(65,\),.*hidden size"):
        tiny_engine(heads={"truth": ValueHead(np.zeros(65, np.float32))})
