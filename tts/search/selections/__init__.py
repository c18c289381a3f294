"""Selections, one a file: from candidates to an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.search.selections.best import Best as Best
    from tts.search.selections.best_of_majority import BestOfMajority as BestOfMajority
    from tts.search.selections.borda import Borda as Borda
    from tts.search.selections.codet import CodeT as CodeT
    from tts.search.selections.deepconf import DeepConfidence as DeepConfidence
    from tts.search.selections.genselect import GenSelect as GenSelect
    from tts.search.selections.hierarchical import Hierarchical as Hierarchical
    from tts.search.selections.knockout import Knockout as Knockout
    from tts.search.selections.last_finish import LastFinish as LastFinish
    from tts.search.selections.league import League as League
    from tts.search.selections.majority import Majority as Majority
    from tts.search.selections.majority_of_bests import MajorityOfBests as MajorityOfBests
    from tts.search.selections.medoid import Medoid as Medoid
    from tts.search.selections.pairwise import Pairwise as Pairwise
    from tts.search.selections.pessimistic import Pessimistic as Pessimistic
    from tts.search.selections.pivot import Pivot as Pivot
    from tts.search.selections.rpc import Rpc as Rpc
    from tts.search.selections.selective import Selective as Selective
    from tts.search.selections.shortest import Shortest as Shortest
    from tts.search.selections.swiss import Swiss as Swiss
    from tts.search.selections.weighted import Weighted as Weighted

__getattr__, __dir__, __all__ = lazy_exports(__name__)
