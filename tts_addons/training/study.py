"""Yields the searches of a study, for rows of training data.

Searches are read from recorded texts, or drawn again from their seeds where rows need tokens.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from tts import tasks
from tts._common.files import Exported
from tts._core.logs import get_logger
from tts.budget.budget import Budget
from tts.errors import ConfigError, unknown_name
from tts.experiments import datasets
from tts.experiments.api import Study, sampled_results
from tts.experiments.output.logs import Sampled
from tts.experiments.run.local_executor import LocalExecutor
from tts.experiments.study.config import StudyConfig
from tts.experiments.study.grid import Problems, load_problems
from tts.experiments.study.record import Cell, RecordedSample, Result, StoredStudy
from tts.experiments.study.stored import check_servers
from tts.experiments.study.task_choice import with_chosen_tasks
from tts.solver.model_cache import LOOP
from tts.solver.setup import ProblemRun
from tts.tasks.base import Task
from tts.thoughts import THINK
from tts.types import Prompt, Solution
from tts_addons.training.filters import Filters
from tts_addons.training.forms import FORMS, check_one_model, form_of
from tts_addons.training.records import PathSample, SearchRows, search_rows
from tts_addons.training.writing import SCORE_CURE, check_target, export_searches

LOG = get_logger("tts.runs")
_TEXT_FORMS = "forms of texts: " + ", ".join(name for name in FORMS if not FORMS[name].tokens)


class RecordedSearches:
    """Builds searches from the recorded texts of a study, without its models.

    Args:
        config: The study; None: its samples were imported.
        task: The name of the task of imported samples; None: "text".
        verifier: The role whose scores are read; None: the first of each cell.
    """

    def __init__(self, config: StudyConfig | None, task: str | None = None, verifier: str | None = None) -> None:
        self._config, self._verifier = config, verifier
        self._task_of_import = task or "text"
        self._problems: Problems = {}
        if config is not None:
            self._problems, _ = with_chosen_tasks(config, load_problems(config))
        self._task = cache(tasks.get)

    def record(self, result: Result, source: Mapping[str, Any]) -> SearchRows:
        """Return the search of a result with its recorded samples. Samples without a text are left out.

        Args:
            result: The result.
            source: The texts of the result's samples, as `Sampled` has them.
        """
        cell = result.cell
        task, prompt = self._task_and_prompt(cell, source)
        texts = source.get("texts") or ()
        thoughts = source.get("thoughts") or [None] * len(texts)
        drawn = result.drawn or ()
        role = self._verifier if self._verifier is not None else next(iter(cell.verifiers), None)
        best = _best(drawn, result.answer, role)
        samples: list[PathSample] = []
        for i, (recorded, text, thought) in enumerate(zip(drawn, texts, thoughts, strict=False)):
            if text is not None:
                samples.append(self._sample(recorded, text, thought, prompt, task, role, is_best=i == best))
        temperature = None if self._config is None else self._config.sampling_of(cell.model).temperature
        return SearchRows(
            problem=cell.problem,
            prompt=prompt,
            reference=source.get("reference"),
            model=cell.model,
            strategy=cell.strategy,
            seed=cell.seed,
            budget=_limits(cell),
            samples=samples,
            temperature=temperature,
        )

    def _task_and_prompt(self, cell: Cell, source: Mapping[str, Any]) -> tuple[Task, Prompt]:
        """Return the task of a cell, and the prompt that its model read."""
        problem = self._problems.get(cell.dataset, {}).get(cell.problem)
        if self._config is None or problem is None:
            return self._task(self._task_of_import), source.get("prompt") or cell.problem
        own_task = self._config.models[cell.model].records()["policy"].task
        task = self._task(problem.task or self._config.task or own_task or "text")
        return task, task.prompt(problem.without_answer())

    def _sample(
        self,
        recorded: RecordedSample,
        text: str,
        thought: str | None,
        prompt: Prompt,
        task: Task,
        role: str | None,
        *,
        is_best: bool,
    ) -> PathSample:
        """Return a recorded sample as a path of a search.

        Args:
            recorded: The sample.
            text: The text of the sample after its thought.
            thought: The thought before the text; None: there is none.
            prompt: The prompt that the model read.
            task: The task, which divides the text into steps.
            role: The role whose scores are read; None: there are no scores.
            is_best: Whether the answer of the search was taken from the sample.
        """
        prefix = "" if thought is None else f"{THINK.open}\n{thought}\n{THINK.close}\n\n"
        score = None if role is None else recorded.scores.get(role)
        return PathSample(
            prompt=prompt,
            text=prefix + text,
            thought=len(prefix),
            steps=tuple(task.split(prefix + text)),
            values=() if role is None else _if_known(recorded.steps.get(role, ())),
            answer=recorded.answer,
            right=recorded.right if recorded.given is None else recorded.given,
            score=None if score is None or math.isnan(score) else score,
            is_best=is_best,
        )


def _best(drawn: Iterable[RecordedSample], answer: str | None, role: str | None) -> int | None:
    """Return the index of the sample that an answer was taken from; None: no sample states the answer.

    Of several samples that state the answer, the highest-scored is taken, then the first.
    """
    if answer is None:
        return None
    best: int | None = None
    best_score = -math.inf
    for i, sample in enumerate(drawn):
        score = 0.0 if role is None else sample.scores.get(role, 0.0)
        if sample.answer == answer and (best is None or score > best_score):
            best, best_score = i, score
    return best


def _if_known(values: tuple[float, ...]) -> tuple[float, ...]:
    """Return values if all are known; (): a value is NaN."""
    return () if any(map(math.isnan, values)) else values


def _limits(cell: Cell) -> str:
    return str(Budget(**dict[str, Any](cell.budget)))


class _Redraws(LocalExecutor):
    """The executor of a form with tokens, which refuses a model without token ids."""

    def _check(self, name: str, run: ProblemRun) -> None:
        """Refuse a run whose model gives no token ids, before anything is spent."""
        super()._check(name, run)
        if not run.setup.backends["policy"].caps.token_ids:
            raise _no_token_ids(name)


class RedrawnSearches:
    """Draws the searches of a study again, as a context manager; nothing is stored.

    Searches are drawn from their seeds, with tokens and log-probabilities.

    Args:
        config: The study.
        verifier: The role whose scores are read; None: the first role that scored.
        needs_tokens: Whether a model without token ids is refused.

    Raises:
        ConfigError: A model cannot be used here.
    """

    def __init__(self, config: StudyConfig, verifier: str | None = None, *, needs_tokens: bool = True) -> None:
        self._verifier = verifier
        problems, _ = with_chosen_tasks(config, load_problems(config))
        self._executor = (_Redraws if needs_tokens else LocalExecutor)(config, problems)

    def __enter__(self) -> RedrawnSearches:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.close()

    def records(self, results: Iterable[Result]) -> Iterator[SearchRows]:
        """Yield the search of each result. Searches are drawn in groups, as many at once as the study runs.

        Raises:
            ConfigError: A search differs from its result.
        """
        remaining_results = iter(results)
        while group := list(islice(remaining_results, self._executor.slots)):
            redrawn_group = LOOP.run(self._redraw_cells([result.cell for result in group]))
            for result, (solution, task) in zip(group, redrawn_group, strict=True):
                yield self._record(result, solution, task)

    async def _redraw_cells(self, cells: list[Cell]) -> list[tuple[Solution, Task]]:
        return await asyncio.gather(*map(self._executor.draw_again, cells))

    def _record(self, result: Result, solution: Solution, task: Task) -> SearchRows:
        """Return the search of a solution that was drawn again.

        Raises:
            ConfigError: The solution differs from the result.
        """
        cell = result.cell
        if solution.answer != result.answer or len(solution.candidates) != len(result.drawn or solution.candidates):
            raise ConfigError(
                f"the search of the problem {cell.problem!r} came out otherwise than its result in the store",
                hint="its backend or machine may not draw the same again (`reproducible`); forms of texts need no "
                "second search",
            )
        record = search_rows(solution.trace, task, cell.problem, solution.problem.answer, self._verifier)
        return dataclasses.replace(record, model=cell.model, budget=_limits(cell))


def _no_token_ids(model: str) -> ConfigError:
    return ConfigError(f"the model {model!r} gives no token ids, but the form needs them", hint=_TEXT_FORMS)


def select(pool: Iterable[Sampled], model: str | None, strategy: str | None) -> Iterator[Sampled]:
    """Yield the results of a model and a strategy.

    Args:
        pool: Results with their texts.
        model: The model's name in the study; None: any.
        strategy: The strategy as the table writes it, or without its selection; None: any.

    Raises:
        ConfigError: No result is left, or several strategies have the name.
    """
    models = dict[str, None]()
    strategies = dict[str, None]()
    matching_strategies = set[str]()
    has_yielded = False
    for result, source in pool:
        cell = result.cell
        models[cell.model] = None
        strategies[cell.strategy] = None
        if strategy not in (None, cell.strategy, cell.strategy.partition(" | ")[0]):
            continue
        matching_strategies.add(cell.strategy)
        if strategy is not None and len(matching_strategies) > 1:
            names = ", ".join(sorted(matching_strategies))
            raise ConfigError(
                f"strategy is {strategy!r}, but several have this name: {names}", hint="name it with its selection"
            )
        if model in (None, cell.model) and result.error is None:
            has_yielded = True
            yield result, source
    if has_yielded:
        return
    if model is not None and model not in models:
        raise unknown_name("model of the study", model, models)
    if strategy is not None and strategy not in strategies:
        raise unknown_name("strategy of the study", strategy, strategies)


def announce(cells: int, tokens: int) -> None:
    """Log the cost of drawing searches again, before it is spent."""
    LOG.info(
        "%s searches are drawn again from their seeds; they cost %s tokens when they were first drawn",
        f"{cells:,}",
        f"{tokens:,}",
    )


def export_study(
    study: Study,
    path: str | Path,
    form: str,
    *,
    model: str | None = None,
    strategy: str | None = None,
    licence: str | None = None,
    **filters: Any,
) -> Exported:
    """Write the searches of a study as rows for trainers; see `Study.export_training`."""
    selected_filters = Filters(**filters)
    target = check_target(path)
    needs_tokens = form_of(form, selected_filters).tokens
    needs_step_scores = form == "trl-prm" and selected_filters.judge == "score"
    with study.open_store("these are not all its searches") as (store, stored), ExitStack() as stack:
        facts = {"study": stored.name, "licence": licence or _licences(stored)}
        select_results = partial(select, model=model, strategy=strategy)
        import_settings = study.imported
        facts |= {"data set": "unknown: samples were imported"} if import_settings is not None else _data(study.config)
        records: Iterable[SearchRows]
        if import_settings is not None:
            if needs_tokens:
                raise ConfigError(
                    f"the form {form} needs token ids, but the samples of the study {stored.name!r} were imported "
                    "without",
                    hint=_TEXT_FORMS,
                )
            searches = RecordedSearches(None, import_settings.get("task"), selected_filters.verifier)
            records = (searches.record(*sampled) for sampled in select_results(sampled_results(store, stored)))
        elif study.config.record.texts and not needs_tokens and not needs_step_scores:
            searches = RecordedSearches(study.config, None, selected_filters.verifier)
            records = (searches.record(*sampled) for sampled in select_results(sampled_results(store, stored)))
        else:
            without_samples = ((result, {}) for result in store.results(stored.id, drawn=False))
            selected = [result for result, _ in select_results(without_samples)]
            [name] = {cell.model for cell in check_one_model(result.cell for result in selected)}
            if needs_tokens and _is_called_by_texts(stored, name):  # before a server is probed
                raise _no_token_ids(name)
            if needs_step_scores and not any(result.is_scored for result in selected):
                raise ConfigError(f"judge is 'score', but nothing scored in {stored.name!r}", hint=SCORE_CURE)
            if study.is_of_store:
                check_servers(study.config)
            config = study.config.model_copy(update={"models": {name: study.config.models[name]}})
            redrawn_searches = stack.enter_context(
                RedrawnSearches(config, selected_filters.verifier, needs_tokens=needs_tokens)
            )
            announce(len(selected), sum(result.usage.tokens for result in selected))
            with_samples = ((result, {}) for result in store.results(stored.id))
            records = redrawn_searches.records(result for result, _ in select_results(with_samples))
        return export_searches(records, target, form, selected_filters, facts=facts)


def _data(config: StudyConfig) -> dict[str, str]:
    """Return the name, split and parameters of each data set, for the card. Warn of rows of a split for tests."""
    facts = dict[str, str]()
    for section in config.problems:
        defaults = {p.name: p.default for p in inspect.signature(datasets.get(section.dataset)).parameters.values()}
        known = {**defaults, "limit": section.limit or defaults.get("limit"), **section.parameters}
        unknown = (None, inspect.Parameter.empty)
        settings = ", ".join(f"{name}={value!r}" for name, value in known.items() if value not in unknown)
        facts[f"data set {section.title}"] = f"{section.dataset} ({settings})"
        if str(known.get("split")).startswith("test"):
            facts[f"warning: {section.title}"] = f"rows come from the split {known['split']!r}: train on another"
            LOG.warning("rows of %s come from the split %r: train on another", section.title, known["split"])
    return facts


def _is_called_by_texts(study: StoredStudy, model: str) -> bool:
    """Whether a study's last run called a model on a server by texts, as the model's identity says."""
    models = study.runs[-1].snapshot.get("models")
    roles = models.get(model) if isinstance(models, dict) else None
    identity = str(roles.get("policy")) if isinstance(roles, dict) else ""
    return identity.startswith("openai ") and " tokens" not in identity


def _licences(study: StoredStudy) -> str:
    """Return the licences that the data sets of a study state."""
    data = study.runs[-1].snapshot.get("data")
    if not isinstance(data, dict):
        return ""
    licences = [dataset.get("licence") for dataset in data.values() if isinstance(dataset, dict)]
    return ", ".join(dict.fromkeys(str(licence) for licence in licences if licence))
