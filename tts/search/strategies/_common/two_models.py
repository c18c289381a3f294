"""Common parameters of strategies that write with two models.

Between models a path travels as text, so that their tokenizers may differ. A role without a model is refused before
anything is spent, and so is a model that lacks a needed capability. `draft='policy'` writes with one model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tts.checks import Text
from tts.search.needs import Needs
from tts.search.strategies._common.side_by_side import SideBySide


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoModels(SideBySide):
    """The parameters of a strategy that writes with two models.

    Args:
        draft: The role of the small model. The role of the large model is "policy".
        n: As in `SideBySide`.
        temperature: As in `SideBySide`, for both models.
        max_steps: As in `SideBySide`.

    Attributes:
        needs_of_draft: The capabilities that the strategy needs of the draft's model.
    """

    needs_of_draft: ClassVar[tuple[str, ...]] = ("steps", "extend")
    draft: Text = "draft"

    def needs(self) -> Needs:
        """Return the needs: steps of both models, where each model continues the other's text."""
        return Needs(capabilities=("steps", "extend"), models=self.draft_needs("steps", "extend"))

    def draft_needs(self, *capabilities: str) -> dict[str, tuple[str, ...]]:
        """Return the needed capabilities by the draft's role; an empty mapping where the policy drafts."""
        return {} if self.draft == "policy" else {self.draft: capabilities}
