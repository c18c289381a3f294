"""`tts import`: turns recorded samples of other programs into a pool for `tts replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tts._core.display import visible
from tts.cli.runs import StoreFile


def import_samples(  # noqa: PLR0913 - the options of the command
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES…",
            help="JSON, JSON lines, CSV, Parquet; samples of lm-evaluation-harness; logs of Inspect; trials of agents.",
        ),
    ],
    *,
    name: Annotated[str | None, typer.Option(help="Of the pool; else the first file's name.")] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEANING=FIELD",
            help="text=completion, scores.main=reward, text=choices.*.text, tokens=- for none; may be repeated.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            help="jsonl, json, csv, parquet, lm-eval, inspect, atif or mini-swe-agent; else by name and content."
        ),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(help="The member of a JSON object that has the rows; else its only list.")
    ] = None,
    filter: Annotated[str | None, typer.Option(help="Of lm-evaluation-harness; else the first.")] = None,  # noqa: A002 - its word
    metric: Annotated[
        str | None, typer.Option(help="Of lm-evaluation-harness, which gives the verdicts; else the best-known.")
    ] = None,
    scorer: Annotated[str | None, typer.Option(help="Of Inspect, which gives the verdicts; else the first.")] = None,
    task: Annotated[
        str | None, typer.Option(help="How answers are extracted and compared; else by the references.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="That wrote the samples, as tables show it; else as logs name it.")
    ] = None,
    verdicts: Annotated[
        str | None, typer.Option(help="Which count where both are known: ours (the default), or those given.")
    ] = None,
    thoughts: Annotated[
        str,
        typer.Option(
            help="The marks of thoughts beside all known ones: 'OPEN CLOSE', a name such as <think>, or none."
        ),
    ] = "<think>",
    tokenizer: Annotated[
        str | None, typer.Option(help="A model whose tokenizer counts tokens that are not given.")
    ] = None,
    programs: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Run programs with their tests, contained; verdicts are kept in FILE."),
    ] = None,
    no_answer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="A text that stands for no answer, beside none, invalid, …; may be repeated."
        ),
    ] = None,
    store: StoreFile = None,
) -> None:
    """Import recorded samples as a pool, and print what was found.

    Nothing is imported if a row cannot be read.

    Usual fields are problem, sample, prompt, text, answer, reference, correct, tokens and scores. A row is one sample,
    or one problem with lists of samples. Answers alone are enough.
    """
    from tts.errors import ConfigError
    from tts.experiments.store.store import Store, default_store
    from tts_addons.logs.importing import Import, ImportSettings, rows_of
    from tts_addons.logs.source import Source, SourceFacts

    settings = ImportSettings(
        name=name or files[0].stem,
        task=task,
        model=model,
        verdicts=verdicts,
        tokenizer=tokenizer,
        thoughts=thoughts,
        programs=programs,
        no_answer=no_answer or (),
    )
    source = Source(fields=_fields(field or ()), form=form, rows=rows, filter=filter, metric=metric, scorer=scorer)
    facts = SourceFacts()
    try:
        with Import(rows_of(files, source, facts), settings, facts) as pool, Store(store or default_store()) as opened:
            pool.save(opened)
    except ConfigError as failure:
        failure.hint = failure.hint or "correct it, or leave it out; tts import --help lists forms and fields"
        raise
    typer.echo(visible("\n".join([f"imported {settings.name}", *pool.report.lines()])))


def _fields(options: list[str] | tuple[()]) -> dict[str, str | dict[str, str]]:
    """Return the names of fields in "text=completion" and "scores.main=reward".

    Raises:
        ConfigError: a text has no equals sign, or a field is given twice.
    """
    from tts.errors import ConfigError

    fields: dict[str, str | dict[str, str]] = {}
    for text in options:
        meaning, equals, name = text.partition("=")
        if not (equals and meaning and name):
            raise ConfigError(
                f"--field is {text!r}, but must be MEANING=FIELD", hint="for example --field text=completion"
            )
        group, dot, role = meaning.partition(".")
        if dot:
            key, siblings = role, fields.setdefault(group, {})  # "scores.main" stands in the dictionary "scores"
        else:
            key, siblings = meaning, fields
        if not isinstance(siblings, dict) or key in siblings:
            raise ConfigError(f"--field {meaning} was given twice, but can be given once", hint="leave one out")
        siblings[key] = name
    return fields
