"""The embedder of sentences, on a model that is made here; the others are tested where they are used."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import tts
from tts.backends.openai.errors import ServerError
from tts.errors import ConfigError, MissingDependency
from tts.search.algorithms.embedding import Sentences
from tts.search.algorithms.embedding_endpoint import Endpoint

TEXTS = ["3 + 4 = 7", "3 + 4 = 7", "9 - 2 = 7"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny BERT with random weights, which sentence-transformers reads with a mean over the tokens."""
    pytest.importorskip("sentence_transformers")
    from transformers import BertConfig, BertModel, BertTokenizerFast

    path = tmp_path_factory.mktemp("bert")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"0123456789+-=", *(f"##{digit}" for digit in range(10))]
    BertTokenizerFast(vocab={piece: i for i, piece in enumerate(pieces)}).save_pretrained(path)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(pieces), **shape)).save_pretrained(path)
    return str(path)


def test_equal_texts_have_equal_vectors_of_length_one(folder: str) -> None:
    vectors = asyncio.run(Sentences(model=folder).embed(TEXTS))
    assert vectors.shape == (3, 32)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-5)
    assert np.abs(vectors[0] - vectors[2]).max() > 1e-3


def test_a_tree_search_clusters_by_it(folder: str) -> None:
    plan = f"ets(n=4, embedder=\"sentences(model='{folder}')\")"
    solution = tts.solve("3 + 4 - 2 + 9", 600, model="toy", verifier="toy(error=0.1)", strategy=plan)
    assert solution.answer == "14"


def test_a_model_that_there_is_not_is_named(folder: str) -> None:
    with pytest.raises(ConfigError, match=r"model.*'.*none',.*load"):
        asyncio.run(Sentences(model=f"{folder}/none").embed(TEXTS))


def test_where_it_is_not_installed_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts.search.algorithms.embedding.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="sentence-transformers") as refused:
        Sentences()
    assert refused.value.hint == "pip install 'test-time-search[embeddings]'"


@pytest.mark.parametrize(
    "data",
    [None, [], [{"embedding": [1.0]}], [{"embedding": [1.0]}, {}], [{"embedding": [1.0]}, {"embedding": [1.0, 2.0]}],
     [{"embedding": [1.0]}, {"embedding": ["x"]}], [{"embedding": [1.0]}, {"embedding": [float("inf")]}]],
)  # fmt: skip
def test_a_reply_without_a_vector_of_one_length_for_each_text_is_a_bad_one(data: Any) -> None:
    endpoint = Endpoint(url="http://localhost:1", model="m")
    with pytest.raises(ServerError, match=r"vectors.*2"):
        endpoint._vectors({"data": data}, 2)


def test_vectors_come_in_the_order_of_their_indices() -> None:
    data = [{"index": 1, "embedding": [2, 0]}, {"index": 0, "embedding": [1, 0]}]
    assert Endpoint(url="http://localhost:1", model="m")._vectors({"data": data}, 2) == [[1.0, 0.0], [2.0, 0.0]]
