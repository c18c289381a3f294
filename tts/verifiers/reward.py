"""Published reward models, of steps or of whole solutions, as their records say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tts.backends.base import Backend
from tts.budget import Rates
from tts.errors import ConfigError, shown
from tts.models.registry import ModelRecord
from tts.types import Problem, Prompt, Trajectory
from tts.verifiers import reward_record
from tts.verifiers.base import Calls, StepScores, check_text
from tts.verifiers.reward_loading import Serving, served
from tts.verifiers.reward_model import ServedModel, Session
from tts.verifiers.reward_reader import EMPTY, Reading
from tts.verifiers.reward_record import RewardRecord

_AGGREGATED: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda steps: steps[-1],
    "min": min,
    "prod": math.prod,
    "mean": lambda steps: math.fsum(steps) / len(steps),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """Asks a reward model that has a tokenizer and a template of its own, and shows it the problem and the steps as text.

    Idea: the record says what the model is shown and where its scores are read (`tts.verifiers.reward_record`); what becomes of
        empty steps, of steps that hold a separator, and of steps that do not fit is stated there (`Reader`): they are unknown, never
        cut. On a backend with handles a step is read once in a search, however many paths share it; a server, or vLLM, is sent whole paths.
    Source: each record's own. Differs: one pass over all steps, or one step more, in place of a pass for every step; the same
        tokens are read at the same positions.

    A process model returns one score a step, and as the score of the whole (`aggregate="model"`) the aggregation that its record
    names; an outcome model one score of the whole.

    Args:
        record: the name of a record of this package ("math-shepherd", …), or the path of a YAML file.
        weights: a folder or Hub name; None: as the record says. backend: "engine", "transformers" or "vllm"; None: the engine.
        device: of the backend; None: its own choice. url: of a vLLM server in pooling mode, whose key, if it wants one, stands in the
            environment variable TTS_REWARD_KEY; None: it runs in this process.
        served_as: its name on that server; None: as `weights`.
        ratio: the most tokens of its own that a token of the policy is on average, above 0; slack: the most tokens beside those that
            one score takes: separators, turns, and a step that was read before it was whole. They are what is reserved for a score; a
            path that would pass them stays unknown.

    Cost: at most ratio * new + slack + the template's tokens a path, in verifier tokens at the model's own FLOPs; `new` is the whole path
        on a server or vLLM, else what the path's last scored ancestor lacks. The problem's tokens, once a search, are prompt tokens; on a
        server they are verifier tokens, again with every path. Steps that stay unknown are counted in the solution's warnings.
    """

    record: str = "pocket-process"
    weights: str | None = None
    backend: str | None = None
    device: str | None = None
    url: str | None = None
    served_as: str | None = None
    ratio: float = 3.0
    slack: int = 32
    name: str = field(default="reward", init=False)
    oracle: bool = field(default=False, init=False)
    needs: tuple[str, ...] = field(default=(), init=False)
    model: str = field(default="policy", init=False)
    known: RewardRecord = field(init=False, repr=False, compare=False)
    asked: ServedModel | None = field(default=None, init=False, repr=False, compare=False)
    count: Callable[[Prompt], int] | None = field(default=None, init=False, repr=False, compare=False)
    session: Session | None = field(default=None, init=False, repr=False, compare=False)
    scored: dict[int, int] = field(default_factory=dict[int, int], init=False, repr=False, compare=False)  # node -> its path's tokens

    def __post_init__(self) -> None:
        check_text("record", self.record)
        for part in ("weights", "backend", "device", "url", "served_as"):
            if getattr(self, part) is not None:
                check_text(part, getattr(self, part))
        ratio: Any = self.ratio
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio < 2**31:
            raise ConfigError(f"ratio is {shown(ratio)}, but must be a number above 0 and below 2**31")
        if type(self.slack) is not int or not 0 <= self.slack < 2**31:
            raise ConfigError(f"slack is {shown(self.slack)}, but must be a whole number of at least 0")
        local = [part for part in ("backend", "device") if getattr(self, part) is not None]
        if self.url is not None and local:
            raise ConfigError(f"{local[0]} is {getattr(self, local[0])!r}, but a server at a url runs the model as it was started with")
        if self.url is None and self.served_as is not None:
            raise ConfigError(f"served_as is {self.served_as!r}, but there is no url", hint="leave it out")
        object.__setattr__(self, "known", reward_record.load(self.record))

    @property
    def range(self) -> tuple[float, float]:
        """Its least and greatest score."""
        return self.known.range

    @property
    def rates(self) -> Rates:
        """What a token costs; of a model that is not loaded yet, what its record says."""
        parameters = self.known.parameters
        return Rates(flops=None if parameters is None else 2 * parameters) if self.asked is None else self.asked.rates

    def filled(self, record: ModelRecord | None, backend: Backend) -> Reward:
        """Return it with its model loaded, which is checked against its record, and the policy's tokens counted.

        Raises:
            ConfigError: the model cannot be had, or does not fit its record.
        """
        del record
        return self._with(asked=self._loaded(), count=backend.count)

    def opened(self) -> Reward:
        """Return it for one problem's search."""
        asked = self._loaded()
        return self._with(asked=asked, count=self.count, session=asked.session())

    def _loaded(self) -> ServedModel:
        return self.asked or served(
            Serving(
                record=self.record,
                model=self.weights,
                backend=self.backend,
                device=self.device,
                url=self.url,
                served_as=self.served_as,
            )
        )

    def _with(self, **parts: Any) -> Reward:
        made = Reward(**self._settings())
        for name, value in parts.items():
            object.__setattr__(made, name, value)
        return made

    def _settings(self) -> dict[str, Any]:
        return {part.name: getattr(self, part.name) for part in fields(self) if part.init}

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (self._settings(),))

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score a step, or of an outcome model one of the whole; unknown where the record's rules or the bound leave it so."""
        if self.session is None:
            return await self.opened().score(problem, trajectories, calls)
        assert self.asked is not None, "a session has its model"
        prompt = calls.task.prompt(problem)
        told = prompt if isinstance(prompt, str) else "\n\n".join(message.content for message in prompt)
        num_prompt = 0 if self.count is None else self.count(prompt)
        outcome = self.known.kind == "outcome"
        readings: list[Reading] = []
        for t in trajectories:
            steps = [t.full_text] if outcome else calls.task.split(t.full_text)
            reading = self.asked.reader.read(problem.text, steps, prompt=told)
            within = self._within(t, self.session.cost(reading), num_prompt)
            readings.append(reading if within else Reading((), (None,) * len(steps), 0, ("it passes the verifier's bound",) * len(steps)))
        hidden = sum(why not in ("", EMPTY) for reading in readings for why in reading.why)
        calls.unread("steps that a reward model was not shown", hidden, sum(len(reading.why) for reading in readings))
        found = await self.session.scores(readings, calls)
        self.scored.update({t.node: t.num_tokens for t in trajectories})
        return [self._scores(reading, scores) for reading, scores in zip(readings, found, strict=True)]

    def _within(self, t: Trajectory, cost: tuple[int, int], num_prompt: int) -> bool:
        """Whether what reading a path computes by itself is within what was reserved for it."""
        of_prompt, computed = cost
        done = next((self.scored[node.node] for node in reversed(t.path) if node.node in self.scored), 0)
        if self.count is not None and of_prompt > self.prompt_bound(num_prompt):
            return False
        return computed <= self.bound(num_prompt + done, max(0, t.num_tokens - done))

    def _scores(self, reading: Reading, found: tuple[float, ...]) -> StepScores:
        """Return the score of each step, from those at the positions that were read."""
        at = dict(zip(sorted({at for at in reading.at if at is not None}), found, strict=True))
        steps = tuple(math.nan if position is None else at[position] for position in reading.at)
        if self.known.kind == "outcome":
            return StepScores(whole=steps[0])
        whole = math.nan if not steps or any(map(math.isnan, steps)) else _AGGREGATED[self.known.aggregation](steps)
        return StepScores(steps=steps, whole=whole)

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return ratio * new + slack, and what the template adds to a step; on a server or vLLM `new` is the whole path and its prompt."""
        step = 0 if self.asked is None else self.asked.reader.step_overhead
        if not self._whole:
            return math.ceil(self.ratio * new_tokens) + self.slack + step
        return math.ceil(self.ratio * (prefix_tokens + new_tokens)) + self.slack + step + self._around()

    def prompt_bound(self, prompt_tokens: int) -> int:
        """Return ratio * prompt + slack, and what the template adds to a problem; 0 on a server or vLLM, where `bound` has it."""
        return 0 if self._whole else math.ceil(self.ratio * prompt_tokens) + self.slack + self._around()

    @property
    def _whole(self) -> bool:
        """Whether what runs the model is sent whole paths, for it remembers none: a server, or vLLM."""
        return self.url is not None or self.backend == "vllm"

    def _around(self) -> int:
        return 0 if self.asked is None else self.asked.reader.prompt_overhead


def _rebuilt(settings: Mapping[str, Any]) -> Reward:
    return Reward(**settings)
