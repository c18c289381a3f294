"""`tts replay`: what strategies would have made of recorded samples, at any size, for no new token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tts.cli.boundary import Debug, boundary, warn
from tts.cli.runs import StoreFile
from tts.cli.show import SEED

if TYPE_CHECKING:
    from tts.experiments.curves import Curve
    from tts.experiments.pool import Pool


def replay(  # noqa: PLR0913 - the options of the command
    study: Annotated[str | None, typer.Argument(metavar="[STUDY]", help="A name or id of `tts runs`; else the newest.")] = None,
    *,
    strategy: Annotated[
        list[str] | None, typer.Option(help="best_of_n | weighted, with any stop rule, or pass@k; may be repeated. Else those that fit.")
    ] = None,
    n: Annotated[str, typer.Option("--n", metavar="N,N,…", help="Sizes in samples; else powers of two.")] = "",
    tokens: Annotated[str, typer.Option(metavar="N,N,…", help="Sizes in tokens of a problem instead.")] = "",
    first: Annotated[bool, typer.Option("--first", help="Only the first samples, as one live run has them; no average.")] = False,
    draws: Annotated[int, typer.Option(help="Subsets of a pool, where there is no closed form.")] = 100,
    by_group: Annotated[bool, typer.Option("--by-group", help="Curves of each group of problems, such as their difficulty.")] = False,
    laws: Annotated[bool, typer.Option("--laws", help="Say what laws fit, where samples stop paying, what differences need.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw them too: FILE.png, FILE.svg or FILE.pdf.")] = None,
    x: Annotated[str, typer.Option(help="What the figure has accuracy against: samples, tokens, generated_tokens.")] = "samples",
    store: StoreFile = None,
    debug: Debug = False,
) -> None:
    """Print what strategies come to on the samples that a study has recorded (`tts sample`).

    A point is the mean over all subsets of each problem's samples: exactly where that can be had, else over some, with the error.
    """
    with boundary(debug=debug):
        from tts.cli.terminal import visible
        from tts.errors import ConfigError
        from tts.experiments import plots, points
        from tts.experiments.pool import pools_of
        from tts.experiments.replay import replay as replayed
        from tts.experiments.replay import unanswered
        from tts.experiments.store import Store, default_store

        if as_csv + as_json + laws > 1:
            raise ConfigError("of --csv, --json and --laws several were asked for, but only one can be", hint="leave one out")
        if n and tokens:
            raise ConfigError("--n and --tokens were asked for at once, but only one can be", hint="leave one out")
        sizes = _sizes("--tokens", tokens) if tokens else _sizes("--n", n) if n else []
        if out is not None:
            plots.check_path(out)
        with Store.existing(store or default_store()) as opened:
            found = pools_of(opened.results(opened.find(study).id))
        if found.passed_over:
            reasons = "; ".join(f"{count:,} {reason}" for reason, count in found.passed_over.items())
            warn(f"{sum(found.passed_over.values()):,} results are no pools of samples: {reasons}")
        curves = replayed(
            found.pools, strategy or _fitting(found.pools), sizes or _powers(found.pools), unit="tokens" if tokens else "samples",
            first=first, draws=draws, by_group=by_group, seed=SEED,
        )  # fmt: skip
        if problems := unanswered(found.pools):
            warn(f"{len(problems):,} of the problems have no reference answer and are left out, such as {problems[0]!r}")
        table = points.points_of(curves)
        text = (points.as_csv if as_csv else points.as_json if as_json else points.as_text)(table).rstrip("\n")
        typer.echo(text if as_csv or as_json else visible(text))
        if laws:
            _print_laws([one.curve for one in curves])
        if out is not None:
            plots.save(plots.draw([one.curve for one in curves], x), out)


def _print_laws(curves: Sequence[Curve]) -> None:
    import numpy as np

    from tts.cli.terminal import visible
    from tts.experiments.laws import in_words

    typer.echo("\n" + visible("\n".join(in_words(curves, np.random.default_rng(SEED)))))


def _sizes(option: str, text: str) -> list[int]:
    """Return the sizes of "1,2,4".

    Raises:
        ConfigError: one is no whole number.
    """
    from tts.errors import ConfigError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigError(f"{option} is {text!r}, but must be whole numbers with commas between", hint=f"for example {option} 1,2,4,8")
    return [int(part) for part in parts]


def _fitting(pools: Sequence[Pool]) -> list[str]:
    """Return what is replayed unless something else is asked for: a perfect selection, a vote, and what goes by scores if there are any."""
    from tts.experiments.replay import COVERAGE

    by_scores = ("best", "weighted", "best_of_majority") if all(pool.has("main") for pool in pools) else ()
    return [COVERAGE, *(f"best_of_n | {selection}" for selection in ("majority", *by_scores))]


def _powers(pools: Sequence[Pool]) -> list[int]:
    """Return the powers of two that the largest pool has samples for."""
    return [2**i for i in range(max(len(pool.drawn) for pool in pools).bit_length())]
