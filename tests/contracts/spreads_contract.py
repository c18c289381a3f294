"""What every backend promises of the spreads of its laws: given where they are asked for, and of no influence."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tests.contracts.backend_contract import GREEDY, TO_END, WARM, BackendContract, drained, on_backend, plain
from tts.backends.base import SampleRequest


class SpreadsContract(BackendContract):
    """The contract of all backends, and this."""

    @on_backend()
    async def test_spreads_are_given_where_they_are_asked_for_and_change_nothing(self, backend: Any) -> None:
        handle = await self.opened(backend)
        asked = backend.sample(SampleRequest(handle, tuple(self.rows(1)), GREEDY, TO_END, spreads=True))
        [[bare], [told]] = await drained(self.ask(backend, handle, self.rows(1), GREEDY), asked)
        assert plain(told) == plain(bare)
        assert len(told.spreads) == (told.num_tokens if backend.caps.tops else 0)
        for spread, logprob in zip(told.spreads, told.logprobs, strict=False):
            assert spread.top >= -logprob - 1e-6  # the drawn token is the most likely one
            assert np.isnan(spread.certainty) != backend.caps.spreads

    @on_backend()
    async def test_log_probabilities_of_the_law_drawn_from_are_given_where_they_are_asked_for_and_change_nothing(
        self, backend: Any
    ) -> None:
        handle = await self.opened(backend)
        for temperature in (1.0, 0.5, 0.0):
            sampling = dataclasses.replace(WARM, temperature=temperature)
            asked = backend.sample(SampleRequest(handle, tuple(self.rows(3)), sampling, TO_END, sampling_logprobs=True))
            bare, told = await drained(self.ask(backend, handle, self.rows(3), sampling), asked)
            for one, other in zip(bare, told, strict=True):
                assert plain(one) == plain(other)
                assert one.sampling_logprobs == ()
                if not backend.caps.sampling_logprobs:
                    assert other.sampling_logprobs == ()
                    continue
                assert len(other.sampling_logprobs) == len(other.logprobs) > 0
                if temperature == 0:
                    assert set(other.sampling_logprobs) == {0.0}
                    continue
                if temperature == 1:
                    np.testing.assert_allclose(other.sampling_logprobs, other.logprobs, atol=1e-6)
                # the sum of all p^2 is at most 1
                assert all(
                    q >= p / temperature - 1e-6 for q, p in zip(other.sampling_logprobs, other.logprobs, strict=True)
                )
