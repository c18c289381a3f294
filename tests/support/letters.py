"""A backend that writes letters by a given law of the letters before.

So all texts of a law can be enumerated. `letter_law` is that of a small language, beside laws that sharpen its texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tts.backends.base import Backend, Caps, Extension, Finish, Reply, RowSet, Sample, SampleRequest, Sampling
from tts.backends.metadata import BackendMetadata
from tts.backends.sampling import draw, filtered_distribution
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


# A small language -----------------------------------------------------------------------------------------------------

# What b leads to is surer than what a leads to, which is likelier at first. So to sharpen each letter is not to sharpen
# whole texts.
LONGEST = 4  # letters of a text
LAWS: Mapping[str, Mapping[str, float]] = {  # of the letter after each
    "": {"a": 0.6, "b": 0.4},
    "a": {"a": 0.3, "b": 0.25, "c": 0.25, "": 0.2},
    "b": {"b": 0.85, "a": 0.05, "": 0.1},
    "c": {"c": 0.5, "": 0.5},
}
Text = tuple[str, ...]  # letters; "" is the end


def letter_law(text: str) -> Mapping[str, float]:
    """Return the law of the next letter."""
    return {"": 1.0} if len(text) == LONGEST else LAWS[text[-1:]]


TEXTS = list(texts_of(letter_law))


def power_law(alpha: float) -> dict[Text, float]:
    """Return p^alpha over whole texts, normalized."""
    weights = power_masses(alpha)
    return {text: weight / sum(weights.values()) for text, weight in weights.items()}


def law_at_temperature(alpha: float) -> dict[Text, float]:
    """Return the law of texts whose letters are drawn at temperature 1 / alpha."""
    return {text: mass(letter_law, text, heat=1 / alpha) for text in TEXTS}


def power_masses(alpha: float, **filters: float) -> dict[Text, float]:
    """Return p^alpha of each text that the filters leave, not normalized.

    Args:
        alpha: The exponent.
        filters: Fields of `Sampling`, which see each letter's law at temperature 1 / alpha.
    """

    def filter_law(text: str) -> Mapping[str, float]:
        law = letter_law(text)
        drawn = filtered_distribution(np.log(list(law.values())), Sampling(temperature=1 / alpha, **filters))
        return {letter: p for (letter, p), q in zip(law.items(), drawn.tolist(), strict=True) if q > 0}

    return {
        text: math.prod(letter_law("".join(text[:i]))[letter] ** alpha for i, letter in enumerate(text))
        for text in texts_of(filter_law)
    }


def total_variation(a: dict[Text, float], b: dict[Text, float]) -> float:
    """Return the total variation between two laws."""
    return sum(abs(a[text] - b[text]) for text in a) / 2
