"""What strategies share that write with two models: their common parameters.

Between models a path travels as text, so that their tokenizers may differ. A role without a model, or whose model lacks
what is used of it, is refused before anything is spent. `draft='policy'` writes with one model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tts.checks import Text
from tts.search.needs import Needs
from tts.search.strategies._common.side_by_side import SideBySide


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoModels(SideBySide):
    """The parameters of such a strategy.

    Args:
        draft: Role of the small model; that of the large one is "policy".
        n: As in `SideBySide`.
        temperature: As in `SideBySide`, of both models.
        max_steps: As in `SideBySide`.

    Attributes:
        needs_of_draft: Capabilities that it needs of the draft's model.
    """

    needs_of_draft: ClassVar[tuple[str, ...]] = ("steps", "extend")
    draft: Text = "draft"

    def needs(self) -> Needs:
        """Steps of both models, each of which goes on behind the other's."""
        return Needs(capabilities=("steps", "extend"), models=self.draft_needs("steps", "extend"))

    def draft_needs(self, *capabilities: str) -> dict[str, tuple[str, ...]]:
        """Return capabilities of the draft's model by its role; none, where the policy drafts."""
        return {} if self.draft == "policy" else {self.draft: capabilities}
