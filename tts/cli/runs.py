"""`tts runs` lists the studies of a store; `tts merge` copies the results of several stores into one."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from tts.cli.terminal import output, table
from tts.display import one_visible_line

StudyName = Annotated[str | None, typer.Argument(metavar="[STUDY]", help="A name or id of `tts runs`; else the newest.")]
RunStudy = Annotated[str | None, typer.Option("--run", metavar="STUDY", help="A name or id of `tts runs`; else the newest.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the expected cost. Nothing is spent or written.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _trust(context: typer.Context, trusted: bool) -> None:  # noqa: FBT001 - the form of a typer callback
    """Let files of data name code while the command runs."""
    if trusted:
        from tts.scopes import trust_places

        context.with_resource(trust_places())


TrustPlaces = Annotated[
    bool, typer.Option("--trust-places", callback=_trust, help="Let stores and performance models name code: you trust who wrote them.")
]
StoreFile = Annotated[Path | None, typer.Option("--store", metavar="FILE", help="Where results are kept, if not .tts/store.sqlite.")]


def runs(
    *,
    store: StoreFile = None,
    check: Annotated[bool, typer.Option("--check", help="Read every result, and compare it with its checksum.")] = False,
    _: TrustPlaces = False,
) -> None:
    """List the studies that have been run, the newest last.

    --check reads the whole store instead. It ends with 1 where the file is damaged, a result is not as it was written, or a text names
    code, a file or a server.
    """
    if check:
        _check(store)
        return
    from tts.experiments.store.store import Store, default_store

    counted = ("cells", "done", "failed", "lost tokens")
    shown = table("id", "study", "begun", *counted, numbers=["id", *counted])
    with Store.existing(store or default_store()) as opened:
        for study in opened.studies():
            begun = datetime.fromtimestamp(study.created_at).astimezone().isoformat(sep=" ", timespec="minutes")
            counts = (study.cells, study.done, study.failed, opened.lost_tokens(study.id))
            shown.add_row(str(study.id), one_visible_line(study.name), begun[:16], *(f"{count:,}" for count in counts))
    output().print(shown)


def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Stores, such as those of the jobs of an array.")],
    *,
    store: StoreFile = None,
) -> None:
    """Copy the results of other stores into one, which is created where missing. The others stay unchanged.

    Existing results are kept, so a merge may be repeated, and the other stores may still grow.
    """
    from tts.experiments.store.store import Store, default_store

    for file in files:
        Store.existing(file).close()  # before a store is made for them
    with Store(store or default_store()) as opened:
        for file in files:
            typer.echo(f"{opened.merge(file):,} results from {file}")


def _check(store: Path | None) -> None:
    """Print whether a store is whole, and raise where it is not."""
    from tts.errors import TTSError
    from tts.experiments.store.store import Store, default_store
    from tts.scopes import RegisteredNames

    path = store or default_store()
    with Store.existing(path) as opened:
        found = opened.check()
    unknown = f"; {found.unknown:,} results of an earlier revision have no checksum" if found.unknown else ""
    if found.ok and not found.foreign:
        typer.echo(f"{found.whole:,} results are as they were written{unknown}")
        return
    lines = {"file": found.faults, "result": found.damaged, "text": found.foreign}
    for what, of in lines.items():
        for line in of:
            typer.echo(one_visible_line(f"{what}: {line}"))
    if found.ok:
        count = f"{len(found.foreign):,} {'text reaches' if len(found.foreign) == 1 else 'texts reach'} code, files or servers"
        raise TTSError(f"store {path}: {count}, and commands that resolve them refuse it{unknown}", hint=RegisteredNames().cure)
    count = f"{len(found.damaged):,} of {found.whole + len(found.damaged):,} results are" if found.damaged else "the file is"
    raise TTSError(f"store {path}: {count} damaged{unknown}", hint="put back a copy of it, or run the study in another file with --store")
