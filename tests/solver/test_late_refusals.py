"""A ConfigError says that nothing was spent: what is known before is refused before, and later mistakes are errors of
the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import tts
from tts.backends.toy.backend import ToyBackend
from tts.errors import ConfigError, TTSError


def test_a_task_without_what_the_strategy_reads_of_it_is_refused_before_the_prompt_is_read() -> None:
    backend = ToyBackend()
    with pytest.raises(ConfigError, match=r"task 'text'.*answer_cue"):
        tts.solve("3 + 4 - 2", 300, backend=backend, task="text", strategy="answer_convergence")
    assert backend.counters.prompt_tokens == 0


class Steps(tts.Verifier):
    """Scores steps alone."""

    async def score(
        self, problem: tts.Problem, trajectories: Sequence[tts.Trajectory], calls: Any
    ) -> list[tts.StepScores]:
        return [tts.StepScores(steps=(0.5,) * len(calls.task.split(t.full_text))) for t in trajectories]


@pytest.mark.parametrize(
    "plan", ["mcts(max_steps=1) | score_threshold(aggregate='model')", "best_of_n(n=2) | best(aggregate='model')"]
)
def test_a_mistake_that_shows_after_samples_says_what_they_took(plan: str) -> None:
    said = r"the verifier does not score the whole; until then, \d samples? took \d+ tokens"
    try:
        error: BaseException | None = tts.solve("3 + 4 - 2", 300, model="toy", verifier=Steps(), strategy=plan).error
    except TTSError as raised:
        error = raised
    assert isinstance(error, TTSError)
    assert not isinstance(error, ConfigError)
    with pytest.raises(TTSError, match=said):
        raise error
