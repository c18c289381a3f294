"""`tts export`: the searches of a study as rows for trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts.cli.runs import AllowCommands, StoreFile, StudyName, TrustPlaces

_FORMS = "trl-sft, trl-dpo, trl-kto, trl-prm, trl-grpo, chat, tokens or tree."


def export(  # noqa: PLR0913 - the options of the command
    study: StudyName = None,
    *,
    form: Annotated[str, typer.Option(help=f"The form of the rows: {_FORMS}")],
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The file: FILE.jsonl or FILE.parquet. A card FILE.md is written beside it."),
    ],
    store: StoreFile = None,
    model: Annotated[str | None, typer.Option(help="The model whose searches are written; else the only one.")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="The strategy whose searches are written, as `tts show` writes it.")
    ] = None,
    keep: Annotated[
        str, typer.Option(help="good, best (of each search), all, or auto: good for trl-sft and chat, else all.")
    ] = "auto",
    judge: Annotated[
        str, typer.Option(help="What judges samples: verdict (of the answer) or score (of a verifier).")
    ] = "verdict",
    threshold: Annotated[
        float, typer.Option(help="With --judge score, the lowest score of a good sample or step.")
    ] = 0.5,
    per_problem: Annotated[int | None, typer.Option(help="The most rows of one problem.")] = None,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="Of equal texts of one problem, keep the first.")
    ] = False,
    balanced: Annotated[
        bool, typer.Option("--balanced", help="As many samples of each answer as of the rarest.")
    ] = False,
    margin: Annotated[float | None, typer.Option(help="The least difference of scores in a pair.")] = None,
    thoughts: Annotated[str, typer.Option(help="Thoughts: keep, drop, or mask (of the form tokens).")] = "keep",
    verifier: Annotated[str | None, typer.Option(help="The role whose scores are read; else the first.")] = None,
    licence: Annotated[
        str | None, typer.Option(help="The licence of the rows, for the card; else that of the data sets.")
    ] = None,
    _: TrustPlaces = False,
    __: AllowCommands = False,
) -> None:
    """Write the searches of a study as rows for trainers, and a card that says how they were made.

    The forms tokens and tree draw each search again from its seed; a line says first what that costs.
    """
    from tts.experiments.api import Study

    exported = Study.from_store(study, store=store).export_training(
        out,
        form,
        model=model,
        strategy=strategy,
        licence=licence,
        keep=keep,
        judge=judge,
        threshold=threshold,
        per_problem=per_problem,
        distinct=distinct,
        balanced=balanced,
        margin=margin,
        thoughts=thoughts,
        verifier=verifier,
    )
    typer.echo(f"{exported}")
