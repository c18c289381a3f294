"""Commands on stored results.

`runs` lists studies, `merge` joins stores, `show` prints a study, and `report` writes a study's page.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from tts._core.display import one_visible_line, visible
from tts.cli.terminal import output, table, table_width

StudyName = Annotated[
    str | None, typer.Argument(metavar="[STUDY]", help="A name or id of `tts runs`; else the newest.")
]
RunStudy = Annotated[
    str | None, typer.Option("--run", metavar="STUDY", help="A name or id of `tts runs`; else the newest.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the expected cost. At most a server is probed.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsLatex = Annotated[bool, typer.Option("--latex", help="Print LaTeX, for the package booktabs.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown.")]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…", help="Columns as the table titles them: strategy,budget,accuracy; not of CSV and JSON."
    ),
]


Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="STRATEGY=WORDS", help="Words for a strategy; again for others.")
]


def _trust(context: typer.Context, trusted: bool) -> None:  # noqa: FBT001 - the form of a typer callback
    """Let files of data name code while the command runs."""
    if trusted:
        from tts._common.scopes import trust_places

        context.with_resource(trust_places())


TrustPlaces = Annotated[
    bool,
    typer.Option(
        "--trust-places", callback=_trust, help="Let stores and performance models name code: you trust who wrote them."
    ),
]


def _allow(context: typer.Context, allowed: bool) -> None:  # noqa: FBT001 - the form of a typer callback
    """Let data sets run commands while the command runs."""
    if allowed:
        from tts._common.scopes import allow_commands

        context.with_resource(allow_commands())


AllowCommands = Annotated[
    bool,
    typer.Option(
        "--allow-commands", callback=_allow, help="Let data sets of repositories run the commands of their tests."
    ),
]
StoreFile = Annotated[
    Path | None, typer.Option("--store", metavar="FILE", help="Where results are kept, if not .tts/store.sqlite.")
]


def columns_of(text: str | None) -> tuple[str, ...]:
    """Return the column titles of an option."""
    return () if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def form_of(**given: object) -> Any:
    """Return the form that one of several options asks for; "text": none of them is given.

    Args:
        given: The values of options that exclude each other, by their names.

    Raises:
        ConfigError: several are given.
    """
    from tts.errors import ConfigError

    names = [name for name, value in given.items() if value]
    if len(names) > 1:
        raise ConfigError(
            f"--{names[0]} and --{names[1]} were asked for at once, but only one can be", hint="leave one out"
        )
    return names[0] if names else "text"


def print_table(text: str, form: str) -> None:
    """Write a table to standard output. A text for people has no control characters."""
    typer.echo(visible(text.rstrip("\n")) if form == "text" else text.rstrip("\n"))


def labels_of(texts: Sequence[str] | None) -> dict[str, str]:
    """Return the words of "STRATEGY=WORDS" by strategy, divided at the last sign of equality."""
    from tts.errors import ConfigError

    labels: dict[str, str] = {}
    for text in texts or ():
        strategy, _, words = text.rpartition("=")
        if text and not strategy:
            raise ConfigError(
                f"--label is {text!r}, but must be STRATEGY=WORDS",
                hint="for example --label 'best_of_n | majority=voting'",
            )
        labels[strategy.strip()] = words.strip()
    return labels


def runs(
    *,
    store: StoreFile = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read every result, and compare it with its checksum.")
    ] = False,
    _: TrustPlaces = False,
) -> None:
    """List the studies that have been run, the newest last.

    --check reads the whole store instead. It ends with 1 where the file is damaged, a result is not as it was written,
    or a text names code, a file or a server.
    """
    if check:
        _check(store)
        return
    from tts.experiments.store.store import Store, default_store

    count_titles = ("cells", "done", "failed", "lost tokens")
    listing = table("id", "study", "begun", *count_titles, numbers=["id", *count_titles])
    with Store.existing(store or default_store()) as opened:
        for study in opened.studies():
            begun = datetime.fromtimestamp(study.created_at).astimezone().isoformat(sep=" ", timespec="minutes")
            counts = (study.cells, study.done, study.failed, opened.lost_tokens(study.id))
            shown_counts = [f"{count:,}" for count in counts]
            listing.add_row(str(study.id), one_visible_line(study.name), begun[:16], *shown_counts)
    output().print(listing)


def merge(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Stores, such as those of the jobs of an array.")
    ],
    *,
    store: StoreFile = None,
) -> None:
    """Copy the results of other stores into one.

    That store is created where it is missing. The other stores stay unchanged. Existing results are kept, so a merge
    may be repeated, and the other stores may still grow.
    """
    from tts.experiments.store.store import Store, default_store

    for file in files:
        Store.existing(file).close()  # raises for a missing store before the joint store is made
    with Store(store or default_store()) as opened:
        for file in files:
            typer.echo(f"{opened.merge(file):,} results from {file}")


def _check(store: Path | None) -> None:
    """Read a whole store, and print that its results are as they were written.

    Raises:
        TTSError: the file or a result is damaged, or a text names code, a file or a server.
    """
    from tts._common.scopes import RegisteredNames
    from tts.errors import TTSError
    from tts.experiments.store.store import Store, default_store

    path = store or default_store()
    with Store.existing(path) as opened:
        checked = opened.check()
    unknown = f"; {checked.unknown:,} results of an earlier revision have no checksum" if checked.unknown else ""
    if checked.ok and not checked.foreign:
        typer.echo(f"{checked.whole:,} results are as they were written{unknown}")
        return
    findings = {"file": checked.faults, "result": checked.damaged, "text": checked.foreign}
    for kind, lines in findings.items():
        for line in lines:
            typer.echo(one_visible_line(f"{kind}: {line}"))
    if checked.ok:
        texts_reach = "text reaches" if len(checked.foreign) == 1 else "texts reach"
        count = f"{len(checked.foreign):,} {texts_reach} code, files or servers"
        raise TTSError(
            f"store {path}: {count}, and commands that resolve them refuse it{unknown}", hint=RegisteredNames().cure
        )
    subject = "the file is"
    if checked.damaged:
        subject = f"{len(checked.damaged):,} of {checked.whole + len(checked.damaged):,} results are"
    raise TTSError(
        f"store {path}: {subject} damaged{unknown}",
        hint="put back a copy of it, or run the study in another file with --store",
    )


def show(  # noqa: PLR0913 - the options of the command
    study: StudyName = None,
    *,
    store: StoreFile = None,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
    as_latex: AsLatex = False,
    as_markdown: AsMarkdown = False,
    columns: Columns = None,
    label: Labels = None,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every result to FILE.parquet or .jsonl instead.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(help="With --export, samples: runs with their recorded samples, as FILE.jsonl."),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page of all that the model wrote, with a search: FILE.html."),
    ] = None,
) -> None:
    """Print the table of a study: accuracy with its interval, and cost, by strategy and budget.

    A study may be unfinished. --samples writes one page with every sample, its texts, scores and tokens, for a browser
    without a network.
    """
    from tts.errors import ConfigError
    from tts.experiments.api import Study

    table_form = form_of(csv=as_csv, json=as_json, latex=as_latex, markdown=as_markdown, export=export, samples=samples)
    if form is not None and export is None:
        raise ConfigError(f"--form {form} was given without --export, which it is for", hint="add --export FILE")
    stored = Study.from_store(study, store=store)
    if export is not None:
        noun = "results" if form is None else "runs with their samples"
        typer.echo(f"{stored.export(export, form):,} {noun} in {export}")
        return
    if samples is not None:
        typer.echo(f"{stored.samples(samples):,} samples in {samples}")
        return
    print_table(
        stored.table(table_form, width=table_width(), columns=columns_of(columns), labels=labels_of(label)), table_form
    )


def report(
    study: StudyName = None,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The page: FILE.html.")] = Path("report.html"),
    x: Annotated[
        str, typer.Option(help="The cost that is shown first, and by which strategies are compared.")
    ] = "tokens",
    baseline: Annotated[
        str | None, typer.Option(metavar="STRATEGY", help="The strategy to compare with; else the first.")
    ] = None,
    store: StoreFile = None,
) -> None:
    """Write one page that needs no network: figures, the table, and recorded searches side by side.

    Searches are recorded where the study's file has, for example, record: {traces: 3}.
    """
    from tts.experiments.api import Study

    Study.from_store(study, store=store).report(out, x, baseline=baseline)
    typer.echo(f"{out}")
