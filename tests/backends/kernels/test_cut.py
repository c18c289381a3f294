"""The filters of the GPU's draw keep what the filters of the reference keep."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tts.backends.base import Sampling  # noqa: E402
from tts.backends.kernels.draw_triton import Cut, cut  # noqa: E402
from tts.backends.sampling import filtered_distribution  # noqa: E402


def kept(logits: torch.Tensor, cuts: Cut) -> torch.Tensor:
    ids = torch.arange(logits.shape[1])
    floors, lasts = (column.unsqueeze(1) for column in cuts)
    return (logits > floors) | ((logits == floors) & (ids <= lasts))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("is_tied", [False, True])
def test_every_combination_of_filters_keeps_the_same_tokens(temperature: float, is_tied: bool) -> None:
    generator = np.random.Generator(np.random.Philox(key=int(10 * temperature)))
    row = generator.standard_normal(300) * 3
    row = np.round(row) if is_tied else row
    row[7] = -np.inf
    laws = [
        Sampling(temperature=temperature, top_k=k, top_p=p, min_p=m)
        for k, p, m in itertools.product((0, 1, 7, 60, 299, 300, 5000), (1.0, 0.95, 0.5, 0.01), (0.0, 0.02, 0.5))
    ]
    logits = torch.from_numpy(row.astype(np.float32)).repeat(len(laws), 1)
    columns = (
        torch.tensor([getattr(law, name) for law in laws]) for name in ("temperature", "top_k", "top_p", "min_p")
    )
    temperatures, top_k, top_p, min_p = (
        column.double() if column.is_floating_point() else column for column in columns
    )
    found = kept(logits, cut(logits, temperatures, top_k, top_p, min_p))
    for law, mine, plain in zip(laws, found, logits, strict=True):
        want = filtered_distribution(plain.numpy(), law) > 0
        assert (mine & ~plain.isinf()).tolist() == want.tolist(), law


def test_top_p_keeps_the_token_that_reaches_it_and_none_behind() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.125, 0.125]], dtype=torch.float64)).float()
    one, off = torch.ones(1), torch.zeros(1)
    for top_p, want in ((0.4, 1), (0.51, 2), (0.74, 2), (0.76, 3), (0.9, 4), (1.0, 4)):
        cuts = cut(logits, one, torch.zeros(1, dtype=torch.int64), torch.tensor([top_p], dtype=torch.float64), off)
        assert int(kept(logits, cuts).sum()) == want, top_p


def test_a_row_of_temperature_zero_keeps_its_most_likely_token() -> None:
    logits = torch.tensor([[0.0, 5.0, 5.0, 1.0]])
    cuts = cut(logits, torch.zeros(1), torch.tensor([1]), torch.tensor([0.1]), torch.tensor([0.9]))
    assert kept(logits, cuts).tolist() == [[False, True, False, False]]
