"""A model that writes by a script, and verifiers that score by a table: trees whose scores are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tts.backends.base import Finish, RowSet, Sample, SampleRequest
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import tokens_of
from tts.randomness import hash64
from tts.types import Problem
from tts.verifiers.function import FunctionVerifier


class Scripted(ToyBackend):
    """Writes the steps of a script in turn after each text.

    Row i of a request gets step i, and begins again after the last.

    Args:
        script: The steps that may follow a path, by its text; a path that ends in an answer line has ended.
        always: The steps after a text that the script does not have.
    """

    def __init__(self, script: Mapping[str, Sequence[str]], always: Sequence[str] = ("A: 0\n",)) -> None:
        super().__init__()
        self.script = script
        self.always = always

    def sample(self, request: SampleRequest) -> RowSet:
        rows = RowSet(request)
        for index, row in enumerate(request.rows):
            text, finish = "", "stop"
            tokens: list[str] = []
            while finish == "stop" and not (request.stop.at_step and text) and len(tokens) <= row.max_tokens:
                options = self.script.get(request.text + text, self.always)
                step = options[index % len(options)]
                finish = "answer" if step.startswith("A:") else "stop"
                text, tokens = text + step, tokens + tokens_of(step)
            finish, tokens = self._cap(finish, tokens, row.max_tokens)
            handle = request.handle.child()
            for token in tokens:
                handle.write(token)
            self.counters.generated_tokens += len(tokens)
            rows.resolve(index, Sample("".join(tokens), (), (), finish, handle, len(tokens)))
        return rows

    @staticmethod
    def _cap(finish: str, tokens: list[str], cap: int) -> tuple[Finish, list[str]]:
        return (finish, tokens) if len(tokens) <= cap else ("length", tokens[:cap])  # type: ignore[return-value]


def table(scores: Mapping[str, float], otherwise: float = 0.5) -> dict[str, FunctionVerifier]:
    """Return a verifier that looks up the last line of a path."""

    def score(problem: Problem, text: str) -> float:
        return scores.get(text.splitlines()[-1], otherwise) if text else otherwise

    return {"main": FunctionVerifier(score)}


def hash_verifier(seed: int = 0) -> dict[str, FunctionVerifier]:
    """Return a verifier whose scores in (0, 1) are a hash of the text: no two texts are alike."""
    return {"main": FunctionVerifier(lambda problem, text: (hash64("score", seed, text) + 0.5) * 2.0**-64)}
