"""A separate process model beside the policy: its own weights, pool and step loop, one view of each opened prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tts.backends.engine.core import Runner
from tts.backends.engine.heads import StepTemplate
from tts.backends.engine.views import View
from tts.backends.lengths import check_known, check_prompt
from tts.types import Prompt


@dataclass(frozen=True, eq=False)
class RewardModel:
    """A process model that scores steps.

    Args:
        runner: of the model. template: how paths are shown to it. render: turns a problem's prompt into its tokens.
    """

    runner: Runner
    template: StepTemplate
    render: Callable[[Prompt], Sequence[int]]

    def view(self, prompt: Prompt) -> View:
        """Return an empty view of a prompt.

        Raises:
            PromptTooLong: the prompt leaves no room in the model's context.
            ConfigError: the model's chat template refuses the prompt.
        """
        ids = tuple(self.render(prompt))
        check_prompt(len(ids), self.runner.context)
        check_known(ids, self.runner.decoder.config.vocab)
        return View(self.runner, self.template, ids)
