"""Files of calibrated thresholds: what was calibrated, the guarantee, and the thresholds.

The command `tts calibrate` writes them.

A file holds for one use: a model with a strategy, a budget, a task, verifiers and sampling, for each link of a chain.
Another use is refused by the name of what differs, since the guarantee would not hold for it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from tts._common.files import read_small
from tts._common.sections import Section
from tts.checks import check_int
from tts.errors import ConfigError, quote
from tts.search.algorithms.calibration import CalibratedChain, calibrate_chain, proposers
from tts.solver.risk import CalibratedUse

FORMAT = 1
_CURE = "calibrate it: tts calibrate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemOutcomes:
    """The answers of one link of a chain to the calibration problems.

    Args:
        use: The use of models that answered.
        confidences: The confidence of each answer; NaN without one.
        right: Whether each answer is right.
    """

    use: CalibratedUse
    confidences: Sequence[float]
    right: Sequence[bool]


class LinkThreshold(Section):
    """The threshold of one link of a chain.

    Args:
        model: The names of the models by role.
        strategy: The plan with its selection.
        budget: The limits.
        task: The name of the task.
        verifiers: The verifiers by role.
        sampling: The sampling of the rows.
        threshold: The least confidence at which the link answers; None: the link never answers.
    """

    model: str
    strategy: str
    budget: str
    task: str
    verifiers: str
    sampling: str
    threshold: float | None

    @property
    def least(self) -> float:
        """The least confidence at which the link answers; infinite where it never answers."""
        return math.inf if self.threshold is None else self.threshold


class Thresholds(Section):
    """Calibrated thresholds, with their guarantee.

    Args:
        format: The version of the form.
        guarantee: What holds, in words.
        level: The share of given answers that may be wrong.
        delta: The probability, over sets of calibration problems, that the level is exceeded.
        n: The calibration problems.
        tested: The calibration problems that tested the thresholds.
        answered: The tested problems that were answered.
        wrong: The answered problems whose answer was wrong.
        bound: The upper bound on the share of wrong answers.
        links: The thresholds in the order in which the links are asked.
        tried: The number of plans that were tried on the calibration problems; delta was divided by it.
        digest: The hash of all other fields.

    Example:
        >>> from tts.solver.risk import CalibratedUse
        >>> from tts.solver.thresholds import ProblemOutcomes, Thresholds
        >>> use = CalibratedUse(
        ...     model="policy=toy",
        ...     strategy="single | majority",
        ...     budget="tokens=100",
        ...     task="text",
        ...     verifiers="none",
        ...     sampling="",
        ... )
        >>> link = ProblemOutcomes(use=use, confidences=[0.9] * 300, right=[True] * 300)
        >>> made = Thresholds.calibrate([str(i) for i in range(300)], [link], level=0.05)
        >>> made.links[0].threshold, made.answered, round(made.bound, 3)
        (0.9, 200, 0.015)
    """

    format: Literal[1] = FORMAT
    guarantee: str
    level: float = Field(gt=0, lt=1)
    delta: float = Field(gt=0, lt=1)
    n: int = Field(ge=1)
    tested: int = Field(ge=1)
    answered: int = Field(ge=1)
    wrong: int = Field(ge=0)
    bound: float
    links: list[LinkThreshold] = Field(min_length=1)
    tried: int = Field(default=1, ge=1)
    digest: str = ""

    @classmethod
    def calibrate(
        cls, problems: Sequence[str], links: Sequence[ProblemOutcomes], level: float, delta: float = 0.05, of: int = 1
    ) -> Self:
        """Return the thresholds of a chain of links, calibrated as a whole.

        Args:
            problems: The names of the calibration problems, each once. None of them may be a test problem later.
            links: The outcomes of each link on these problems.
            level: The share of given answers that may be wrong, above 0 and below 1.
            delta: The probability that the level is exceeded, above 0 and below 1.
            of: The number of plans that are tried on these problems, of which this is one; delta is divided by it.

        Raises:
            ConfigError: The problems are too few, a name comes twice, or no thresholds keep the level.
        """
        if len(set(problems)) < len(problems):
            repeated_name = next(name for place, name in enumerate(problems) if name in problems[:place])
            raise ConfigError(
                f"the calibration problem {quote(repeated_name)} comes twice, but problems must be drawn independently"
            )
        check_int("of", of, 1, optional=False)
        confidences = [link.confidences for link in links]
        is_right = [link.right for link in links]
        chain = calibrate_chain(confidences, is_right, proposers(list(problems)), level, delta / of)
        made = cls(
            guarantee=_guarantee(chain, len(problems), level, delta, of),
            level=level,
            delta=delta,
            n=len(problems),
            tested=chain.tested,
            answered=chain.answered,
            wrong=chain.wrong,
            bound=chain.bound,
            links=[
                LinkThreshold(
                    **dataclasses.asdict(link.use),
                    threshold=None if math.isinf(threshold) else threshold,
                )
                for link, threshold in zip(links, chain.thresholds, strict=True)
            ],
            tried=of,
        )
        return made.model_copy(update={"digest": made.content_digest})

    @property
    def content_digest(self) -> str:
        """The SHA-256 hash of all fields but `digest`, in hexadecimal."""
        content = self.model_dump(exclude={"digest"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the thresholds in a file.

        Raises:
            ConfigError: The file cannot be read, is no file of thresholds, or was changed by hand.
        """
        try:
            data: Any = json.loads(read_small(Path(path)))
        except (OSError, ValueError, RecursionError) as failure:
            reason = failure.strerror if isinstance(failure, OSError) else "it is no JSON"
            raise ConfigError(
                f"calibration is {str(path)!r}, but cannot be read: {reason}", hint="name a file of tts calibrate"
            ) from None
        try:
            thresholds = cls.of(data, "the calibration")
        except ConfigError as failure:
            raise ConfigError(
                f"calibration is {str(path)!r}, but is no file of tts calibrate: {failure.cause}"
            ) from None
        if thresholds.digest != thresholds.content_digest:
            raise ConfigError(
                f"calibration is {str(path)!r}, but its fields were changed: the hash is another", hint=_CURE
            )
        return thresholds

    def save(self, path: str | Path) -> None:
        """Write the file.

        Raises:
            ConfigError: The place cannot be written.
        """
        try:
            Path(path).write_text(json.dumps(self.model_dump(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
        except OSError as failure:
            raise ConfigError(
                f"the thresholds cannot be written to {str(path)!r}: {failure.strerror}", hint="name another place"
            ) from None

    def check_risk(self, risk: float) -> None:
        """Refuse a risk below the level that was calibrated.

        Raises:
            ConfigError: The risk is below the level, or is no share.
        """
        given: Any = risk
        if type(given) not in (int, float) or not 0 < risk < 1:
            raise ConfigError(f"risk is {quote(risk)}, but must be above 0 and below 1")
        if risk < self.level:
            raise ConfigError(
                f"risk is {risk:g}, but the calibration keeps {self.level:g}",
                hint="calibrate for this risk: tts calibrate",
            )

    def threshold(self, use: CalibratedUse, place: int = 0, of: int = 1) -> float:
        """Return the least confidence at which a link answers.

        Args:
            use: The model, strategy, budget and other settings that are to answer.
            place: The place of the link in its chain.
            of: The number of links of the chain.

        Raises:
            ConfigError: The calibration is of another chain, or of another use; the error names the difference.
        """
        if len(self.links) != of:
            raise ConfigError(f"the calibration is of a chain of {len(self.links)}, but this one has {of}", hint=_CURE)
        link = self.links[place]
        for name in (field.name for field in dataclasses.fields(CalibratedUse)):
            calibrated_value, used_value = getattr(link, name), getattr(use, name)
            if calibrated_value != used_value:
                raise ConfigError(
                    f"the calibration is for the {name} {quote(calibrated_value)}, but this is {quote(used_value)}",
                    hint=_CURE,
                )
        return link.least


def _guarantee(chain: CalibratedChain, n: int, level: float, delta: float, of: int) -> str:
    """Return the guarantee of a calibration on n problems, of one of several plans, in words."""
    tried_words = f"{of} plans were tried on these problems, so that each has a part of {delta:g}. " if of > 1 else ""
    return (
        f"Of the answers that are given to problems exchangeable with the {n} calibration problems, at most a share "
        f"{level:g} is wrong. "
        f"This holds with probability {1 - delta:g} at least, over the choice of the calibration problems. "
        f"{tried_words}{_order_words(chain, n, delta / of)}"
    )


def _order_words(chain: CalibratedChain, n: int, delta: float) -> str:
    """Return how the thresholds of a chain were tested on n problems at delta, in words."""
    bound = f"each time by the exact binomial bound of Clopper and Pearson at {delta:g}"
    if chain.tested == n:
        return (
            f"The thresholds were fixed beforehand, and all problems tested them from 1 down, {bound} in sum (fallback "
            "procedure)."
        )
    return (
        f"{n - chain.tested} of them proposed thresholds and their order; {chain.tested} tested them in this order, "
        f"{bound} (Learn then Test, fixed sequence)."
    )
