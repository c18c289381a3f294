"""A process model beside the policy.

The model has its own weights, pool and step loop, and one view of each opened prompt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tts.backends.engine.core import Runner
from tts.backends.engine.heads import LikelihoodReadout, StepTemplate
from tts.backends.engine.views import View
from tts.backends.metadata import ValueHeadMetadata
from tts.backends.text.lengths import check_known, check_prompt
from tts.budget.budget import Rates
from tts.types import Prompt


@dataclass(frozen=True, eq=False)
class RewardModel:
    """A process model that scores steps.

    Args:
        runner: The runner of the model.
        template: How paths are rendered for the model.
        render: Turns a problem's prompt into the model's tokens; None: the model reads the policy's own tokens.
        rates: The rates of the model's tokens. FLOPs of None follow from its number of parameters. Without prices the
            policy's prices hold.

    Raises:
        ConfigError: the model has no token of a label.
    """

    runner: Runner
    template: StepTemplate
    render: Callable[[Prompt], Sequence[int]] | None
    rates: Rates = field(default_factory=Rates)

    def __post_init__(self) -> None:
        readout = self.template.readout
        if not isinstance(readout, LikelihoodReadout):
            check_known(readout.labels, self.runner.decoder.config.vocab)

    def view(self, prompt: Prompt, own: tuple[int, ...]) -> View:
        """Return a view of a prompt without steps; `own`: the prompt in the policy's tokens.

        Raises:
            PromptTooLong: the prompt leaves no room in the model's context.
            ConfigError: the model's chat template refuses the prompt.
        """
        ids = own if self.render is None else tuple(self.render(prompt))
        check_prompt(len(ids), self.runner.context)
        check_known(ids, self.runner.decoder.config.vocab)
        return View(self.runner, self.template, ids)

    def metadata(self, policy: Rates) -> ValueHeadMetadata:
        """Return the model's metadata as a value head; `policy`: the rates of the policy's tokens."""
        flops = 2 * self.runner.decoder.parameters if self.rates.flops is None else self.rates.flops
        base_rates = policy if self.rates.usd_in is None else self.rates
        return ValueHeadMetadata(self.template.step, dataclasses.replace(base_rates, flops=flops), own_model=True)
