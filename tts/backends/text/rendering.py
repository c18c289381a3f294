"""Rendering of prompts, encoding of forced text, and decoding of paths."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

import jinja2
import numpy as np

from tts.backends.prompt_logprobs import PromptLogprobs, Top
from tts.backends.text.detokenizer import Detokenizer
from tts.backends.text.lengths import check_some
from tts.backends.text.tokenized_text import TokenizedText
from tts.errors import ConfigError
from tts.thoughts import KNOWN, ThoughtMarks
from tts.types import Message, Prompt, prompt_text


class Renderer:
    """Turns prompts and texts into token ids, and ids into text.

    Args:
        tokenizer: The tokenizer of the transformers library.
        eos: Ids that end a sequence, which decode to "".
    """

    def __init__(self, tokenizer: Any, eos: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.eos = eos
        self._bytes = _byte_table(tokenizer, eos)

    def prompt(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the tokens of a prompt.

        Text is encoded as the tokenizer does by default, with a beginning-of-sequence token if the tokenizer adds one.
        Messages pass through the chat template, which then opens the assistant's turn. Without a template, messages are
        joined by blank lines. A `TokenizedText` has its own tokens.

        Raises:
            ConfigError: The chat template refuses the messages, or the prompt renders to no token.
        """
        if isinstance(prompt, str) or not getattr(self._tokenizer, "chat_template", None):
            text = prompt_text(prompt)
            ids = text.ids if isinstance(text, TokenizedText) else tuple(self._tokenizer.encode(text))
        else:
            turns = [dataclasses.asdict(message) for message in prompt]
            try:
                ids = self.text(self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
            except jinja2.TemplateError as failure:
                raise ConfigError(f"the model's chat template refuses the messages: {failure}") from failure
        check_some(ids)
        return ids

    def thoughts(self, given: ThoughtMarks | None = None) -> ThoughtMarks | None:
        """Return the marks of the model's thoughts; None: no marks are known.

        Args:
            given: The marks of the model's record; None: known marks are looked for in the chat template.
        """
        template = str(getattr(self._tokenizer, "chat_template", None) or "")
        known_marks = [marks for marks in KNOWN.values() if marks.close.strip() in template]
        marks = given
        if marks is None and known_marks:
            marks = known_marks[0]
        if marks is None or not template:
            return marks
        with suppress(ConfigError):
            prompt_ids = self.prompt((Message("user", "?"),))
            return marks.continue_prompt(self.decode(prompt_ids))  # the template may open a thought in the prompt
        return marks

    def text(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a text after a path, with nothing added; a `TokenizedText` has its own tokens."""
        if isinstance(text, TokenizedText):
            return text.ids
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def count_text(self, text: str) -> int:
        """Return the number of tokens of a text after a path."""
        return len(self.text(text))

    def single(self, token: str) -> int:
        """Return the id of a text that is one token.

        Raises:
            ConfigError: The text is not exactly one token.
        """
        ids = self.text(token)
        if len(ids) != 1:
            raise ConfigError(
                f"token {token!r} is {len(ids)} tokens to this model, but must be exactly one",
                hint="choose another label",
            )
        return ids[0]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens.

        Ends of sequence, and ids that the tokenizer lacks, have no text. Other special tokens have their name as text.
        """
        if self._bytes is not None:
            known_bytes = [self._bytes[token] for token in ids if token < len(self._bytes)]
            return b"".join(known_bytes).decode("utf-8", "replace")
        shown_ids = [token for token in ids if token not in self.eos]
        return self._tokenizer.decode(shown_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def text_of(self, text: str, ids: Sequence[int]) -> str:
        """See `BackendMetadata.text_of`."""
        del text
        return self.decode(ids)

    def pieces(self, before: Sequence[int], ids: Sequence[int]) -> list[str]:
        """Return the text that each token of `ids` completes after `before`.

        The joined texts are the whole text.
        """
        detokenizer = Detokenizer(self.decode, before, 0, len(before))
        pieces = [detokenizer.push(token) for token in ids]
        if pieces:
            pieces[-1] += detokenizer.flush()
        return pieces

    def name(self, token: int) -> str:
        """Return the text of one token; for an end of sequence, its name."""
        if token not in self.eos:
            return self.decode((token,))
        return str(self._tokenizer.convert_ids_to_tokens(token) or "")

    def write(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, with the names of ends of sequence."""
        texts: list[str] = []
        for are_ends, run in groupby(ids, lambda token: token in self.eos):
            if are_ends:
                texts += map(self.name, run)
            else:
                texts.append(self.decode(list(run)))
        return "".join(texts)

    def special(self) -> dict[str, str | None]:
        """See `tts.backends.metadata.Tokenizer`.

        Where the tokenizer names no end of sequence, the model's end of sequence is named.
        """
        names = ("bos_token", "eos_token", "unk_token", "pad_token")
        given = {name: getattr(self._tokenizer, name, None) for name in names}
        tokens = {name: None if token is None else str(token) for name, token in given.items()}
        if not tokens["eos_token"]:
            tokens["eos_token"] = self.name(min(self.eos)) if self.eos else None
        return {
            "tokenizer_class": type(self._tokenizer).__name__,
            **tokens,
            "chat_template": getattr(self._tokenizer, "chat_template", None),
        }

    def prompt_logprobs(
        self, ids: Sequence[int], logprobs: Sequence[float], likely: Sequence[Sequence[tuple[int, float]]]
    ) -> PromptLogprobs:
        """Return the log-probabilities of a prompt with the texts of its tokens.

        Args:
            ids: [T], the tokens of the prompt.
            logprobs: [T], the log-probability of each token.
            likely: [T + 1], the most likely tokens at each place and after the last token, with their
                log-probabilities. All are () where none are wanted.
        """
        texts = [
            self.name(token) if token in self.eos else piece
            for token, piece in zip(ids, self.pieces((), ids), strict=True)
        ]
        all_tops: list[tuple[Top, ...]] = []
        for place in likely:
            place_tops = [Top(self.name(token), logprob, ends=token in self.eos) for token, logprob in place]
            all_tops.append(tuple(place_tops))
        *tops, next_tops = all_tops
        return PromptLogprobs(
            token_ids=tuple(ids),
            texts=tuple(texts),
            logprobs=np.array(logprobs, np.float64),
            tops=tuple(tops) if next_tops else (),
            behind=next_tops,
        )


def _byte_table(tokenizer: Any, eos: frozenset[int]) -> list[bytes] | None:
    """Return the bytes of every token of a byte-level tokenizer; None for other tokenizers.

    The text of tokens of a byte-level tokenizer is the decoding of the tokens' joined bytes.

    Args:
        tokenizer: The tokenizer of the transformers library.
        eos: Ids that end a sequence, which have no bytes.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or type(backend.decoder).__name__ != "ByteLevel":
        return None
    special_tokens = set(backend.get_added_tokens_decoder())
    table: list[bytes] = []
    for token in range(backend.get_vocab_size(with_added_tokens=True)):
        text = backend.id_to_token(token)
        if text is None or token in eos:
            table.append(b"")
        elif token in special_tokens:
            table.append(text.encode())
        elif any(character not in _BYTES for character in text):
            return None  # the tokenizer only looks byte-level
        else:
            table.append(bytes(_BYTES[character] for character in text))
    return table


def _unicode_bytes() -> dict[str, int]:
    """Return the byte for which each character stands in byte-level vocabularies (GPT-2, Radford et al. 2019)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _unicode_bytes()


def eos_ids(generation: Any, config: Any, tokenizer: Any) -> frozenset[int]:
    """Return every id that ends a sequence, by a model's settings.

    Args:
        generation: The generation settings; None: there are none.
        config: The configuration of the model.
        tokenizer: The tokenizer.
    """
    tokens: set[int] = set()
    for settings in (generation, config, tokenizer):
        id_or_ids: Any = getattr(settings, "eos_token_id", None)
        if isinstance(id_or_ids, list | tuple):
            tokens.update(map(int, id_or_ids))
        elif id_or_ids is not None:
            tokens.add(int(id_or_ids))
    return frozenset(tokens)
