"""Texts of tokens, and the log-probabilities of an answer's tokens."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("torch", reason="the extra engine is not installed")

from tts.backends.metadata import metadata_of
from tts.backends.text.rendering import Renderer
from tts.types import Trajectory
from tts_addons.gateway.wire.token_logprobs import token_logprobs, token_texts


@pytest.fixture(params=["pocket", "bytes"])
def tokenizer(request: Any, client: Any) -> Any:
    """The tokenizer of the embedded model, and one whose tokens are single bytes."""
    return of_bytes() if request.param == "bytes" else of_pocket(client)


def of_pocket(client: Any) -> Any:
    offers = client(models={"pocket": {}}).app.state.gateway.offers
    return metadata_of(offers.backends(offers.get("pocket"))["policy"]).tokenizer


def of_bytes() -> Any:
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {**{letter: place for place, letter in enumerate(alphabet)}, "<eos>": len(alphabet)}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return Renderer(
        transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>"), frozenset({len(alphabet)})
    )


def path(tokenizer: Any, *texts: str, logprobs: bool = True) -> Trajectory:
    """Return a path with a piece a text, in which the k-th token of a piece has the log-probability -k."""
    found = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)
    for number, text in enumerate(texts, 1):
        ids = tokenizer.text(text)
        values = tuple(-float(one) for one in range(len(ids))) if logprobs else ()
        found = Trajectory(found, text, ids, values, "finished", 0, number, found.num_tokens + len(ids), number)
    return found


def test_texts_of_tokens_join_to_the_text(tokenizer: Any) -> None:
    for text in ("12 + 7 = 19\n", "7 * 3 = 21\n12 + 21 = 33\nA: 33"):
        ids = tokenizer.text(text)
        assert "".join(token_texts(ids, tokenizer)) == tokenizer.write(ids)
        assert len(token_texts(ids, tokenizer)) == len(ids)
    assert token_texts((), tokenizer) == []


def test_characters_of_several_tokens_stand_at_the_last_one() -> None:
    text, tokenizer = " 🦜 naïve 漢字\n", of_bytes()
    texts = token_texts(tokenizer.text(text), tokenizer)
    assert len(texts) == len(text.encode())
    assert [one for one in texts if one] == list(text)
    assert texts[1:5] == ["", "", "", "🦜"]


def test_the_tokens_are_those_of_the_text_alone(tokenizer: Any) -> None:
    whole = path(tokenizer, "1 + 2 = 3\n", "A: 3")
    found = token_logprobs(whole, "A: 3", tokenizer)
    assert found is not None
    assert "".join(one["token"] for one in found) == "A: 3"
    assert [one["logprob"] for one in found] == [-float(one) for one in range(len(found))]
    assert token_logprobs(whole, "no text of it", tokenizer) is None
    assert token_logprobs(path(tokenizer, "A: 3", logprobs=False), "A: 3", tokenizer) is None
