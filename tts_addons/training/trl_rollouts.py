"""Rollouts for TRL's `GRPOTrainer`, by its argument `rollout_func`.

A strategy draws them under one hard total, in equal groups.

Source: the contract of `rollout_func` in TRL 1.16. It gets the trainer and the prompts of a batch, each as often as
its group has samples. It returns `prompt_ids`, `completion_ids` and `logprobs` of each row. `env_mask` says which
tokens the model wrote. Further fields reach the reward functions. `logprobs` are those of the law that drew the
tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tts.backends.base import Backend, Sampling
from tts.backends.metadata import Tokenizer, metadata_of
from tts.budget.account import Account
from tts.budget.budget import Budget
from tts.checks import check_int
from tts.errors import ConfigError, quote
from tts.experiments.datasets.rows import reference_in
from tts.search.parts import Plan, Strategy
from tts.solver.model_cache import LOOP
from tts.solver.solver import Solver
from tts.tasks.text import TextTask
from tts.types import Problem, Prompt, prompt_text
from tts_addons.training.rollouts import Reward, Rollout, RolloutGroup, rollouts

if TYPE_CHECKING:
    from collections.abc import Generator

_UNLIMITED: Final = 10**12  # tokens: groups are limited by their number
_PROBES: Final = 1024  # token ids by which two tokenizers are compared


@dataclass(kw_only=True)
class TrlRollouts:
    """The `rollout_func` of TRL's `GRPOTrainer`: equal groups, drawn by a strategy under one hard total.

    The engine draws from the weights that the trainer has at the call. Each row's `logprobs` are those of the law
    that drew its tokens. With `answers` or `reward`, rows have the field `rollout_reward`, which `rollout_reward`
    hands to the trainer. All rows have `rollout_answer` and `rollout_truncated`.

    Args:
        task: The name of the task, which makes the model's prompts of the trainer's, and reads answers. "text":
            prompts as they are.
        answers: The reference answers by the text of the prompt, or the name of their column in the trainer's data
            sets; None: no verdicts. The first call refuses a data set with a prompt that has none, unless `reward` is
            given.
        reward: A function of a problem and a text that returns a number, in place of verdicts.
        strategy: The strategy of a group, which has a parameter `n`.
        total: What all calls may cost together, with a limit in tokens; a number limits tokens. None: no limit.
        solver: The writer of the samples in place of the trainer's own weights. The caller keeps the solver's weights
            equal to the trainer's.
        seed: The seed of all samples.

    Example:
        >>> import tts
        >>> draw = tts.TrlRollouts(task="countdown", answers={"Reach 4 with 8 2.": "8 / 2"}, total=100_000)
        >>> draw.account.spent["tokens"]  # then GRPOTrainer(..., rollout_func=draw, reward_funcs=tts.rollout_reward)
        0
    """

    task: str = "text"
    answers: Mapping[str, str] | str | None = None
    reward: Reward | None = None
    strategy: str | Plan | Strategy = "best_of_n"
    total: Budget | Account | float | None = None
    solver: Solver | None = None
    seed: int = 0
    account: Account = field(init=False)
    _calls: int = field(init=False, default=0)
    _answers: Mapping[str, str] | None = field(init=False, default=None)  # by the text of the prompt

    def __post_init__(self) -> None:
        check_int("seed", self.seed, 0, optional=False)
        total = _UNLIMITED if self.total is None else self.total
        self.account = total if isinstance(total, Account) else Account(Budget.of(total))
        if "tokens" not in self.account.units:
            hint = "for example tts.Budget(tokens=100_000)"
            raise ConfigError(f"total limits {[*self.account.units]}, but must limit tokens", hint=hint)

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Return the rows of a batch, in the order of its prompts.

        Args:
            prompts: The prompts as texts or messages. Each is repeated, in a row, once for each sample of its group.
            trainer: The `GRPOTrainer`.

        Raises:
            ConfigError: A group is not whole, has no reference answer, or was cut short by the total; the backend
                shows no token ids or log-probabilities; the backend has another tokenizer or temperature than the
                trainer; or as `tts.rollouts`.
        """
        size = int(trainer.num_generations if trainer.model.training else trainer.num_generations_eval)
        if self._answers is None and self.answers is not None:
            self._answers = self._reference_answers(trainer)
        problems = self._problems_of(prompts, size)
        seed_sequence = np.random.SeedSequence([self.seed, self._calls, int(trainer.accelerator.process_index)])
        self._calls += 1
        has_own_rewards = self.reward is not None or self.answers is not None  # if not, TRL's functions judge
        with self._solver_of(trainer) as solver:
            _check_backend(solver, trainer)
            result = rollouts(
                problems,
                self.account,
                solver=solver,
                reward=self.reward if has_own_rewards else _no_reward,
                strategy=self.strategy,
                objective="uniform",
                n=size,
                seed=int(seed_sequence.generate_state(1, np.uint32)[0]),
            )
        samples: list[Rollout] = []
        for group in result.groups:
            _check_size(group, size, result.stopped_by)
            samples += group.rollouts
        return self._rows(samples)

    def _reference_answers(self, trainer: Any) -> dict[str, str]:
        """Return the reference answers by the text of the prompt.

        Raises:
            ConfigError: A row of the trainer's data sets has no answer.
        """
        column = self.answers if isinstance(self.answers, str) else None
        answers: dict[str, str] = {} if self.answers is None or isinstance(self.answers, str) else {**self.answers}
        for name in ("train_dataset", "eval_dataset"):
            data: Any = getattr(trainer, name, None)
            parts: list[Any] = list(data.values()) if isinstance(data, dict) else [data]
            for rows in parts:
                if not hasattr(rows, "__len__"):  # none, or a stream, which is not read ahead
                    continue
                for i, row in enumerate(rows):
                    text = prompt_text(Problem(row["prompt"]).prompt)
                    answer = answers.get(text) if column is None else reference_in(row, column)
                    if answer is None and self.reward is None:
                        where = "answers" if column is None else f"its column {column!r}"
                        raise ConfigError(
                            f"row {i} of {name} has no reference answer in {where}: {quote(text)}",
                            hint="give its reference answer, or reward=",
                        )
                    if answer is not None:
                        answers[text] = answer
        return answers

    def _problems_of(self, prompts: Sequence[Any], size: int) -> list[Problem]:
        """Return a problem for each group of equal prompts in a row.

        Raises:
            ConfigError: A group is not whole, or its prompt has no reference answer.
        """
        problems = list[Problem]()
        for start in range(0, len(prompts), size):
            prompt = prompts[start]
            count = sum(neighbour == prompt for neighbour in prompts[start : start + size])
            text = prompt_text(Problem(prompt).prompt)
            if count < size:
                raise ConfigError(
                    f"the prompt {quote(text)} stands {count} times in a row, but a group has num_generations={size}",
                    hint="make the rows of one process a multiple of num_generations",
                )
            answer = None if self._answers is None else self._answers.get(text)
            if self.answers is not None and answer is None and self.reward is None:
                raise ConfigError(
                    f"the prompt {quote(text)} has no entry in answers",
                    hint="give its reference answer, or reward=",
                )
            problems.append(Problem(prompt, answer=answer, id=f"{start // size}"))
        return problems

    @contextmanager
    def _solver_of(self, trainer: Any) -> Generator[Solver]:
        """Yield the solver of the caller, or a new solver with the trainer's present weights."""
        if self.solver is not None:
            yield self.solver
            return
        backend = _engine_of(trainer)
        try:
            task = _PlainText() if self.task == "text" else self.task
            yield Solver(backend, {}, task=task, sampling=_sampling_of(trainer))
        finally:
            LOOP.run(backend.close())

    def _rows(self, samples: Sequence[Rollout]) -> dict[str, list[Any]]:
        """Return rollouts as the columns of rows that TRL expects."""
        token_records = [sample.tokens for sample in samples if sample.tokens is not None]
        columns: dict[str, list[Any]] = {
            "prompt_ids": [list(record.prompt) for record in token_records],
            "completion_ids": [list(record.ids) for record in token_records],
            "logprobs": [
                list(record.logprobs if record.sampling_logprobs is None else record.sampling_logprobs)
                for record in token_records
            ],
            "env_mask": [[int(is_written) for is_written in record.written] for record in token_records],
            "rollout_answer": [sample.answer for sample in samples],
            "rollout_truncated": [sample.truncated for sample in samples],
        }
        if self.answers is not None or self.reward is not None:
            columns["rollout_reward"] = [sample.reward for sample in samples]
        return columns


class _PlainText(TextTask):
    """Prompts as the trainer has them: texts without a chat template."""

    def prompt(self, problem: Problem, kind: str = "solve", texts: Sequence[str] = ()) -> Prompt:
        """Return the prompt of the problem; other kinds as `TextTask`."""
        return problem.prompt if kind == "solve" else super().prompt(problem, kind, texts)


def rollout_reward(rollout_reward: Sequence[float], **columns: Any) -> list[float]:
    """Return the rewards of rows unchanged: a reward function for TRL's trainers.

    `TrlRollouts` writes the rewards into the column `rollout_reward`, and the trainer hands each column over by its
    name.

    Args:
        rollout_reward: The rewards, one a row.
        columns: The other columns of the rows, which are not read.

    Example:
        >>> import tts
        >>> tts.rollout_reward([1.0, 0.0], prompts=["8 2", "8 2"])
        [1.0, 0.0]
    """
    del columns
    return list(rollout_reward)


def _no_reward(problem: Problem, text: str) -> float:
    """Return 0: TRL's reward functions judge."""
    del problem, text
    return 0.0


def _check_size(group: RolloutGroup, size: int, stopped_by: str) -> None:
    """Refuse a group that the trainer cannot use.

    Args:
        group: The group: the rollouts of one prompt.
        size: The number of rollouts that the trainer needs in each group.
        stopped_by: The reason why the drawing of rollouts ended, for the error.

    Raises:
        ConfigError: The group has another size, or a rollout has no tokens.
    """
    if len(group.rollouts) != size:
        raise ConfigError(
            f"the group of the prompt {quote(group.problem.text)} has {len(group.rollouts)} rollouts, "
            f"but GRPOTrainer needs groups of num_generations={size} ({stopped_by})",
            hint="give a larger total, or a strategy that writes n texts",
        )
    for rollout in group.rollouts:
        if rollout.tokens is None or not rollout.tokens.ids:
            raise ConfigError(
                f"a rollout of the prompt {quote(group.problem.text)} has no tokens, but GRPOTrainer needs one",
                hint="raise max_completion_length, or take a backend with token ids",
            )


def _sampling_of(trainer: Any) -> Sampling:
    """Return the sampling of the trainer.

    Raises:
        ConfigError: The trainer has a repetition penalty, but the engine has none.
    """
    penalty = trainer.repetition_penalty
    if penalty not in (None, 1, 1.0):
        raise ConfigError(
            f"repetition_penalty of the trainer is {penalty}, but rollouts have none", hint="leave it out of GRPOConfig"
        )
    return Sampling(
        temperature=trainer.temperature,
        top_p=trainer.top_p,
        top_k=trainer.top_k or 0,
        min_p=trainer.min_p or 0.0,
        max_tokens=trainer.max_completion_length,
    )


def _engine_of(trainer: Any) -> Any:
    """Return an engine with the trainer's present weights.

    Raises:
        ConfigError: The model has adapters, or the engine does not run its architecture.
    """
    from tts.backends.engine.backend import EngineBackend
    from tts.backends.engine.loading import EngineOptions, make_runner
    from tts.backends.engine.weights import Checkpoint

    model = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(model, "peft_config"):
        raise ConfigError(
            "the model of the trainer has adapters, but the engine runs whole weights",
            hint="give solver=, with a backend that runs them",
        )
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    checkpoint = Checkpoint(model.config, weights, trainer.processing_class, model.generation_config, "")
    runner, renderer = make_runner(checkpoint, EngineOptions(device=str(model.device)))
    return EngineBackend(runner, renderer, identity=f"the trainer's model at step {trainer.state.global_step}")


def _check_backend(solver: Solver, trainer: Any) -> None:
    """Raise ConfigError where a trainer cannot train on the rollouts of a solver.

    The backend must show token ids and log-probabilities, and have the trainer's tokenizer and temperature.
    """
    setup = solver.prepare(Problem("?"), Budget(samples=1), strategy="single").setup
    backend = setup.backends["policy"]
    for name, feature in (("token_ids", "token ids"), ("logprobs", "log-probabilities")):
        if not getattr(backend.caps, name):
            raise ConfigError(
                f"the backend {backend.name!r} shows no {feature}, but rollouts of GRPOTrainer need them",
                hint="run the model in this process: leave solver out",
            )
    _check_tokenizer(backend, trainer.processing_class)
    if setup.sampling.temperature != trainer.temperature:
        raise ConfigError(
            f"temperature of the solver is {setup.sampling.temperature}, but that of the trainer is "
            f"{trainer.temperature}",
            hint="make both equal",
        )


def _check_tokenizer(backend: Backend, trainer_tokenizer: Any) -> None:
    """Raise ConfigError where a backend's tokenizer is not known to be the trainer's."""
    own_tokenizer, size = metadata_of(backend).tokenizer, len(trainer_tokenizer)
    hint = "run the trainer's model, with its own tokenizer"
    if own_tokenizer is None:
        raise ConfigError(
            f"the tokenizer of the backend {backend.name!r} is unknown, but it must be that of the trainer", hint=hint
        )
    for token in range(0, size, max(1, size // _PROBES)):
        text = trainer_tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        own_text = _text_of(own_tokenizer, token)
        if own_text != text:
            raise ConfigError(
                f"the tokenizer of the backend {backend.name!r} differs from that of the trainer: "
                f"token {token} is {quote(str(own_text))}, not {quote(text)}",
                hint=hint,
            )


def _text_of(tokenizer: Tokenizer, token: int) -> str | None:
    """Return the text of a token; None: there is no such token."""
    try:
        return tokenizer.write([token])
    except (ConfigError, LookupError, OverflowError):
        return None
