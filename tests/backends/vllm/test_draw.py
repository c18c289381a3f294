"""The draw that vLLM's rows go through, beside the plain reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.backends.base import Sampling
from tts.backends.sampling import draw, filtered_distribution

torch = pytest.importorskip("torch")

LAWS = st.builds(
    Sampling,
    temperature=st.sampled_from([1e-3, 0.3, 1.0, 7.0, 100.0]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 1e-6]),
    top_k=st.sampled_from([0, 1, 3, 50, 2**40]),
    min_p=st.sampled_from([0.0, 0.05, 0.9]),
)


@settings(deadline=None)
@given(laws=st.lists(LAWS, min_size=1, max_size=4), seed=st.integers(0, 2**31), ties=st.booleans())
def test_rows_of_different_laws_draw_what_the_reference_draws_from_each_alone(
    laws: list[Sampling], seed: int, ties: bool
) -> None:
    from tts.backends.vllm.draw import draw_tokens

    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(len(laws), 61)).astype(np.float32) * 4
    if ties:
        logits = np.round(logits)
    logits[:, 7] = -np.inf
    numbers = rng.random(len(laws))
    tokens = draw_tokens(torch.from_numpy(logits), laws, numbers).tolist()
    for row, law, number, token in zip(logits, laws, numbers, tokens, strict=True):
        assert token == draw(row, law, float(number)).token
        assert filtered_distribution(row, law)[token] > 0


def test_an_infinite_top_k_and_a_tiny_temperature_do_no_harm() -> None:
    from tts.backends.vllm.draw import draw_tokens

    logits = torch.tensor([[0.0, 1.0, -3.0e38, 0.5]])
    assert draw_tokens(logits, [Sampling(temperature=1e-300, top_k=2**61)], np.array([0.999])).tolist() == [1]
