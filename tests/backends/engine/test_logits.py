"""The engine's laws, hidden states and greedy paths against the transformers library, on random models of every kind
and on trees.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("numba")

from tests.backends.conftest import engine_of, tiny_tokenizer  # noqa: E402
from tests.backends.engine.driving import grow, leaves, path_ids, read, run, runner_of  # noqa: E402
from tests.backends.engine.models import KINDS, in_float64, random_model  # noqa: E402
from tests.backends.kernels.trees import EDGES, FORESTS, caterpillar, chain, forest, star  # noqa: E402
from tts.backends.base import Row, SampleRequest, Sampling, StopCondition  # noqa: E402
from tts.backends.sampling import filtered_distribution, log_softmax, spread  # noqa: E402

GREEDY = Sampling(temperature=0.0)
# one forest that has every shape, for kinds of models
MIXED = forest(star(33, [1, 15, 16, 17, 32]), chain([64, 1, 1, 65]), caterpillar([16, 7, 1, 17]), FORESTS["binary"])


@cache
def model_of(kind: str) -> Any:
    return random_model(**KINDS[kind])


def forward(model: Any, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return logits [token, V] and what the output layer reads [token, K] of one plain pass."""
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_hidden_states=True, use_cache=False)
    return out.logits[0].double().numpy(), out.hidden_states[-1][0].double().numpy()


def log_laws(logits: np.ndarray) -> np.ndarray:
    return np.stack([log_softmax(row) for row in logits])


def off(found: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference relative to the largest magnitude."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def check_tree(model: Any, shape: list[tuple[int, int, int]], **options: Any) -> None:
    """Every token of every path: log-probabilities and hidden states are those of the concatenated path."""
    runner = runner_of(model, **options)
    nodes = grow(runner, shape)
    laws = dict(zip(nodes, read(runner, nodes), strict=True))
    hidden = dict(zip(nodes, read(runner, nodes, logits=False), strict=True))
    for leaf in leaves(nodes):
        wanted, states = forward(model, path_ids(leaf))
        found = np.concatenate([laws[node] for node in leaf.path()])
        assert found.shape == wanted.shape
        assert off(found, log_laws(wanted)) < 2e-4
        assert off(np.concatenate([hidden[node] for node in leaf.path()]), states) < 2e-4


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_its_laws_on_trees(kind: str) -> None:
    check_tree(model_of(kind), MIXED)


@pytest.mark.parametrize("shape", [*FORESTS, "around block ends"])
def test_every_shape_of_tree_has_its_laws(shape: str) -> None:
    found = FORESTS.get(shape) or forest(
        *(star(length, EDGES) for length in (15, 16, 17, 64)), chain([16] * 6), chain([32, 33])
    )
    check_tree(model_of("llama, groups of 3, tied, attention bias"), found)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_no_further_from_float64_than_transformers_is(kind: str) -> None:
    """Both add float32 numbers, each in its own order: neither may be more than a small factor worse than the other."""
    model = model_of(kind)
    wide = in_float64(model)
    runner = runner_of(model)
    nodes = grow(runner, chain([65, 17, 40]), seed=5)
    found = np.concatenate(read(runner, nodes))
    exact, theirs = (log_laws(forward(each, path_ids(nodes[-1]))[0]) for each in (wide, model))
    assert off(theirs, exact) < 1e-5, "the float64 model is another one"
    assert off(found, exact) < 3 * off(theirs, exact)
    root = lambda x: float(np.sqrt(np.square(x - exact).mean()))  # noqa: E731
    assert root(found) < 1.5 * root(theirs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_decoding_is_that_of_generate(kind: str) -> None:
    model = model_of(kind)
    backend = engine_of(model, tiny_tokenizer(), threads=1)

    async def main() -> None:
        prompts = ["the cat and the other one", "1"]
        for prompt, reply in zip(prompts, await backend.open(prompts), strict=True):
            sample = await backend.sample(SampleRequest(reply.value, (Row(1, 0, 80),), GREEDY, StopCondition())).row(0)
            ids = torch.tensor([backend._renderer.prompt(prompt)])
            mask = torch.ones_like(ids)
            whole = model.generate(
                ids, attention_mask=mask, do_sample=False, max_new_tokens=80, pad_token_id=0, eos_token_id=0
            )
            assert sample.token_ids == tuple(whole[0, ids.shape[1] :].tolist())
            assert sample.num_tokens == 80
            logits, _ = forward(model, whole[0].tolist())
            laws = log_laws(logits)[ids.shape[1] - 1 : -1]
            np.testing.assert_allclose(sample.logprobs, laws[np.arange(80), sample.token_ids], atol=2e-4)

    run(backend, main)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama, groups of 7", "qwen2", "qwen3"])
def test_what_the_backend_answers_are_readings_of_the_concatenated_path(kind: str) -> None:
    model = model_of(kind)
    backend = engine_of(model, tiny_tokenizer(), threads=1)
    renderer = backend._renderer

    async def main() -> None:
        [opened] = await backend.open(["the cat and "])
        ids = list(renderer.prompt("the cat and "))
        [longer] = await backend.extend([opened.value], ["of the thing"])
        ids += longer.value.token_ids
        rows = tuple(Row(stream, 0, 21) for stream in range(3))
        sampling = Sampling(temperature=0.9, top_k=40)
        asked = backend.sample(
            SampleRequest(longer.value.handle, rows, sampling, StopCondition(), spreads=True, sampling_logprobs=True)
        )
        await asked.drain()
        for sample in asked.samples:
            path = [*ids, *sample.token_ids]
            logits, hidden = forward(model, path)
            laws = log_laws(logits)
            drawn = laws[np.arange(len(ids), len(path)) - 1, sample.token_ids]
            np.testing.assert_allclose(sample.logprobs, drawn, rtol=0, atol=2e-4 * np.abs(laws).max())
            tempered = [
                filtered_distribution(law, sampling)[token]
                for law, token in zip(laws[len(ids) - 1 :], sample.token_ids, strict=False)
            ]
            np.testing.assert_allclose(
                sample.sampling_logprobs, np.log(tempered), rtol=0, atol=3e-4 * np.abs(laws).max()
            )
            spreads = [spread(law) for law in laws[len(ids) - 1 : len(path) - 1]]
            np.testing.assert_allclose(sample.spreads, spreads, rtol=0, atol=2e-4 * np.abs(laws).max())
            [state] = await backend.hidden([sample.handle])
            assert state.value.dtype == np.float32
            assert off(state.value, hidden[-1]) < 2e-4
            text = "xyz and the end\n"
            more = list(renderer.text(text))
            laws = log_laws(forward(model, path + more)[0])
            [score] = await backend.score([sample.handle], [text])
            np.testing.assert_allclose(
                score.value, laws[np.arange(len(path), len(path + more)) - 1, more], atol=2e-4 * np.abs(laws).max()
            )
            for behind, at in (("", len(path) - 1), (text, -1)):
                [following] = await backend.next_logprobs([sample.handle], [behind], ["a", "the", "\n"])
                wanted = laws[at, [renderer.single(token) for token in ("a", "the", "\n")]]
                np.testing.assert_allclose(following.value, wanted, atol=2e-4 * np.abs(laws).max())

    run(backend, main)
