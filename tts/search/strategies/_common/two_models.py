"""What strategies share that write with two models: their common parameters.

Between models a path travels as text, so that their tokenizers may differ. A role without a model, or whose model lacks what is used of
it, is refused before anything is spent. `draft='policy'` writes with one model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tts.checks import check_text
from tts.search.strategies._common.side_by_side import SideBySide


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoModels(SideBySide):
    """The parameters of such a strategy.

    Args:
        draft: role of the small model; that of the large one is "policy".
        n, temperature, max_steps: as in `SideBySide`; the temperature is of both.

    Attributes:
        needs_of_draft: capabilities that it needs of the draft's model.
    """

    needs = ("steps", "extend")
    needs_of_draft: ClassVar[tuple[str, ...]] = ("steps", "extend")
    draft: str = "draft"

    def __post_init__(self) -> None:
        SideBySide.__post_init__(self)
        check_text("draft", self.draft)

    @property
    def needs_of_models(self) -> dict[str, tuple[str, ...]]:
        """What is used of the draft's model; nothing, where the policy drafts."""
        return {} if self.draft == "policy" else {self.draft: self.needs_of_draft}
