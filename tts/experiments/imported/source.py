"""How sources of samples are read, and what they state beside samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tts.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How files are read.

    Args:
        fields: names of fields of plain rows; see `SampleFields`. form: of all files, as in `FORMS`; None: by name and content.
        filter: of lm-evaluation-harness; None: the first of each file. scorer: of Inspect; None: the first of each log.
    """

    fields: Mapping[str, str | Mapping[str, str]] | None = None
    form: str | None = None
    filter: str | None = None
    scorer: str | None = None


@dataclass(slots=True)
class SourceFacts:
    """What sources state beside their samples.

    Args:
        notes: what holds for samples, with their number. models: that wrote the samples, as logs name them.
        forms: of the files.
    """

    notes: Counter[str] = field(default_factory=Counter[str])
    models: dict[str, None] = field(default_factory=dict[str, None])
    forms: set[str] = field(default_factory=set[str])

    def model(self, given: str | None) -> str:
        """Return the model's name: the one given, else that of the logs, else "recorded".

        Raises:
            ConfigError: logs are of several models, and none was given.
        """
        if given is None and len(self.models) > 1:
            raise ConfigError(
                f"the logs are of the models {' and '.join(self.models)}, but samples of one pool are of one model",
                hint="import each model's logs as a pool of its own, or give model= (--model)",
            )
        return given or next(iter(self.models), "recorded")
