"""The toy language with a judge: messages are questions about a solution.

A reply is a function of the row's stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tts.backends.base import Reply, RowSet, Sample, SampleRequest
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.types import Prompt


class JudgingToy(ToyBackend):
    """The toy, which replies to messages as a judge.

    A reply is a function of its row's stream, and one in four is prose.
    """

    def __init__(self, language: ToyLanguage) -> None:
        super().__init__(language)
        self._asked: list[Any] = []

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        replies = await super().open(prompts)
        self._asked += [
            reply.value for reply, prompt in zip(replies, prompts, strict=True) if not isinstance(prompt, str)
        ]
        return replies

    def sample(self, request: SampleRequest) -> RowSet:
        if not any(handle is request.handle for handle in self._asked):
            return super().sample(request)
        rows = RowSet(request)
        for index, row in enumerate(request.rows):
            text = self.reply(row.stream) if row.stream % 4 else "it is hard to say"
            size = 1 + row.stream % row.max_tokens
            self.counters.generated_tokens += size
            rows.resolve(index, Sample(text, (), (), "eos", request.handle.child(), size))
        return rows

    @staticmethod
    def reply(stream: int) -> str:
        return f'{{"score": {stream % 11}}}'


class ApprovingToy(JudgingToy):
    """Ends its replies with a verdict; what it says to a question is a token of the language."""

    @staticmethod
    def reply(stream: int) -> str:
        return "3 + 4 = 7. Verdict: " + ("Yes" if stream % 3 else "No")
