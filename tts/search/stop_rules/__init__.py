"""Stop rules, one a file: when to stop before the budget is used up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.search.stop_rules.cges import CGES as CGES
    from tts.search.stop_rules.entropy import Entropy as Entropy
    from tts.search.stop_rules.first_finish import FirstFinish as FirstFinish
    from tts.search.stop_rules.in_a_row import InARow as InARow
    from tts.search.stop_rules.mixture_sprt import MixtureSPRT as MixtureSPRT
    from tts.search.stop_rules.never import Never as Never
    from tts.search.stop_rules.pandora import Pandora as Pandora
    from tts.search.stop_rules.posterior import Posterior as Posterior
    from tts.search.stop_rules.reasc import ReASC as ReASC
    from tts.search.stop_rules.score_threshold import ScoreThreshold as ScoreThreshold
    from tts.search.stop_rules.sprt import SPRT as SPRT
    from tts.search.stop_rules.unanimous import Unanimous as Unanimous

__getattr__, __dir__, __all__ = lazy_exports(__name__)
