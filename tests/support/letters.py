"""A backend that writes letters by a given law of the letters before.

So all texts of a law can be enumerated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tts.backends.base import Backend, Caps, Extension, Finish, Reply, RowSet, Sample, SampleRequest
from tts.backends.metadata import BackendMetadata
from tts.backends.sampling import draw
from tts.randomness import uniform
from tts.types import Prompt

Law = Callable[[str], Mapping[str, float]]  # of the next letter after a text; "" ends it


class Letters(Backend):
    """Writes letters by a law.

    Args:
        law: The probabilities of the next letter after each text. The order of letters is that of their ids.
    """

    caps = Caps(
        steps="native",
        extend="native",
        fork="native",
        logprobs=True,
        sampling_logprobs=True,
        token_ids=True,
        streams=True,
        usage=True,
        stop_predicate=True,
    )
    metadata = BackendMetadata(text_of=lambda text, ids: text[: len(ids)])

    def __init__(self, law: Law) -> None:
        self.law = law

    async def open(self, prompts: Sequence[Prompt]) -> list[Reply[Any]]:
        """Begin with nothing written."""
        self.counters.prompt_tokens += len(prompts)
        return [Reply("", 1) for _ in prompts]

    async def extend(self, handles: Sequence[Any], texts: Sequence[str]) -> list[Reply[Extension]]:
        """Append letters."""
        self.counters.prompt_tokens += sum(map(len, texts))
        return [
            Reply(Extension(handle + text, tuple(map(ord, text))), len(text))
            for handle, text in zip(handles, texts, strict=True)
        ]

    def sample(self, request: SampleRequest) -> RowSet:
        """Write each row letter by letter."""
        rows = RowSet(request)
        for index, row in enumerate(request.rows):
            text, logprobs, drawn = request.handle, list[float](), list[float]()
            finish: Finish = "length"
            written: list[str] = []
            while len(written) < row.max_tokens:
                law = self.law(text)
                choice = draw(
                    np.log(list(law.values())),
                    request.sampling,
                    uniform(row.stream, row.position + len(written), row.word),
                )
                letter = list(law)[choice.token]
                written.append(letter)
                logprobs.append(choice.logprob)
                drawn.append(choice.sampling_logprob)
                text += letter
                if not letter:
                    finish = "eos"
                    break
            self.counters.generated_tokens += len(written)
            ids = tuple(ord(letter or "\0") for letter in written)
            by_sampling = tuple(drawn) if request.sampling_logprobs else ()
            rows.resolve(
                index,
                Sample("".join(written), ids, tuple(logprobs), finish, text, len(ids), sampling_logprobs=by_sampling),
            )
        return rows


def texts_of(law: Law, before: str = "") -> Iterator[tuple[str, ...]]:
    """Yield every text that a law may write after another, as its letters, the end included."""
    for letter in law(before):
        if letter:
            yield from ((letter, *rest) for rest in texts_of(law, before + letter))
        else:
            yield (letter,)


def mass(law: Law, letters: Sequence[str], start: int = 0, heat: float = 1.0) -> float:
    """Return the probability of the letters from a place on, when each is drawn at a temperature.

    Args:
        law: The law of the next letter.
        letters: The text from its beginning.
        start: The number of letters that are given.
        heat: The temperature, above 0.
    """
    found, text = 1.0, "".join(letters[:start])
    for letter in letters[start:]:
        weights = {one: p ** (1 / heat) for one, p in law(text).items()}
        found *= weights[letter] / math.fsum(weights.values())
        text += letter
    return found
