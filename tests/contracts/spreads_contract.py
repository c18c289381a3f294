"""What every backend promises of the spreads of its laws: given where they are asked for, and of no influence."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.contracts.backend_contract import GREEDY, TO_END, BackendContract, drained, plain
from tts.backends.base import SampleRequest


class SpreadsContract(BackendContract):
    """The contract of all backends, and this."""

    def test_spreads_are_given_where_they_are_asked_for_and_change_nothing(self) -> None:
        async def check(backend: Any) -> None:
            handle = await self.opened(backend)
            asked = backend.sample(SampleRequest(handle, tuple(self.rows(1)), GREEDY, TO_END, spreads=True))
            [[bare], [told]] = await drained(self.ask(backend, handle, self.rows(1), GREEDY), asked)
            assert plain(told) == plain(bare)
            assert len(told.spreads) == (told.num_tokens if backend.caps.tops else 0)
            for spread, logprob in zip(told.spreads, told.logprobs, strict=False):
                assert spread.top >= -logprob - 1e-6  # the drawn token is the most likely one
                assert np.isnan(spread.certainty) != backend.caps.spreads

        self.run(check)
