"""Prompts and paths of tokenizers that are unlike the usual ones."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jinja2")

import jinja2

from tts.backends.text.rendering import Renderer
from tts.errors import ConfigError
from tts.thoughts import ThoughtMarks
from tts.types import Message


class Letters:
    """A tokenizer of letters, whose template refuses all messages."""

    chat_template = "<think> and </think>"
    backend_tokenizer: Any = None
    eos_token_id = 0

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(map(ord, text))

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(map(chr, ids))

    def apply_chat_template(self, *_: Any, **__: Any) -> str:
        raise jinja2.TemplateError("the first role must be system")


def test_a_template_that_refuses_a_question_still_has_its_marks() -> None:
    renderer = Renderer(Letters(), frozenset({0}))
    with pytest.raises(ConfigError, match=r"model's.*template.*messages"):
        renderer.prompt((Message("user", "?"),))
    assert renderer.thoughts() == ThoughtMarks("<think>\n", "\n</think>\n\n")
    assert renderer.thoughts(ThoughtMarks("[", "]")) == ThoughtMarks("[", "]")


def test_a_vocabulary_that_only_looks_byte_level_is_decoded_by_its_tokenizer() -> None:
    kind = type("ByteLevel", (), {})
    tokenizer = Letters()
    tokenizer.backend_tokenizer = SimpleNamespace(
        decoder=kind(),
        get_added_tokens_decoder=dict,
        get_vocab_size=lambda **_: 2,
        id_to_token=lambda token: ("a", "語")[token],
    )
    assert Renderer(tokenizer, frozenset()).decode([ord("語")]) == "語"
    tokenizer.backend_tokenizer.id_to_token = lambda token: ("a", "b")[token]
    assert Renderer(tokenizer, frozenset()).decode([0, 1, 0, 7]) == "aba"
