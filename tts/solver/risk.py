"""The use for which a calibrated threshold holds, and the limit below which a search abstains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tts.backends.base import Sampling
from tts.budget.budget import format_limits
from tts.solver.setup import ProblemRun


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedUse:
    """The use of models that was calibrated; the guarantee holds for this use alone.

    Args:
        model: The names of the models by role, as text.
        strategy: The plan with its selection.
        budget: The limits, as text.
        task: The name of the task.
        verifiers: The verifiers by role, as text.
        sampling: The sampling of the rows, as text.
    """

    model: str
    strategy: str
    budget: str
    task: str
    verifiers: str
    sampling: str


def use_of(run: ProblemRun) -> CalibratedUse:
    """Return the use for which a calibration of a run holds."""
    setup = run.setup
    return CalibratedUse(
        model=text_by_role(setup.model_names),
        strategy=setup.text,
        budget=format_limits(run.limits),
        task=setup.task.name,
        verifiers=text_by_role(setup.verifier_texts),
        sampling=sampling_text(setup.sampling),
    )


def text_by_role(by_role: Mapping[str, str]) -> str:
    """Return names by role as text, such as "policy=toy"; "none" where there are none."""
    return ", ".join(f"{role}={name}" for role, name in sorted(by_role.items())) or "none"


def sampling_text(sampling: Sampling) -> str:
    """Return the parameters of a sampling as text, such as "temperature=0.8"; see `Sampling.members`."""
    return ", ".join(f"{name}={value!r}" for name, value in sampling.members().items())


@dataclass(frozen=True, slots=True)
class RiskLimit:
    """The limit below which a search abstains.

    Args:
        level: The share of given answers that may be wrong.
        threshold: The least confidence at which an answer is given.
    """

    level: float
    threshold: float

    def refusal(self, confidence: float) -> str:
        """Return why an answer of this confidence is not given; "": the answer is given."""
        if confidence >= self.threshold:
            return ""
        known = "unknown" if math.isnan(confidence) else f"{confidence:.3g}"
        wanted = "no confidence suffices" if math.isinf(self.threshold) else f"{self.threshold:.3g} is needed"
        return f"no answer is given: the confidence is {known}, but {wanted} for a risk of {self.level:g}"
