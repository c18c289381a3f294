"""What every backend promises of the log-probabilities of prompts: those of one token after another, whatever else is
read.
"""

from __future__ import annotations

import asyncio
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest

from tests.contracts.backend_contract import GREEDY, BackendContract, drained
from tts.backends.base import Reply
from tts.backends.capabilities import prompt_logprobs
from tts.backends.prompt_logprobs import PromptLogprobs
from tts.backends.text.tokenized_text import TokenizedText
from tts.errors import ConfigError, PromptTooLong, TTSError


def told(found: PromptLogprobs) -> tuple[Any, ...]:
    """Return what must be equal wherever a prompt is read, to the last bit."""
    return found.token_ids, found.texts, found.logprobs.tobytes(), found.tops, found.behind


class PromptLogprobsContract(BackendContract):
    """The contract of all backends, and this.

    Attributes:
        reads: at least three prompts of several tokens, of which two share a beginning and one is a beginning of
            another.
    """

    reads: tuple[Any, ...] = ("the cat and the other", "the cat and the hat", "the cat")
    begins: str = ""  # the text of the token that the tokenizer sets before every text
    needs = "prompt_logprobs"

    async def stepwise(self, backend: Any, found: PromptLogprobs) -> list[float]:
        """Return the log-probabilities of a prompt's tokens, each read behind a prompt of the tokens before it."""
        one_by_one = [np.nan]
        for at, token in enumerate(found.token_ids[1:], 1):
            [opened] = await backend.open([TokenizedText.of(found.token_ids[:at])])
            [reply] = await backend.score([opened.value], [TokenizedText.of((token,))])
            one_by_one.append(float(reply.value[0]))
        return one_by_one

    async def one(self, backend: Any, prompt: Any, top: int = 0) -> Reply[PromptLogprobs]:
        [reply] = await prompt_logprobs(backend, [prompt], top)
        return reply

    def test_a_prompts_log_probabilities_are_those_of_its_tokens_one_after_another(self) -> None:
        async def check(backend: Any) -> None:
            for prompt in self.reads:
                found = (await self.one(backend, prompt, 3)).value
                size = len(found.texts)
                assert found.logprobs.shape == (size,)
                assert np.isnan(found.logprobs[0])
                assert len(found.token_ids) == (size if backend.caps.token_ids else 0)
                wanted = await self.stepwise(backend, found)
                np.testing.assert_allclose(found.logprobs, wanted, rtol=0, atol=1e-4)
                if isinstance(prompt, str):
                    assert "".join(found.texts) == self.begins + prompt
                for logprob, tops in zip(found.logprobs, found.tops, strict=True):
                    assert (tops == ()) == np.isnan(logprob)
                    values = [top.logprob for top in tops]
                    assert values == sorted(values, reverse=True)
                    assert not values or logprob <= values[0]

        self.run(check, self.needs)

    def test_what_may_follow_a_prompt_is_what_greedy_drawing_writes(self) -> None:
        async def check(backend: Any) -> None:
            for prompt in self.reads:
                found = (await self.one(backend, prompt, 2)).value
                assert (await self.one(backend, prompt)).value.behind == ()
                assert 1 <= len(found.behind) <= 2
                [opened] = await backend.open([TokenizedText.of(found.token_ids)])
                rows = self.ask(backend, opened.value, self.rows(1, max_tokens=1), GREEDY)
                [[sample]] = await drained(rows)
                assert found.behind[0].ends == (sample.finish == "eos")
                assert found.behind[0].text in (sample.text, sample.text or "\ufffd") or found.behind[0].ends
                np.testing.assert_allclose(found.behind[0].logprob, sample.logprobs, atol=1e-4)

        self.run(check, self.needs, "score")  # not where a server writes

    def test_neither_companions_nor_their_order_change_a_bit_of_a_prompts(self) -> None:
        async def check(backend: Any) -> None:
            alone = [told((await self.one(backend, prompt, 2)).value) for prompt in self.reads]
            for order in (range(len(self.reads)), reversed(range(len(self.reads)))):
                places = [*order, *order]
                replies = await prompt_logprobs(backend, [self.reads[place] for place in places], 2)
                assert [told(reply.value) for reply in replies] == [alone[place] for place in places]
            at_once = await asyncio.gather(*(self.one(backend, prompt, 2) for prompt in self.reads))
            assert [told(reply.value) for reply in at_once] == alone

        self.run(check, self.needs)

    def test_every_prompt_is_charged_its_tokens_and_the_counters_agree(self) -> None:
        async def check(backend: Any) -> None:
            replies = await prompt_logprobs(backend, [*self.reads, self.reads[0]])
            more = 1 if backend.name == "openai" else 0  # the token that the server must generate
            for reply in replies:
                assert reply.computed + (reply.reused or 0) == len(reply.value.texts) + more
            assert backend.counters.prompt_tokens == sum(reply.computed for reply in replies)
            assert backend.counters.reused_tokens == sum(reply.reused or 0 for reply in replies)
            assert backend.counters.generated_tokens == 0

        self.run(check, self.needs)

    def test_token_ids_are_read_as_they_are(self) -> None:
        async def check(backend: Any) -> None:
            by_text = await self.one(backend, self.reads[0])
            by_ids = await self.one(backend, TokenizedText.of(by_text.value.token_ids))
            assert told(by_ids.value) == told(by_text.value)

        self.run(check, self.needs, "token_ids")

    @pytest.mark.parametrize("bad", ["", TokenizedText.of(())])
    def test_a_prompt_without_a_token_is_refused_in_one_line(self, bad: str) -> None:
        async def check(backend: Any) -> None:
            if self.begins and not isinstance(bad, TokenizedText):
                pytest.skip(f"the text has the token {self.begins!r}")
            await self.refused(backend, bad, ConfigError)

        self.run(check, self.needs)

    @pytest.mark.parametrize("token", [-1, 299_999, 10**30])
    def test_a_token_that_the_model_lacks_is_refused_in_one_line(self, token: int) -> None:
        async def check(backend: Any) -> None:
            if backend.name in ("toy", "openai") and token > 0:
                pytest.skip("the toy has a token for every number, and servers know their own")
            await self.refused(
                backend, TokenizedText.of((token, *(await self.one(backend, self.reads[0])).value.token_ids)), TTSError
            )

        self.run(check, self.needs, "token_ids")

    def test_a_prompt_longer_than_the_context_is_refused_and_computes_nothing(self) -> None:
        async def check(backend: Any) -> None:
            if backend.context is None:
                pytest.skip(f"the backend {backend.name!r} has no context limit")
            await self.refused(backend, "x y " * backend.context, PromptTooLong)
            assert backend.counters.prompt_tokens == 0

        self.run(check, self.needs)

    @pytest.mark.parametrize("top", [-1, 21, True, 1.5, None])
    def test_a_number_of_alternatives_out_of_range_is_refused_in_one_line(self, top: Any) -> None:
        async def check(backend: Any) -> None:
            with pytest.raises(ConfigError, match=r"top is .* must be a whole number from 0 to 20"):
                await prompt_logprobs(backend, [self.reads[0]], top)

        self.run(check, self.needs)

    async def refused(self, backend: Any, prompt: Any, kind: type[Exception]) -> None:
        before = astuple(backend.counters)
        with pytest.raises(kind) as failure:
            await prompt_logprobs(backend, [prompt])
        assert "\n" not in str(failure.value)
        assert astuple(backend.counters) >= before
