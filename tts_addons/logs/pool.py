"""Pools of recorded samples: read from rows, files and logs, or from a store, and replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tts.experiments.analysis.points import points_of
from tts.experiments.analysis.pools import ProblemPool, pools_of
from tts.experiments.analysis.replay import ReplayedCurve
from tts.experiments.analysis.replayable import Replayable
from tts.experiments.api import Study
from tts.experiments.output.tables import Form, format_rows
from tts.experiments.store.store import Store, default_store
from tts_addons.logs.building import ImportReport
from tts_addons.logs.fields import Names, SampleRow
from tts_addons.logs.files import samples_of
from tts_addons.logs.importing import Import, ImportSettings, rows_of
from tts_addons.logs.source import Source, SourceFacts


class Pool(Replayable):
    """Recorded samples of many problems.

    Selections and stop rules are evaluated on these samples without new tokens.

        pool = tts.Pool.from_jsonl("samples.jsonl", fields={"text": "completion"}, task="math")
        print(*pool.report.lines(), sep="; ")
        print(pool.table(pool.replay(["pass@k", "best_of_n | majority"], [1, 2, 4, 8])))
        pool.save()  # to the store, for `tts replay`

    Args:
        name: The name of the pool.
        problems: The samples of each problem.
        found: The result of the import, with its report.

    Attributes:
        report: The report of the import.

    Example:
        >>> import tts
        >>> rows = [{"problem": "a", "answer": answer, "reference": "5"} for answer in ("5", "4", "5", "5")]
        >>> pool = tts.Pool.from_rows(rows, name="sums", task="arithmetic")
        >>> pool
        Pool('sums', 1 problems, 4 samples)
        >>> [round(each.value, 3) for each in pool.replay(["best_of_n | majority"], [1, 3])[0].curve.accuracy]
        [0.75, 1.0]
    """

    def __init__(self, name: str, problems: Sequence[ProblemPool], *, found: Import) -> None:
        self.name = name
        self.problems = tuple(problems)
        self.report: ImportReport = found.report
        self._import = found

    @classmethod
    def from_rows(
        cls, rows: Iterable[Mapping[str, Any]], *, fields: Names | None = None, name: str = "pool", **settings: Any
    ) -> Self:
        """Return the pool of rows, each one sample, or one problem with lists of samples.

        Usual fields are `problem` (its id), `sample`, `prompt`, `text`, `answer`, `reference`, `correct`, `tokens` and
        `scores` (a number, or one for each verifier role). A row needs one of text, answer and correct; answers alone
        are enough.

        Args:
            rows: The rows of any number of problems, in any order.
            fields: The names of fields with unusual names (`SampleFields`).
            name: The name of the pool.
            settings: Settings of the import, as `ImportSettings` has them: task, model, verdicts, tokenizer.

        Raises:
            ConfigError: a row cannot be read, or rows contradict each other; the error has the number of the row.
        """
        facts = SourceFacts()
        return cls._from_rows(samples_of(rows, fields, facts), ImportSettings.of(name, settings), facts)

    @classmethod
    def from_files(
        cls,
        *paths: str | Path,
        form: str | None = None,
        fields: Names | None = None,
        rows: str | None = None,
        filter: str | None = None,  # noqa: A002 - the word of the harness
        metric: str | None = None,
        scorer: str | None = None,
        name: str | None = None,
        **settings: Any,
    ) -> Self:
        """Return the pool of the rows of files, as `from_rows`. Errors name file and line.

        Args:
            paths: JSON lines, JSON arrays and objects, CSV and Parquet files, samples of lm-evaluation-harness and
                lmms-eval, and `.json` or `.eval` logs of Inspect.
            form: The form of all files: "jsonl", "json", "csv", "parquet", "lm-eval" or "inspect"; None: each file's
                own.
            fields: The names of fields of plain rows, as in `from_rows`.
            rows: The member of a JSON object that has the rows; None: its only list of objects.
            filter: The filter whose answers are read, of lm-evaluation-harness; None: the first.
            metric: The metric that gives the verdicts, of lm-evaluation-harness; None: the best-known metric.
            scorer: The scorer that gives the verdicts, of Inspect; None: the first. Values of other scorers are scores
                by their names.
            name: The name of the pool; None: the first file's, without its ending.
            settings: As in `from_rows`.

        Raises:
            ConfigError: a file cannot be read, or as `from_rows`.
            MissingDependency: Parquet or `.eval` without pyarrow.
        """
        source = Source(form=form, fields=fields, rows=rows, filter=filter, metric=metric, scorer=scorer)
        facts = SourceFacts()
        title = name or (Path(paths[0]).stem if paths else "pool")
        return cls._from_rows(rows_of(paths, source, facts), ImportSettings.of(title, settings), facts)

    @classmethod
    def from_jsonl(cls, *paths: str | Path, **settings: Any) -> Self:
        """Return the pool of files of JSON lines; see `from_files`."""
        return cls.from_files(*paths, form="jsonl", **settings)

    @classmethod
    def from_csv(cls, *paths: str | Path, **settings: Any) -> Self:
        """Return the pool of CSV files with a header; see `from_files`."""
        return cls.from_files(*paths, form="csv", **settings)

    @classmethod
    def from_parquet(cls, *paths: str | Path, **settings: Any) -> Self:
        """Return the pool of Parquet files; see `from_files`."""
        return cls.from_files(*paths, form="parquet", **settings)

    @classmethod
    def from_lm_eval(cls, *paths: str | Path, **settings: Any) -> Self:
        """Return the pool of `samples_….jsonl` of lm-evaluation-harness; see `from_files`."""
        return cls.from_files(*paths, form="lm-eval", **settings)

    @classmethod
    def from_inspect(cls, *paths: str | Path, **settings: Any) -> Self:
        """Return the pool of `.json` or `.eval` logs of Inspect; see `from_files`."""
        return cls.from_files(*paths, form="inspect", **settings)

    @classmethod
    def _from_rows(cls, rows: Iterable[SampleRow], settings: ImportSettings, facts: SourceFacts | None = None) -> Self:
        samples = Import(rows, settings, facts)
        pools = pools_of(imported.result for imported in samples).pools
        return cls(settings.name, pools, found=samples)

    def __repr__(self) -> str:
        """Return the name and size of the pool, in one line."""
        num_samples = sum(len(pool.drawn) for pool in self.problems)
        return f"Pool({self.name!r}, {len(self.problems):,} problems, {num_samples:,} samples)"

    def _pools(self) -> Sequence[ProblemPool]:
        return self.problems

    def table(self, replayed: Sequence[ReplayedCurve], form: Form = "text") -> str:
        """Return the points of replayed curves as text, CSV or JSON."""
        return format_rows(points_of(replayed), form)

    def save(self, store: str | Path | None = None) -> Study:
        """Add the pool to a store, in one transaction, and return its study, which `tts replay` reads.

        Args:
            store: The file, created where missing; None: `.tts/store.sqlite` in the working directory.

        Raises:
            ConfigError: the file is no store.
            TTSError: the file cannot be written, and nothing was added.

        Warns:
            NamedAlike: the store has earlier studies of this name, which now names the new study.
        """
        path = default_store() if store is None else Path(store)
        with Store(path) as open_store:
            study_id = self._import.save(open_store)
        return Study.from_store(str(study_id), store=path)
