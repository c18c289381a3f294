"""The nodes of a trace, which are made on first use, stand for their tuple."""

from __future__ import annotations

import pickle

import tts
from tts.trace.nodes import RecordedNodes


def test_nodes_compare_hash_and_pickle_as_their_tuple() -> None:
    solved = [tts.solve("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=2) | majority", seed=seed).trace for seed in (1, 1, 2)]
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
