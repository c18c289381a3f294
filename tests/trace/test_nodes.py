"""The nodes of a trace, which are made on first use, stand for their tuple."""

from __future__ import annotations

import pickle

import tts
from tts.trace.nodes import RecordedNodes


def test_nodes_compare_hash_and_pickle_as_their_tuple() -> None:
    solved = [
        tts.solve("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=2) | majority", seed=seed).trace
        for seed in (1, 1, 2)
    ]
    first, again, other = (trace.nodes for trace in solved)
    assert isinstance(first, RecordedNodes)
    assert first == again
    assert first == tuple(first)
    assert first != other
    assert hash(first) == hash(again)
    pickled = pickle.loads(pickle.dumps(first))
    assert type(pickled) is tuple
    assert pickled == first
    assert first[1:] == tuple(first)[1:]


def test_text_that_the_tokenizer_does_not_know_leaves_its_nodes_readable() -> None:
    """Forced text within a thought has tokens of its own on the toy: all of them count as the thought's."""

    @tts.as_strategy
    async def forced(search):
        [begun] = await search.extend([search.root], "<think>\nfor myself 3 + 4 = 7\n")
        return await search.complete([begun])

    found = tts.solve("3 + 4 - 2", 400, model="toy-thinking", strategy=forced)
    nodes = list(found.trace.nodes)
    assert nodes[1].text.startswith("<think>\nfor myself")
    assert nodes[1].thought_tokens == len(nodes[1].token_ids) > 0
