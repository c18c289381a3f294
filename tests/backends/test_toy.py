"""The toy model: what its language refuses, and prompts that are given as tokens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tts
from tts.backends.text.tokenized_text import TokenizedText
from tts.backends.toy.backend import ToyBackend
from tts.backends.toy.language import ToyLanguage, ToyTokenizer, read_sum
from tts.errors import CapabilityError, ConfigError


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"accuracy": 1.5}, "accuracy and mute are 1.5 and 0.0, but must be probabilities"),
        ({"mute": -0.5}, "accuracy and mute are 0.8 and -0.5, but must be probabilities"),
        ({"again": 1.0}, r"again and better are 1.0 and 0.5, but must be in \[0, 1\) and \[0, 1\]"),
        ({"slips": ((1, 0.5), (1, 0.5))}, "but must be distinct offsets other than 0 with shares that sum to 1"),
        ({"slips": ((0, 1.0),)}, "but must be distinct offsets other than 0"),
        ({"slips": ((1, 0.5),)}, "with shares that sum to 1"),
    ],
)
def test_a_language_that_is_no_distribution_is_refused(settings: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigError, match=cause):
        ToyLanguage(**settings)


def test_a_prompt_of_tokens_is_the_sum_that_they_spell() -> None:
    backend, ids = ToyBackend(), ToyTokenizer().text("3 + 4 - 2")
    spelled, written = (reply.value for reply in asyncio.run(backend.open([TokenizedText.of(ids), "3 + 4 - 2"])))
    assert (
        (spelled.first, spelled.steps, spelled.truth)
        == (written.first, written.steps, written.truth)
        == (3, (4, -2), (7, 5))
    )


def test_it_has_one_value_head() -> None:
    with pytest.raises(CapabilityError, match=r"head.*'worth',.*model.*'truth'"):
        asyncio.run(ToyBackend().value([], "worth"))


@pytest.mark.parametrize(
    "text",
    ["12 + 7 * 3", "12 + 7 × 3", "2 * 3 + 4", "2 ** 3 + 4", "3 + 4 / 2", "3 + 4 ^ 2", "2 * (3 + 4)",
     "(3 + 4) - 2", "9 - (4 - 2)", "3.5 + 4", "3 + 4.5"],
)  # fmt: skip
def test_a_sum_inside_of_a_larger_expression_is_refused(text: str):
    for problem in (text, f"What is {text}?", f"Compute {text} = "):
        with pytest.raises(ConfigError, match="solves sums"):
            read_sum(problem)


@pytest.mark.parametrize(
    "text",
    [
        "3 + 4",
        "**3 + 4**",
        "(3 + 4)",
        "`3 + 4`",
        "3 + 4.",
        "1. 3 + 4",
        "3 + 4 = ?",
        "What is 5 * 5?\n\n3 + 4",
        "$3 + 4$",
    ],
)
def test_a_sum_between_other_signs_is_read(text: str):
    assert read_sum(text) == (3, (4,))


@pytest.mark.parametrize("name", ["toy", "toy-thinking"])
def test_prices_of_its_record_are_those_of_its_tokens(name: str) -> None:
    found = tts.solve(
        "3 + 4 - 2 + 9",
        tts.Budget(usd=0.01, samples=2),
        model=name,
        usd_in="1/M",
        usd_out="2/M",
        strategy="best_of_n(n=2) | best",
        verifier="toy(error=0.1)",
        task="arithmetic",
    )
    usage = found.usage
    computed = usage.prompt_tokens - (usage.reused_tokens or 0)
    assert usage.usd is not None
    assert usage.usd >= (computed + 2 * usage.generated_tokens) / 1e6
    assert usage.usd <= 0.01
    assert tts.solve("3 + 4", tts.Budget(samples=1), model=name, task="arithmetic").usage.usd is None
