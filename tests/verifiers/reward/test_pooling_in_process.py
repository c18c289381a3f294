"""Reward models in vLLM in this process, on an engine that stands in for it."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.guard import LIMIT_S
from tests.verifiers.asking import Counting, ask, path
from tests.verifiers.reward.official import CODE
from tests.verifiers.reward.published import PROBLEM, STEPS, TOKENIZERS, saved
from tts.errors import ConfigError, EngineError, VerifierError
from tts.verifiers.reward import record as reward_record
from tts.verifiers.reward.pooling_vllm import VLLMPooled, start_engine
from tts.verifiers.reward.renderer import SolutionRenderer
from tts.verifiers.reward.verifier import Reward

torch = pytest.importorskip("torch")
NAMES = ("rlhflow-mistral", "rlhflow-orm-mistral")


class FakePooling:
    """Computes the labels' logits at each token, or at the last, in a thread of its own.

    Args:
        change: of the rows of each answer.
    """

    def __init__(self, name: str, model: Any, change: Callable[[Any], Any] = lambda rows: rows) -> None:
        record = reward_record.load(name)
        tokenizer = TOKENIZERS[name]()
        self._labels = [
            tokenizer.encode(label, add_special_tokens=False)[0] for label in (record.readout.good, *record.readout.bad)
        ]
        self._model = model
        self._change = change
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.closed = False

    def submit(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def pool(self, ids: Sequence[int], task: str) -> Any:
        with torch.inference_mode():
            rows = self._model(torch.tensor([list(ids)])).logits[0][:, self._labels].double().numpy()
        return self._change(np.atleast_2d(rows[-1]) if task == "classify" else rows)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()
        self.closed = True


@pytest.fixture(scope="module", params=NAMES)
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Any]:
    folder = tmp_path_factory.mktemp("model")
    return request.param, folder, saved(reward_record.load(request.param), folder)


def verifier(name: str, folder: Path, engine: FakePooling) -> Reward:
    record = reward_record.load(name)
    served = VLLMPooled(SolutionRenderer(record, TOKENIZERS[name]()), engine)  # type: ignore[arg-type]
    return Reward(record=name, weights=str(folder), backend="vllm")._replace_parts(asked=served).open()


@pytest.mark.slow
def test_scores_are_those_of_the_authors_own_code_and_a_path_is_charged_whole(known: tuple[str, Path, Any]) -> None:
    name, folder, model = known
    calls = Counting()
    engine = FakePooling(name, model)
    asked = verifier(name, folder, engine)
    for score, steps in zip(
        ask(asked, [path(STEPS), path(STEPS[:1], node=2)], calls, PROBLEM), (STEPS, STEPS[:1]), strict=True
    ):
        found = [score.whole] if reward_record.load(name).kind == "outcome" else score.steps
        assert found == pytest.approx(CODE[name](model, TOKENIZERS[name](), None, PROBLEM, steps), abs=1e-5)
    assert calls.computed == asked.asked.counters.prompt_tokens  # type: ignore[union-attr]
    assert asked.prompt_bound(50) == 0
    assert asked.bound(50, 10) > 3 * 60
    del asked
    gc.collect()
    assert engine.closed, "vLLM is left behind by a model that nobody holds"


def test_what_vllm_cannot_compute_is_unknown_and_what_is_of_another_form_is_refused(
    known: tuple[str, Path, Any],
) -> None:
    def fails(rows: Any) -> Any:
        raise EngineError("vLLM failed: EngineDeadError: it is gone")

    name, folder, model = known
    asked = verifier(name, folder, FakePooling(name, model, fails))
    calls = Counting()
    [score] = ask(asked, [path(STEPS)], calls, PROBLEM)
    assert np.isnan(score.whole)
    assert calls.failures == {"EngineError": 1}
    asked = verifier(name, folder, FakePooling(name, model, lambda rows: rows[:, :1]))
    with pytest.raises(VerifierError, match="vLLM answered outputs of shape"):
        ask(asked, [path(STEPS)], Counting(), PROBLEM)


def test_a_device_is_not_vllms_to_choose(tmp_path: Path) -> None:
    from tts.models import registry

    with pytest.raises(ConfigError, match="device is 'cuda'"):
        start_engine(reward_record.load(NAMES[0]), registry.get("pocket"), "cuda")
    with pytest.raises(ConfigError, match=r"device.*'cpu',.*chooses"):
        Reward(backend="vllm", device="cpu").open()
