"""Log-probabilities of the tokens of an answer, of models whose tokenizer is known here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tts.backends.finite import LEAST_LOGPROB
from tts.backends.metadata import Tokenizer
from tts.types import Trajectory

_HALF = "\N{REPLACEMENT CHARACTER}"  # tokenizers write this for an incomplete character
_CONTEXT = 4  # earlier tokens that are written together with a token, since a first token loses its space


def token_logprobs(path: Trajectory, text: str, tokenizer: Tokenizer) -> list[dict[str, Any]] | None:
    """Return the tokens of a text within a path, with the logarithms of their probabilities.

    The probabilities are the model's at temperature 1.

    Args:
        path: The path.
        text: A text that the path has, such as its response.
        tokenizer: The tokenizer of its model.

    Returns:
        The tokens, as OpenAI's APIs have them, with natural logarithms of at least -9999. None where the path does not
        have the text, or the tokens of a piece of it are not known.
    """
    full_text, nodes = path.full_text, path.path[1:]
    text_begin = full_text.rfind(text)
    if text_begin < 0:
        return None
    for node in nodes:
        has_unknown_tokens = bool(node.text) and not node.logprobs
        if has_unknown_tokens or len(node.logprobs) > len(node.token_ids):
            return None
    logprobs = [logprob for node in nodes for logprob in node.logprobs]
    ids = [token for node in nodes for token in node.token_ids[: len(node.logprobs)]]
    tokens: list[dict[str, Any]] = []
    position, text_end = 0, text_begin + len(text)
    for token_text, logprob in zip(token_texts(ids, tokenizer), logprobs, strict=True):
        if position >= text_end:  # later tokens, such as an end of sequence, are no part of the text
            break
        if not full_text.startswith(token_text, position):
            return None
        position += len(token_text)
        if position > text_begin:
            value = max(logprob, LEAST_LOGPROB)
            token = {"token": token_text, "bytes": list(token_text.encode()), "logprob": value, "top_logprobs": []}
            tokens.append(token)
    return tokens if position >= text_end else None


def token_texts(ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """Return the text that each token completes.

    Where several tokens make up one character, the last has the character, and the others have "".
    """
    texts: list[str] = []
    begin = 0  # the first token whose text is not complete yet
    for end in range(1, len(ids) + 1):
        context = ids[max(0, begin - _CONTEXT) : begin]
        context_text = tokenizer.write(context) if context else ""
        written = tokenizer.write(ids[begin - len(context) : end])
        if not written.startswith(context_text) or written.endswith(_HALF):
            texts.append("")
            continue
        texts.append(written[len(context_text) :])
        begin = end
    return texts
