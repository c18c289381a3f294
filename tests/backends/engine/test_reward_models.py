"""Value heads and process models: readings at the exact tokens, whenever they are asked for, and nothing read twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the engine runs on torch")
transformers = pytest.importorskip("transformers", reason="the referee is the transformers library")
pytest.importorskip("numba", reason="the engine's kernels are compiled by numba")

from tests.backends.conftest import checkpoint_of, engine_of, tiny_model  # noqa: E402 - torch comes first
from tests.backends.engine.process_models import (  # noqa: E402
    KINDS,
    PROMPT,
    STEP,
    TEXTS,
    expected,
    paths_of,
    plain_tokenizer,
    process,
    process_parts,
    read,
    weight_of,
)
from tests.backends.engine.stepping import emptied, engine, evict, rested, text_of  # noqa: E402
from tests.backends.rows import drained, opened, start  # noqa: E402
from tts.backends.base import Row, Sampling, StopCondition  # noqa: E402
from tts.backends.engine.heads import LabelReadout, StepTemplate, ValueHead  # noqa: E402
from tts.backends.engine.loading import EngineOptions, make_runner  # noqa: E402
from tts.backends.engine.reward import RewardModel  # noqa: E402
from tts.tasks.base import split_after  # noqa: E402

# Heads on the policy --------------------------------------------------------------------------------------------------


OFTEN = ("z", "!k")


@pytest.mark.parametrize("sigmoid", [True, False])
def test_a_head_reads_the_hidden_state_of_the_token_that_completes_each_step(sigmoid: bool) -> None:
    head = ValueHead(weight_of(64), bias=0.1, sigmoid=sigmoid, step=OFTEN)
    tokenizer = plain_tokenizer("zkK75!?abc", merges=(("z", "k"), ("!", "k"), ("z", "z"), ("a", "b")))
    model = tiny_model(len(tokenizer))
    backend = engine_of(model, tokenizer, threads=1, step_tokens=7, heads={"truth": head})

    async def main() -> None:
        (handle,) = await opened(backend, PROMPT.replace("Z", "a"))
        [forced] = await backend.extend([handle], ["kz7!kkkzka"])
        samples = await drained(start(backend, forced.value.handle, *(Row(stream, 0, 40) for stream in range(8))))
        found = await read(backend, [forced.value.handle, *(sample.handle for sample in samples)], "truth")
        prompt = tokenizer.encode(PROMPT.replace("Z", "a"))
        for readings, sample in zip(found, [None, *samples], strict=True):
            ids = [*forced.value.token_ids, *(() if sample is None else sample.token_ids)]
            text = "kz7!kkkzka" + ("" if sample is None else sample.text)
            written = np.cumsum([0 if token == 0 else len(tokenizer.convert_ids_to_tokens(token)) for token in ids])
            ends = np.cumsum([len(step) for step in split_after(text, OFTEN)])
            at = len(prompt) + np.searchsorted(written, ends)  # the first token with which so much is written
            with torch.no_grad():
                hidden = model.model(torch.tensor([[*prompt, *ids]])).last_hidden_state[0, at].double().numpy()
            raw = hidden @ weight_of(64).astype(np.float64) + 0.1
            np.testing.assert_allclose(readings, 1 / (1 + np.exp(-raw)) if sigmoid else raw, atol=1e-4)
        assert sum(map(len, found)) > 4 * 9, "too few rows met a boundary: the test saw nothing"

    asyncio.run(main())


@pytest.mark.parametrize("blocks", [9, 300])
def test_a_heads_readings_have_the_same_bits_whenever_they_are_asked_for(blocks: int) -> None:
    backend = engine(blocks, heads={"truth": ValueHead(weight_of(64), step=STEP)}, step_tokens=5)

    async def main() -> None:
        (handle,) = await opened(backend, text_of(40, 1))
        samples = await drained(start(backend, handle, *(Row(stream, 0, 50) for stream in range(5))))
        handles = [sample.handle for sample in samples]
        early = [(await read(backend, [each], "truth"))[0].tobytes() for each in handles]
        await rested(backend)
        evict(backend.runner)
        backend.runner.tree.pool.keys.fill_(3.0)
        assert [readings.tobytes() for readings in await read(backend, handles[::-1], "truth")][::-1] == early
        again = await drained(start(backend, handle, *(Row(stream, 0, 50) for stream in range(5))))
        assert [readings.tobytes() for readings in await read(backend, [s.handle for s in again], "truth")] == early

    asyncio.run(main())


# Process models -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("separator", ["", "#", "\n#"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_process_model_reads_what_a_plain_pass_over_the_whole_path_reads(kind: str, separator: str) -> None:
    backend = engine(reward_models={"prm": process(kind, separator=separator, step_tokens=5)})

    async def main() -> None:
        _, handles, texts = await paths_of(backend)
        for readings, text in zip(await read(backend, handles), texts, strict=True):
            assert len(readings) == len(split_after(text, STEP))
            if text:
                np.testing.assert_allclose(readings, expected(kind, text, separator), atol=1e-4)

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocks", [9, 300])
def test_readings_have_the_same_bits_in_any_order_alone_or_together_and_under_pressure(kind: str, blocks: int) -> None:
    async def main(backend: Any, orders: Sequence[Sequence[int]]) -> dict[int, bytes]:
        model = backend.reward_models["prm"].runner
        others = [reply.value for reply in await backend.open([PROMPT + "7", PROMPT + "5"])]
        _, handles, _ = await paths_of(backend)
        branches = [
            (await backend.extend([handles[3]], [text]))[0].value.handle
            for text in ("kz5zKKKKz", "7!", "kz77777777777777!")
        ]
        every, found = [*handles, *branches], {}
        for order in orders:
            noise = asyncio.ensure_future(backend.value(others, "prm"))
            for which, readings in zip(order, await read(backend, [every[which] for which in order]), strict=True):
                assert found.setdefault(which, readings.tobytes()) == readings.tobytes()
            await noise
            await rested(backend)
            evict(model)
        return found

    everything = range(9)
    alone = asyncio.run(main(engine(reward_models={"prm": process(kind)}), [[which] for which in everything]))
    tight = engine(reward_models={"prm": process(kind, blocks=blocks, step_tokens=9)})
    assert asyncio.run(main(tight, [[8, 1, 5], [7, 2, 0, 3], [*everything][::-1], everything])) == alone
    assert tight.reward_models["prm"].runner.stats.recomputed > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_distinct_step_is_computed_once_and_a_known_path_not_at_all(kind: str) -> None:
    backend = engine(reward_models={"prm": process(kind)})
    stats = backend.reward_models["prm"].runner.stats
    encode = process_parts()[1].encode
    prompt = len(encode(PROMPT)) - (kind == "likelihood")  # which is one token behind

    async def main() -> None:
        (handle,) = await opened(backend, PROMPT)
        paths, distinct, handles = [(handle, ())] * 3, set(), [handle]
        for depth in range(4):
            grown = []
            for number, (above, steps) in enumerate(paths):
                text = TEXTS[(depth + number // 2) % 3]
                [reply] = await backend.extend([above], [text])
                grown.append((reply.value.handle, (*steps, text)))
                handles.append(reply.value.handle)
            paths = grown
            new = {steps for _, steps in paths} - distinct
            distinct |= new
            replies = await backend.value([each for each, _ in paths], "prm")
            computed = sum(len(encode(steps[-1] + "#")) for steps in new) + prompt * (depth == 0)
            assert sum(reply.computed for reply in replies) == computed
            assert stats.prefill_computed == prompt + sum(len(encode(steps[-1] + "#")) for steps in distinct)
        before = stats.prefill_computed, stats.steps
        replies = await backend.value([each for each, _ in paths], "prm")
        assert [reply.computed for reply in replies] == [0, 0, 0]
        assert (stats.prefill_computed, stats.steps) == before
        assert stats.recomputed == 0
        backend.release(handles)
        await emptied(backend)

    asyncio.run(main())


def searcher(letters: str = "abcdefghijklmnopqrstuvwxyz0123456789+-=.,") -> tuple[Any, Any]:
    """Return a policy whose tokens are letters, one of some forty a newline, and a process model with the same
    tokens.
    """
    tokenizer = plain_tokenizer(letters)
    runner, renderer = make_runner(
        checkpoint_of(tiny_model(len(tokenizer), seed=5), tokenizer), EngineOptions(device="cpu", threads=1)
    )
    readout = LabelReadout(renderer.single("+"), (renderer.single("-"),))
    model = RewardModel(runner, StepTemplate(renderer.text, readout), renderer.prompt)
    policy = engine_of(tiny_model(len(tokenizer)), tokenizer, threads=1, reward_models={"prm": model})
    policy.runner._eos = frozenset()
    return policy, runner


@pytest.mark.slow
def test_a_wide_search_costs_hardly_more_process_tokens_than_it_generates() -> None:
    """The best 4 of 16 paths go on, 4 ways each, in ragged steps of at least 20 tokens and mostly below 80; each is
    read at once.
    """
    policy, runner = searcher()
    width, keep, depth = 16, 4, 6

    async def main() -> tuple[int, int]:
        (root,) = await opened(policy, "x" * 60)
        alive, generated, whole = [(root, "")], 0, 0
        for level in range(depth):
            grown: list[tuple[Any, str]] = []
            for number, (above, before) in enumerate(alive):
                rows = [
                    Row(1000 * level + 10 * number + i, 0, 20 + (7 * i + 13 * level) % 60)
                    for i in range(width // len(alive))
                ]
                stop = StopCondition(("\n",), at_step=True)
                samples = await drained(
                    start(policy, above, *rows, sampling=Sampling(temperature=0.7), stop=stop, text=before)
                )
                for sample in samples:
                    handle, text = sample.handle, before + sample.text
                    generated += sample.num_tokens
                    if sample.finish != "stop":  # the step is cut where its cap is
                        handle, text = (await policy.extend([handle], ["\n"]))[0].value.handle, text + "\n"
                        generated += 1
                    grown.append((handle, text))
            replies = await policy.value([handle for handle, _ in grown], "prm")
            assert {len(reply.value) for reply in replies} == {level + 1}
            whole += sum(60 + len(text) for _, text in grown)
            best = sorted(range(len(grown)), key=lambda i: -replies[i].value[-1])[:keep]
            policy.release([handle for i, (handle, _) in enumerate(grown) if i not in best])
            alive = [grown[i] for i in best]
        policy.release([root, *(handle for handle, _ in alive)])
        return generated, whole

    generated, whole = asyncio.run(main())
    ratio = runner.stats.prefill_computed / generated
    print(f"{ratio:.3f} process tokens a generated token; {whole / generated:.2f} if every path were read anew")  # noqa: T201
    assert generated > 16 * 6 * 20
    assert runner.stats.recomputed == 0
    assert ratio <= 1.1
    assert whole / generated > 3, "paths are too short for the test to see anything"
