"""`tts fit`: a performance model from recorded runs, by which `auto` chooses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tts.cli.boundary import Debug, boundary, warn
from tts.cli.runs import StoreFile
from tts.cli.show import SEED

if TYPE_CHECKING:
    from tts.allocator.performance import PerformanceModel
    from tts.experiments.fit import Measured


def fit(
    studies: Annotated[
        list[str] | None, typer.Argument(metavar="[STUDY]…", help="Names or ids of `tts runs`, of one model; else the newest.")
    ] = None,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The performance model, JSON.")] = Path("performance.json"),
    store: StoreFile = None,
    debug: Debug = False,
) -> None:
    """Fit what each strategy reaches, by how hard a problem is and by what is spent, and say how well that is predicted.

    Difficulty is read from recorded samples (`tts sample`), strategies from these and from runs on the same problems. Then
    --strategy "auto(model='FILE')" chooses by it; on other problems than it was fitted to.
    """
    with boundary(debug=debug):
        from tts.experiments import config
        from tts.experiments.fit import Measured, of_what
        from tts.experiments.store import Store, default_store

        with Store.existing(store or default_store()) as opened:
            found = [opened.find(name) for name in studies or [None]]
            for study in found:
                if (finished := study.done + study.failed) < study.cells:
                    warn(f"study {study.name}: {finished:,} of {study.cells:,} cells are done, so the model is of a part of it")
            measured = Measured.of((result for study in found for result in opened.results(study.id)), seed=SEED)
        policy, task = of_what(config.study(found[0].runs[-1].snapshot["configuration"]), measured.cell)
        model = measured.fitted(model=policy, task=task, source=", ".join(study.name for study in found), seed=SEED)
        model.save(out)
        _print(measured, model)
        typer.echo(f"\n{out}")


def _print(measured: Measured, model: PerformanceModel) -> None:
    """Write to standard output what was fitted, and how well it predicts."""
    from tts.cli.terminal import visible
    from tts.experiments.fit import PARTS, PILOTS
    from tts.experiments.table import text_of

    rate = model.population.weight @ model.population.rate
    facts = {
        "model": model.model,
        "task": model.task,
        "verifiers": ", ".join(f"{role}={text}" for role, text in model.verifiers.items()) or "none",
        "problems": f"{model.problems:,}, one sample right {rate:.1%} of the time",
        "sample": f"{model.tokens:.1f} tokens",
        "first sample": "as the others" if model.first is None else f"at temperature {model.first:g}, which is better",
        "held out": f"a {PARTS}th of the problems at a time, predicted from {PILOTS} samples each",
    }
    margin = max(map(len, facts))
    rows = measured.held_out(SEED)
    columns = {
        "strategy": [row.strategy for row in rows],
        "samples": [f"{row.sizes[0]:.3g} to {row.sizes[1]:.3g}" for row in rows],
        "accuracy": [f"{row.measured:.1%}" for row in rows],
        "predicted": [f"{row.predicted:.1%}" for row in rows],
        "calibration error": [f"{row.error:.1%}" for row in rows],
        "kept": ["yes" if row.strategy in model.curves else "no, plain samples are as good" for row in rows],
    }
    typer.echo("\n".join(f"{title:<{margin}}  {visible(fact)}" for title, fact in facts.items()))
    typer.echo(f"\n{visible(text_of(columns))}")
