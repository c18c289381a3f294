"""Published reward models as verifiers, of steps or of whole solutions."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from tts.backends.base import Backend
from tts.budget.budget import Rates
from tts.checks import Text, check_parameters, number_above, whole
from tts.errors import ConfigError
from tts.models.registry import ModelRecord
from tts.types import Problem, Prompt, Trajectory
from tts.verifiers.base import Calls, OwnModel, StepScores, Traits, Verifier
from tts.verifiers.reward import record as reward_record
from tts.verifiers.reward.loading import model_record, reward_model
from tts.verifiers.reward.model import ServedModel, Session
from tts.verifiers.reward.record import RewardRecord
from tts.verifiers.reward.renderer import EMPTY, RenderedSolution

_AGGREGATED: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda steps: steps[-1],
    "min": min,
    "prod": math.prod,
    "mean": lambda steps: math.fsum(steps) / len(steps),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward(Verifier):
    """Scores with a reward model that has its own tokenizer and template.

    It reads the texts of the problem and the steps.

    Idea: the record states what the model is shown and where its scores are read (`tts.verifiers.reward.record`).
    `SolutionRenderer`
        states the rules for empty steps, steps that hold a separator, and steps that do not fit: their scores are NaN,
        no step is cut. A backend with handles reads a step once a search, however many paths share it. A server, or
        vLLM, is sent whole paths.
    Source: each record's own. Differs: one pass over all steps, or over one new step, replaces a pass for every step;
        the same tokens are read at the same positions.

    A process model returns one score for each step. Its score of the whole (`aggregate="model"`) is the aggregation
    that its record names. An outcome model returns one score of the whole.

    Args:
        record: The name of a record of this package ("math-shepherd", …), or the path of a YAML file or of a folder.
            The folder has a classifier of sequences or of tokens, as transformers saves it.
        weights: A folder or Hub name; None: the record's.
        backend: "engine", "transformers" or "vllm"; None: "engine".
        device: The device of the backend; None: its default.
        kv_budget: The bytes for keys and values, of the backend "engine"; None: its default.
        url: The url of a vLLM server in pooling mode; the environment variable TTS_REWARD_KEY has its key, if it needs
            one. None: the model runs in this process.
        served_as: The model's name on that server; None: as `weights`.
        ratio: The most tokens of the model for one token of the policy, on average; above 0.
        slack: The most other tokens of one score: separators, turns, and a step that was read before it was complete.
            Both bound what is reserved for a score; the score of a trajectory that would exceed the bound is NaN.

    Cost: at most ratio * new + slack + the template's tokens for each trajectory, as verifier tokens at the model's
    FLOPs. `new` is the
        whole trajectory on a server or vLLM, else the tokens after its last scored ancestor. The problem's tokens are
        prompt tokens, once a search; on a server they are verifier tokens, once a trajectory. The solution's warnings
        count the steps that are not shown.

    Example:
        >>> import tts
        >>> found = tts.solve("What is 12 + 7 * 3?", 400, verifier="reward", strategy="best_of_n(n=2) | best")
        >>> found.answer, found.usage.verifier_calls
        ('33', 2)
    """

    record: Text = "pocket-process"
    weights: Text | None = None
    backend: Text | None = None
    device: Text | None = None
    kv_budget: Annotated[int, whole(1)] | None = None
    url: Text | None = None
    served_as: Text | None = None
    ratio: Annotated[float, number_above(0, 2**31, "2**31")] = 3.0
    slack: Annotated[int, whole(0, 2**31 - 1)] = 32
    name = "reward"
    known: RewardRecord = field(init=False, repr=False, compare=False)
    asked: ServedModel | None = field(default=None, init=False, repr=False, compare=False)
    count: Callable[[Prompt], int] | None = field(default=None, init=False, repr=False, compare=False)
    session: Session | None = field(default=None, init=False, repr=False, compare=False)
    # number of a node -> the tokens of the path up to the node
    scored: dict[int, int] = field(default_factory=dict[int, int], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_parameters(self)
        for name in ("backend", "device", "kv_budget"):
            setting = getattr(self, name)
            if self.url is not None and setting is not None:
                raise ConfigError(
                    f"{name} is {setting!r}, but the server at the url was started with settings of its own"
                )
        if self.kv_budget is not None and self.backend not in (None, "engine"):
            raise ConfigError(
                f"kv_budget is {self.kv_budget}, but the backend {self.backend!r} has none", hint="leave it out"
            )
        if self.url is None and self.served_as is not None:
            raise ConfigError(f"served_as is {self.served_as!r}, but there is no url", hint="leave it out")
        object.__setattr__(self, "known", reward_record.load(self.record))

    @property
    def range(self) -> tuple[float, float]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Least and greatest score, as the record states."""
        return self.known.range

    @property
    def rates(self) -> Rates:
        """Cost of a token; by the record if the model is not loaded."""
        return self.known.rates if self.asked is None else self.asked.rates

    @property
    def traits(self) -> Traits:
        """A model of its own, loaded by a solver and opened for each search."""
        parts = (self.known, self.weights, self.backend, self.device)
        own_model = OwnModel(self.rates, self.open, None if self.url is not None else lambda: model_record(*parts))
        return Traits(prompt_bound=self.prompt_bound, requests=0, filled=self.fill, own_model=own_model)

    def fill(self, record: ModelRecord | None, backend: Backend) -> Reward:
        """Return the verifier with its model loaded, and with the policy's function that counts tokens.

        Args:
            record: The policy's record, which is not read.
            backend: The policy's backend.

        Raises:
            ConfigError: the model cannot be loaded, or does not fit its record.
        """
        del record
        return self._replace_parts(asked=self._load_model(), count=backend.count)

    def open(self) -> Reward:
        """Return the verifier with a new session, for the search of one problem."""
        model = self._load_model()
        return self._replace_parts(asked=model, count=self.count, session=model.session())

    def _load_model(self) -> ServedModel:
        return self.asked or reward_model(
            self.record, self.weights, self.backend, self.device, self.kv_budget, self.url, self.served_as
        )

    def _replace_parts(self, **parts: Any) -> Reward:
        verifier = dataclasses.replace(self)
        for name, value in parts.items():
            object.__setattr__(verifier, name, value)
        return verifier

    def __reduce__(self) -> tuple[Any, ...]:
        parameters = {part.name: getattr(self, part.name) for part in fields(self) if part.init}
        return functools.partial(Reward, **parameters), ()

    async def score(self, problem: Problem, trajectories: Sequence[Trajectory], calls: Calls) -> list[StepScores]:
        """Return one score for each step; of an outcome model one score for the whole trajectory.

        Scores of texts that the model was not shown are NaN.
        """
        if self.session is None:
            return await self.open().score(problem, trajectories, calls)
        assert self.asked is not None, "a session has its model"
        prompt = calls.task.prompt(problem)
        prompt_text = prompt if isinstance(prompt, str) else "\n\n".join(message.content for message in prompt)
        num_prompt = 0 if self.count is None else self.count(prompt)
        is_outcome = self.known.kind == "outcome"
        solutions: list[RenderedSolution] = []
        for t in trajectories:
            steps = [t.judged_text] if is_outcome else calls.task.split(t.judged_text)
            solution = self.asked.renderer.render(problem.text, steps, prompt=prompt_text)
            if not self._is_within_bound(t, self.session.cost(solution), num_prompt):
                solution = RenderedSolution.unreadable(["it passes the verifier's bound"] * len(steps))
            solutions.append(solution)
        reasons = [reason for solution in solutions for reason in solution.why]
        num_hidden = sum(reason not in ("", EMPTY) for reason in reasons)
        calls.note_unread("steps that a reward model was not shown", num_hidden, len(reasons))
        scores_by_solution = await self.session.scores(solutions, calls)
        self.scored.update({t.node: t.num_tokens for t in trajectories})
        return [self._scores(solution, scores) for solution, scores in zip(solutions, scores_by_solution, strict=True)]

    def _is_within_bound(self, t: Trajectory, cost: tuple[int, int], num_prompt: int) -> bool:
        """Whether the cost of reading a trajectory is within the bound that was reserved for the trajectory.

        Args:
            t: The trajectory.
            cost: The tokens to compute: of the problem, and after it.
            num_prompt: The policy's tokens of the prompt.
        """
        prompt_cost, solution_cost = cost
        num_scored = next((self.scored[node.node] for node in reversed(t.path) if node.node in self.scored), 0)
        if self.count is not None and prompt_cost > self.prompt_bound(num_prompt):
            return False
        return solution_cost <= self.bound(num_prompt + num_scored, max(0, t.num_tokens - num_scored))

    def _scores(self, solution: RenderedSolution, scores: tuple[float, ...]) -> StepScores:
        """Return the scores of the steps, from the scores at the solution's positions in order."""
        positions = sorted({position for position in solution.at if position is not None})
        score_at = dict(zip(positions, scores, strict=True))
        steps = tuple(math.nan if position is None else score_at[position] for position in solution.at)
        if self.known.kind == "outcome":
            return StepScores(whole=steps[0])
        is_known = bool(steps) and not any(map(math.isnan, steps))
        whole = _AGGREGATED[self.known.aggregation](steps) if is_known else math.nan
        return StepScores(steps=steps, whole=whole)

    def bound(self, prefix_tokens: int, new_tokens: int) -> int:
        """Return ratio * new + slack + the template's tokens of a step.

        On a server or vLLM `new` includes the prefix, prompt included.
        """
        step_overhead = 0 if self.asked is None else self.asked.renderer.step_overhead
        if not self._reads_whole:
            return math.ceil(self.ratio * new_tokens) + self.slack + step_overhead
        path_bound = math.ceil(self.ratio * (prefix_tokens + new_tokens))
        return path_bound + self.slack + step_overhead + self._template_tokens()

    def prompt_bound(self, prompt_tokens: int) -> int:
        """Return ratio * prompt + slack + the template's tokens of a problem.

        The bound is 0 on a server or vLLM, where `bound` includes the prompt.
        """
        return 0 if self._reads_whole else math.ceil(self.ratio * prompt_tokens) + self.slack + self._template_tokens()

    @property
    def _reads_whole(self) -> bool:
        """Whether the model reads whole trajectories: on a server or vLLM, which keep no state of a search."""
        return self.url is not None or self.backend == "vllm"

    def _template_tokens(self) -> int:
        return 0 if self.asked is None else self.asked.renderer.prompt_overhead
