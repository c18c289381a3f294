"""A study as one object: what it runs, and the tables, figures, pages and replays of its results."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tts._common.files import Exported
from tts._core.display import cell
from tts.budget.account import Account
from tts.errors import ConfigError, TTSError, unknown_name
from tts.experiments.analysis.comparing import Comparison, compare
from tts.experiments.analysis.curves import Curve, choose_curves, curves_of, line_words
from tts.experiments.analysis.pairs import PairedRow, compare_pairs, compare_replays
from tts.experiments.analysis.points import points_of
from tts.experiments.analysis.pools import ProblemPool, pool_study, pools_of
from tts.experiments.analysis.replay import ReplayedCurve
from tts.experiments.analysis.replayable import PartialResults, Replayable
from tts.experiments.analysis.table import SEED, TableRow, table
from tts.experiments.output import plots, tables
from tts.experiments.output.export import export
from tts.experiments.output.logs import Sampled, export_samples
from tts.experiments.output.report import report
from tts.experiments.output.samples import samples_page
from tts.experiments.run.progress import show_progress
from tts.experiments.run.runner import PreparedStudy, RunSummary, run
from tts.experiments.store.rows import with_texts
from tts.experiments.store.store import Store, default_store
from tts.experiments.study.config import StudyConfig, study_config
from tts.experiments.study.file import read_study
from tts.experiments.study.record import Result, StoredStudy
from tts.experiments.study.stored import check_servers, imported_settings, stored_config
from tts.registry import find_own

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Study(Replayable):
    """A scaling study.

    Every combination of model, problem, strategy, budget and seed is one cell, run once and kept in a store.

    Args:
        settings: The keys of a study's file, with the same values (docs/how-to/studies.md): `name`, `models`,
            `problems`, `strategies` and `budgets` are required; `task`, `seeds`, `verifiers`, `sampling`,
            `allow_oracle`, `record` and `concurrency` are optional. `problems` may also be a data frame, a data set of
            the package `datasets`, or a list of rows or `Problem`s. Models and verifiers may be functions at the top of
            a module or script.

    Attributes:
        store: The file that results are kept in: at first `.tts/store.sqlite` in the working directory, or the one
            given to `from_store`. A store that is given to `run` replaces it.

    Raises:
        ConfigError: a setting is missing, unknown (the hint has the nearest names) or not valid. Methods that read
            results raise it where the store has none of this study.

    Example:
        >>> import tts
        >>> sums = {"dataset": "arithmetic", "operators": "+-", "parentheses": False, "operations": [4], "limit": 20}
        >>> study = tts.Study(
        ...     name="sums",
        ...     models="toy",
        ...     problems=sums,
        ...     strategies=["best_of_n | majority"],
        ...     budgets={"samples": [1, 8]},
        ... )
        >>> study.run("sums.sqlite", progress=False).counts.done
        40
        >>> [(row.budget["samples"], round(row.accuracy.value, 2)) for row in study.rows()]
        [(1, 0.65), (8, 0.85)]
    """

    def __init__(self, **settings: Any) -> None:
        self._set(study_config(settings))

    def _set(self, config: StudyConfig | None, *, find: str | None = None, store: str | Path | None = None) -> Self:
        """Set the attributes of a new study, and return the study.

        Args:
            config: The configuration; None: the store has it.
            find: The id or name of the study in the store; None: the newest, or the study of `config`.
            store: The file of the results.
        """
        self._config, self._name_in_store = config, find
        self._id: int | None = None  # in the store, once the study is found there
        self.is_of_store = False  # whether the configuration was read from a store
        self.store = default_store() if store is None else Path(store)
        return self

    @classmethod
    def from_yaml(cls, source: str | Path, **settings: Any) -> Self:
        """Return the study of a YAML file.

        Args:
            source: The path of the file, or the YAML itself: a text of several lines, or one that begins with a brace.
            settings: Values in place of the file's. A key below another is written with dots:
                `**{"problems.limit": 20}`.

        Raises:
            ConfigError: the file cannot be read, is not YAML, or a setting is unknown or not valid.
            MissingDependency: PyYAML is not installed.
        """
        return cls.__new__(cls)._set(read_study(source, settings=settings))

    @classmethod
    def from_store(cls, study: str | None = None, *, store: str | Path | None = None) -> Self:
        """Return a study of a store, to be read or resumed.

        The store is opened when results are first needed.

        Args:
            study: The study's name or id. A name stands for its newest study; None: the newest of all.
            store: The file; None: `.tts/store.sqlite` in the working directory.
        """
        return cls.__new__(cls)._set(None, find=study, store=store)

    @property
    def config(self) -> StudyConfig:
        """What the study runs.

        Raises:
            ConfigError: a study of a store was run with a configuration that is not valid here.
        """
        if self._config is None:
            with self.open_store() as (_, study):
                self._config = stored_config(study.runs[-1].snapshot)
            self.is_of_store = True
        return self._config

    @property
    def imported(self) -> Mapping[str, Any] | None:
        """The settings of an import, by the names of `ImportSettings`; None: models draw the samples."""
        if self._config is not None:
            return None
        with self.open_store() as (_, study):
            return imported_settings(study.runs[-1].snapshot)

    @property
    def name(self) -> str:
        """The study's name."""
        if self._config is not None:
            return self._config.name
        with self.open_store() as (_, study):
            return study.name

    def __repr__(self) -> str:
        """Return the study's name and the file of its results, in one line."""
        name = self._name_in_store if self._config is None else self._config.name
        return f"Study({name!r}, store={str(self.store)!r})"

    def _repr_html_(self) -> str:
        try:
            return f"<p>{cell(repr(self))}</p>{tables.as_html(self.rows())}"
        except TTSError:  # the store has no results
            return f"<p>{cell(repr(self))}</p>"

    # running

    def run(
        self,
        store: str | Path | None = None,
        *,
        executor: str = "local",
        shard: tuple[int, int] = (1, 1),
        retry_failed: bool = False,
        progress: bool = True,
        account: Account | None = None,
    ) -> RunSummary:
        """Run the cells without a result.

        Interrupted and killed runs resume, and finished cells cost nothing.

        Args:
            store: The file for results, created where missing; None: the last one used, at first `.tts/store.sqlite`.
            executor: Where cells run: "local", or "ray" for a cluster.
            shard: (i, n) runs part i of n, from 1, for arrays of jobs.
            retry_failed: Whether cells that failed before are run again.
            progress: Whether to report progress on standard error.
            account: The account that pays all cells of this run, in this process. A cell that the account cannot pay
                whole has no result, and stays open for the next run. None: only the cells' own budgets limit the run.

        Returns:
            How many cells are done, failed, pending, and leased by other processes. `unpaid` counts the cells that
            the account left open.

        Raises:
            ConfigError: a model, strategy, budget, verifier or data set cannot be used. Nothing has been spent.
            TTSError: the store failed, or only failures came of the first cells. Finished cells are kept.
            KeyboardInterrupt: the run was stopped. Finished cells are kept.
        """
        index, count = shard
        if not 1 <= index <= count:
            raise ConfigError(
                f"shard is {shard}, but must be (i, n) with i from 1 to n", hint="for example (1, 8), for jobs 1 to 8"
            )
        config = self.config
        if self.is_of_store:
            check_servers(config)
        if store is not None:
            self.store = Path(store)
        with (
            PreparedStudy(config, executor, account) as prepared,
            Store(self.store) as open_store,
            show_progress(config.name, enabled=progress) as progress_report,
        ):
            summary = run(prepared, open_store, part=shard, retry_failed=retry_failed, report=progress_report)
        self._id = summary.study
        if summary.interrupted:
            raise KeyboardInterrupt(f"the study {config.name!r} was stopped; finished cells are kept")
        return summary

    def sample(
        self, n: int, store: str | Path | None = None, *, name: str | None = None, progress: bool = True
    ) -> Study:
        """Draw pools of samples with this study's models, problems and seeds, and return their study.

        Args:
            n: Samples of each problem with each seed, at least 1.
            name: The name of the new study; None: this study's, with "-pool" appended.
            store: As in `run`.
            progress: As in `run`.

        Raises:
            ConfigError, TTSError, KeyboardInterrupt: as `run`.
        """
        pool_config = pool_study(self.config, n).model_copy(update={"name": name or f"{self.config.name}-pool"})
        pool = Study.__new__(Study)._set(pool_config, store=self.store)
        pool.is_of_store = self.is_of_store
        pool.run(store, progress=progress)
        return pool

    def results(self) -> list[Result]:
        """Return all results, in the order in which cells were added, recorded candidates included.

        Warns:
            PartialResults: cells have no result yet.
        """
        with self.open_store("these are not all its results") as (store, study):
            return list(store.results(study.id))

    def rows(self) -> list[TableRow]:
        """Return the final table: for each strategy and budget its accuracy, and what it spent.

        The accuracy has a 95 % interval over problems.

        Warns:
            PartialResults: cells have no result yet.
        """
        with self.open_store("this is not its final table") as (store, study):
            return table(store.results(study.id, drawn=False), rng=np.random.default_rng(SEED))

    def table(
        self,
        form: tables.Form = "text",
        *,
        width: int = tables.WIDTH,
        columns: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> str:
        """Return the final table as a text in one of several forms; see `rows`.

        The forms are "text", "csv", "json", "markdown" and "latex" (of the package booktabs).

        Args:
            form: The form.
            width: The characters of a line of the text. A wider table is divided into blocks of columns.
            columns: The columns to write, in this order, as the text titles them, such as ("strategy", "budget",
                "accuracy"); (): all. In LaTeX these are those of a paper, and a comment names the others.
            labels: Words in place of strategies; None: none.

        Raises:
            ConfigError: The form, a column or a strategy is unknown, or `columns` is given for CSV or JSON, which
                always have all columns.
        """
        return tables.format_rows(tables.with_labels(self.rows(), labels or {}), form, width, columns)

    def to_pandas(self) -> Any:
        """Return the final table as a `pandas.DataFrame`, with the columns of `table("csv")`; see `rows`.

        Raises:
            MissingDependency: pandas is not installed.
        """
        return tables.as_pandas(self.rows())

    def pairs(self, first: str, second: str) -> list[PairedRow]:
        """Return two strategies compared on the problems that both have finished, under each budget.

        On a pool of samples, both are replayed. See `tts compare`.

        Args:
            first: A strategy as the table writes it.
            second: Another one.

        Raises:
            ConfigError: A strategy is unknown, both are the same, or no problem was finished by both under one budget.

        Warns:
            PartialResults: Cells have no result yet.
        """
        with self.open_store("this is not the final comparison") as (store, study):
            results = list(store.results(study.id, drawn=False))
        rng = np.random.default_rng(SEED)
        strategies = {result.cell.strategy for result in results}
        if len(strategies) == 1 and min(strategies).startswith("best_of_n"):  # a pool of samples
            return compare_replays(self.replay([first]), self.replay([second]), rng=rng)
        return compare_pairs(results, first, second, rng=rng)

    def compare(
        self,
        first: str,
        second: str,
        form: tables.Form = "text",
        *,
        width: int = tables.WIDTH,
        columns: Sequence[str] = (),
    ) -> str:
        """Return `pairs` as a table, in a form of `table`."""
        return tables.format_rows(self.pairs(first, second), form, width, columns)

    def curves(self, *, by_group: bool = False) -> list[Curve]:
        """Return accuracy against cost, a curve for each strategy, in order of first appearance.

        Args:
            by_group: A curve for each group of problems (`group_by` of the study).

        Raises:
            ConfigError: no run has finished, or a problem has no reference answer.

        Warns:
            PartialResults: cells have no result yet.
        """
        with self.open_store("this is not its final figure") as (store, study):
            return curves_of(store.results(study.id, drawn=False), rng=np.random.default_rng(SEED), by_group=by_group)

    def points(self, replayed: Sequence[ReplayedCurve] = (), *, form: tables.Form = "text") -> str:
        """Return the points of all curves as a table: the study's own, then replayed ones."""
        return tables.format_rows(points_of([*self.curves(), *replayed]), form)

    def plot(
        self,
        path: str | Path | None = None,
        x: str = "tokens",
        *,
        replayed: Sequence[ReplayedCurve] = (),
        strategies: Sequence[str] = (),
        baseline: str | None = None,
        by_group: bool = False,
        labels: Mapping[str, str] | None = None,
        ax: Axes | None = None,
    ) -> list[Comparison]:
        """Write a figure of accuracy against cost.

        Args:
            path: The file, which ends in .png, .svg or .pdf; None with `ax`: nothing is written.
            x: The cost of one problem: tokens, samples, requests, generated_tokens, verifier_tokens, flops, seconds,
                work_seconds, usd or kv_bytes.
            replayed: More curves, from `replay`.
            baseline: A strategy that the others are compared with.
            by_group: Whether each group of problems has its own panel.
            strategies: The strategies or labels of lines to draw, the baseline included; none: all. The choice
                changes no colour.
            labels: Words in place of strategies or of labels of lines; None: none.
            ax: Axes of matplotlib to draw in, without a caption, for figures of your own: matplotlib then sets size,
                title, limits, labels of the axes and the place of the legend. The legend is below narrow axes.
                Without a layout such as "constrained", the axes make room for it.

        Returns:
            What each other curve gains over the baseline; empty without one.

        Raises:
            ConfigError: another ending, an unknown cost or baseline, or as `curves`.
            MissingDependency: matplotlib is not installed.
        """
        path = None if path is None else plots.check_path(path)
        if path is None and ax is None:
            raise ConfigError(
                "there is no path and no ax, but the figure must go somewhere", hint="give a path such as curve.png"
            )
        all_curves = [*self.curves(by_group=by_group), *(replayed_curve.curve for replayed_curve in replayed)]
        words = line_words(all_curves, labels or {})
        curves = choose_curves(all_curves, strategies)
        rng = np.random.default_rng(SEED)
        comparisons = [] if baseline is None else compare(curves, baseline, x, rng=rng)
        figure = plots.draw(
            curves,
            x,
            labels=words,
            order=all_curves,
            ax=ax,
        )
        if path is not None:
            plots.save(figure, path)
        return comparisons

    def report(self, path: str | Path, x: str = "tokens", *, baseline: str | None = None) -> None:
        """Write one page with figures, the table and recorded searches (`record: {traces: 3}`).

        The page loads nothing from a network.

        Args:
            path: The file, which ends in .html.
            x: The cost that is shown first, and by which strategies are compared; see `plot`.
            baseline: The strategy that others are compared with; None: the first.

        Raises:
            ConfigError: another ending, an unknown cost or baseline, or a file that cannot be written.
            MissingDependency: matplotlib is not installed.

        Warns:
            PartialResults: cells have no result yet.
        """
        target = plots.check_path(path, "the page", (".html",), "report.html")
        with self.open_store("this is not its final page") as (store, study):
            page = report(store, study, rng=np.random.default_rng(SEED), x=x, baseline=baseline)
        plots.write_file(target, page.encode(), "the page")

    def export(self, path: str | Path, form: str | None = None) -> int:
        """Write every result, or every run with its samples, as a row of a file; return how many.

        Args:
            path: The file: .parquet or .jsonl; for samples .jsonl.
            form: "samples": runs with their samples, as `export_samples`; None: results. See `export_training` for the
                forms of trainers.

        Raises:
            ConfigError: another ending or form.
            MissingDependency: Parquet without pyarrow.
            TTSError: the file cannot be written.

        Warns:
            PartialResults: cells have no result yet.
        """
        if form not in (None, "samples"):
            raise unknown_name("form", form, ["samples"])
        with self.open_store("these are not all its results") as (store, study):
            if form is None:
                return export(store.results(study.id), path)
            return export_samples(sampled_results(store, study), path, study.name)

    def export_training(
        self,
        path: str | Path,
        form: str,
        *,
        model: str | None = None,
        strategy: str | None = None,
        licence: str | None = None,
        **filters: Any,
    ) -> Exported:
        """Write the study's searches as rows for trainers, and a card beside them.

        See docs/how-to/training_data.md. Texts come from the study's record. Searches are drawn again from their
        seeds for the forms "tokens" and "tree", for scores of steps, and where no texts were recorded. A redrawn
        search costs as much as the first one; a log line states the cost beforehand. Nothing is stored.

        Args:
            path: The file; it ends in .jsonl or .parquet.
            form: "trl-sft", "trl-dpo", "trl-kto", "trl-prm", "trl-grpo", "chat", "tokens" or "tree".
            model: The model whose searches are written; None: the only one.
            strategy: The strategy whose searches are written, as the table writes it; None: all.
            licence: The licence of the rows, for the card; None: what the data sets state.
            filters: Fields of `tts_addons.training.filters.Filters`, such as keep, distinct and per_problem.

        Returns:
            The path, the number of rows, and what was left out.

        Raises:
            ConfigError: Another form or ending, an unknown filter or name, searches of several models, or no row is
                left.
            MissingDependency: Parquet without pyarrow.
            TTSError: A file cannot be written.

        Warns:
            PartialResults: Cells have no result yet.
        """
        export_study = find_own("tts_addons.training.study:export_study")
        return export_study(self, path, form, model=model, strategy=strategy, licence=licence, **filters)

    def samples(self, path: str | Path) -> int:
        """Write one page with all samples of the study, with a search field and filters.

        The page loads nothing from a network. Studies keep texts with `record: {texts: true}`, which is the default.

        Args:
            path: The page; it ends in .html.

        Returns:
            How many samples it shows.

        Raises:
            ConfigError: Another ending, no result has samples, or a file that cannot be written.

        Warns:
            PartialResults: Cells have no result yet.
        """
        target = plots.check_path(path, "the page", (".html",), "report.html")
        with self.open_store("these are not all its samples") as (store, study):
            page, count = samples_page(study.name, sampled_results(store, study))
        plots.write_file(target, page.encode(), "the page")
        return count

    def _pools(self) -> Sequence[ProblemPool]:
        with self.open_store() as (store, study):
            pools = pools_of(store.results(study.id))
        if pools.passed_over:
            reasons = "; ".join(f"{count:,} {reason}" for reason, count in pools.passed_over.items())
            _warn(f"{sum(pools.passed_over.values()):,} results are no pools of samples: {reasons}")
        return pools.pools

    @contextmanager
    def open_store(self, unfinished: str | None = None) -> Generator[tuple[Store, StoredStudy]]:
        """Open the store, and find this study in it.

        Args:
            unfinished: The end of the warning that is given if cells have no result; None: no warning.

        Raises:
            ConfigError: The store has none of this study.
        """
        if self._config is not None and not self.store.exists():
            raise self._no_results()
        with Store.existing(self.store) as store:
            if self._config is None and self._id is None:
                study = store.find(self._name_in_store)
            else:
                study = self._own(store.studies())
            self._id = study.id
            num_finished = study.done + study.failed
            if unfinished is not None and num_finished < study.cells:
                _warn(f"study {study.name}: {num_finished:,} of {study.cells:,} cells are done, so {unfinished}")
            yield store, study

    def _own(self, studies: Sequence[StoredStudy]) -> StoredStudy:
        """Return the stored study that this object ran, else the newest with the same configuration."""
        for study in reversed(studies):
            if self._id is not None:
                is_own = study.id == self._id
            else:
                is_own = study.runs[-1].snapshot.get("configuration") == self.config.plain_settings()
            if is_own:
                return study
        raise self._no_results()

    def _no_results(self) -> ConfigError:
        name = self._name_in_store if self._config is None else self._config.name
        return ConfigError(f"the study {name!r} has no results in {self.store}", hint="call its run() first")


def sampled_results(store: Store, study: StoredStudy) -> Iterator[Sampled]:
    """Yield the results of a study, with the samples and texts that were recorded."""
    return (with_texts(result, store.source(result.cell.key)) for result in store.results(study.id))


def _warn(text: str) -> None:
    warnings.warn(PartialResults(text), stacklevel=4)
