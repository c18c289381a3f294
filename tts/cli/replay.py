"""`tts replay`: evaluates strategies on recorded samples at any size, without new tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tts.cli.runs import AsCsv, AsJson, StoreFile, StudyName, TrustPlaces, form_of, print_table
from tts.cli.terminal import table_width

if TYPE_CHECKING:
    from tts.experiments.analysis.replay import Prices, ReplayedCurve


def replay(  # noqa: PLR0913 - the options of the command
    study: StudyName = None,
    *,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="best_of_n | weighted, with any stop rule, auto, pass@k, pass^k or 'random choice'; may be repeated. "
            "Else those that fit."
        ),
    ] = None,
    n: Annotated[str, typer.Option("--n", metavar="N,N,…", help="Sizes in samples; else powers of two.")] = "",
    order: Annotated[
        str,
        typer.Option(
            help="recorded: only the first samples, as one live run draws them; all: the mean over orders; both: one "
            "beside the other."
        ),
    ] = "all",
    total: Annotated[bool, typer.Option("--total", help="auto divides the sum of all problems' sizes.")] = False,
    prices: Annotated[
        str, typer.Option(metavar="IN,OUT", help="Of prompts and output: 0.15/M,0.60/M, for costs in dollars.")
    ] = "",
    draws: Annotated[int, typer.Option(help="Orders of a pool, where there is no closed form.")] = 200,
    by_group: Annotated[
        bool, typer.Option("--by-group", help="Curves of each group of problems, such as their difficulty.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw accuracy against samples.")] = None,
    as_csv: AsCsv = False,
    as_json: AsJson = False,
    store: StoreFile = None,
    _: TrustPlaces = False,
) -> None:
    """Print the accuracy of strategies on the recorded samples of a study (`tts sample`).

    A point is the mean over all subsets of each problem's samples: exact where possible, else over random subsets, with
    the error.
    """
    from tts.experiments.analysis.points import points_of
    from tts.experiments.api import Study
    from tts.experiments.output import plots, tables

    if plot is not None:
        plots.check_path(plot)
        plots.style_context()
    form = form_of(csv=as_csv, json=as_json)
    sizes = _sizes(n)
    stored = Study.from_store(study, store=store)
    options: dict[str, Any] = {"draws": draws, "by_group": by_group, "shared": total, "prices": _prices(prices)}
    replays: list[ReplayedCurve] = []
    for is_recorded in _orders(order):
        replays += stored.replay(strategy or (), sizes, first=is_recorded, **options)
    print_table(tables.format_rows(points_of(replays), form, table_width()), form)
    if plot is not None:
        curves = [replayed.curve for replayed in replays]
        if order == "both":
            curves = [replace(one.curve, label=f"{one.curve.label}, {one.order} order") for one in replays]
        plots.save(plots.draw(curves, "samples"), plot)


def _orders(order: str) -> list[bool]:
    """Return a flag for each order to evaluate: True for the recorded order, False for the mean over all.

    Raises:
        ConfigError: the order is unknown.
    """
    from tts.errors import unknown_name

    flags_by_order = {"recorded": [True], "all": [False], "both": [True, False]}
    if order not in flags_by_order:
        raise unknown_name("order", order, flags_by_order)
    return flags_by_order[order]


def _prices(text: str) -> Prices | None:
    """Return the prices of "0.15/M,0.60/M"; None: the text is empty.

    Raises:
        ConfigError: there are not two prices, or a price does not say for how many tokens.
    """
    from tts.errors import ConfigError
    from tts.experiments.analysis.replay import Prices
    from tts.models.record import ModelRecord
    from tts.models.registry import with_settings

    if not text:
        return None
    price_texts = text.split(",")
    if len(price_texts) != 2:
        raise ConfigError(
            f"--prices is {text!r}, but must be the price of prompts and that of output",
            hint="for example 0.15/M,0.60/M",
        )
    input_price, output_price = price_texts
    record = with_settings(
        ModelRecord(name="of the pool", backend=""), {"usd_in": input_price, "usd_out": output_price}
    )
    return Prices(usd_in=float(record.usd_in or 0), usd_out=float(record.usd_out or 0))


def _sizes(text: str) -> list[int]:
    """Return the sizes of "1,2,4"; none of an empty text.

    Raises:
        ConfigError: a size is not a whole number.
    """
    from tts.errors import ConfigError

    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isdecimal() for part in parts):
        raise ConfigError(
            f"--n is {text!r}, but must be whole numbers with commas between", hint="for example --n 1,2,4,8"
        )
    return [int(part) for part in parts]
