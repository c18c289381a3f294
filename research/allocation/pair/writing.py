"""The comparison as a page and its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path

from research.allocation.pair import divisions, restarting, studies
from research.allocation.pair.measuring import (
    AUTO,
    SHARES,
    SIZES,
    UNIFORM,
    USD_IN,
    USD_OUT,
    WORTH,
    Compared,
)
from research.allocation.pair.restarting import Restarts
from research.methods.claims import points
from research.methods.writing import NEVER, code, share
from research.stamps import stamp_line
from tts.allocator import shipped
from tts.experiments.analysis.comparing import amount, describe_result
from tts.experiments.analysis.curves import AXES, Curve
from tts.experiments.output import plots

RESOURCES = ("tokens", "flops", "work_seconds", "seconds", "usd", "kv_bytes")
# share of the gain of 16 samples, and the mean samples that it is reached with (algorithm A13)
_WANTED, _AT = 0.74, 1.2


def write(compared: Compared, restarts: Sequence[Restarts], folder: Path) -> None:
    """Write the page and its figures."""
    for name, figure in (
        ("allocator", plots.draw(list(compared.curves.values()), "tokens", bands=False, front=False)),
        *((f"allocator_{axis}", plots.draw(compared.live, axis, front=False)) for axis in RESOURCES[1:]),
    ):
        for ending in (".png", ".svg") if name == "allocator" else (".svg",):
            plots.save(figure, folder / f"{name}{ending}")
    (folder / "allocator.md").write_text("\n".join(page(compared, restarts)) + "\n", encoding="utf-8")


def page(compared: Compared, restarts: Sequence[Restarts]) -> Iterator[str]:
    """Yield the lines of the page."""
    model = shipped.load("pocket")
    begins = "as the others" if model.first is None else f"with a sample at temperature {model.first:g}"
    yield from (
        "# The allocator on the embedded pair",
        "",
        stamp_line(
            "python -m research.allocation.pair",
            "; the performance model by `python -m research.allocation.pair --fit`",
        ),
        "",
        f"{compared.problems} plain expressions of 1 to 10 operations, {compared.seeds} seeds. `{AUTO}` is "
        f"`solve_many` with one total for all problems, of {', '.join(f'{each:g}' for each in SHARES)} plain samples' "
        f"worth a problem, at {WORTH} tokens each; live. Its performance model is of {model.problems} problems of the "
        f"validation split, by which it begins each problem {begins} and votes. Best-of-N is replayed from "
        f"{studies.POOL[studies.TEST]} samples a seed, `rebase` and the greedy `single` are live. p is corrected over "
        "the totals.",
        "",
        "## What is asked of it",
        "",
        *_requirements(compared, restarts),
        "",
        "## Accuracy against all tokens, verifier included",
        "",
        "![Accuracy against all tokens, the allocator and fixed sizes](allocator.svg)",
        "",
        *_points(compared),
        "",
        "The share of the tokens that `auto` takes for equal accuracy:",
        "",
        *_gains(compared),
        "",
        "## Against others at the same tokens",
        "",
        "*Best single* is the best strategy at these tokens in hindsight. The others divide the same samples: *A14* "
        f"by {divisions.BINS} bins of the success rate, known (*oracle*) or predicted from {divisions.PILOTS} paid "
        "samples; the *static oracle* by true success rates. One half of a problem's samples decides, and the other "
        "is counted.",
        "",
        *_comparisons(compared),
        "",
        "## Which resource binds",
        "",
        *_resources(compared),
        "",
        "## The policy's own word on a fresh start",
        "",
        f"Live, by `self_evaluation`: the share of what {restarting.MOST} samples gain on one. {NEVER}: they are no "
        "better than one.",
        "",
        *_restarts(restarts),
        "",
        "## What deciding costs",
        "",
        *_timings(compared),
    )


def _requirements(compared: Compared, restarts: Sequence[Restarts]) -> Iterator[str]:
    greedy = next(of for of in compared.live if of.label.startswith("single"))
    alone = f"{100 * greedy.accuracy[0].value:.1f} % for {amount(float(greedy.cost('tokens')[0]))} tokens"
    yield (
        "- Fewer tokens than uniform best-of-N for equal accuracy: **seen, and not the division's**. The first "
        f"sample is greedy, and reaches {alone} alone."
    )
    worse = [one for one in compared.single if one.p < 0.05 and one.difference.mean.value < 0]
    verdict = "**holds**" if not worse else f"**missed** at {', '.join(f'{one.share:g}' for one in worse)}"
    most = max(one.detectable for one in compared.single)
    yield (
        f"- Never significantly worse than the best single strategy: {verdict} (detectable: {100 * most:.1f} points "
        f"at most; runs without an answer: {max(compared.unanswered):.0%} at most)."
    )
    yield (
        f"- With self-evaluation, {_WANTED:.0%} of the gain of {restarting.MOST} samples with {_AT} on average: "
        f"{_restart_verdict(restarts)}."
    )
    yield (
        f"- Of the gain of a vote of {SIZES[-1]} plain samples over one sample, `{AUTO}` reaches "
        f"{_early_shares(compared)} samples' worth of tokens."
    )


def _restart_verdict(rows: Sequence[Restarts]) -> str:
    one, *_, every = sorted(rows, key=lambda each: each.samples)
    gained = (
        f"{100 * one.accuracy:.1f} % with one, {100 * every.accuracy:.1f} % with the best of {restarting.MOST} "
        "by self-evaluation"
    )
    if every.accuracy <= one.accuracy:
        return f"**missed**: there is no such gain here ({gained}); the card says why"
    cheap = any(each.share.value >= _WANTED and each.samples <= _AT for each in rows)
    return f"**{'holds' if cheap else 'missed'}** ({gained})"


def _early_shares(compared: Compared) -> str:
    votes = compared.curves[UNIFORM].accuracy
    least, most = votes[0].value, votes[-1].value
    return ", ".join(
        f"{(one.mine - least) / (most - least):.0%} with {one.tokens / WORTH:.1f}" for one in compared.uniform
    )


def _points(compared: Compared) -> Iterator[str]:
    yield "| run | tokens a problem | accuracy |"
    yield "| :-- | --: | :-- |"
    for name, curve in compared.curves.items():
        for cost, found in zip(curve.cost("tokens").tolist(), curve.accuracy, strict=True):
            yield f"| {code(name)} | {cost:.0f} | {share(found)} |"


def _gains(compared: Compared) -> Iterator[str]:
    yield "| total | of | times the tokens |"
    yield "| --: | :-- | :-- |"
    for base, of in compared.gains.items():
        for total, one in of.items():
            words = describe_result(one, "tokens").replace(" times", "").replace(" the tokens", "")
            yield f"| {total:g} | {code(base)} | {words.replace('[nan, nan]', '[unknown]')} |"


def _comparisons(compared: Compared) -> Iterator[str]:
    yield "| against | total | spent | auto | other | difference | p | detectable |"
    yield "| :-- | --: | --: | --: | --: | :-- | --: | --: |"
    every = {"uniform": compared.uniform, "best single": compared.single, **compared.others}
    for name, one in ((name, one) for name, rows in every.items() for one in rows):
        cells = (
            f"{name}: {code(one.name)}" if one.name != name else name,
            f"{one.share:g}",
            f"{one.tokens:.0f}",
            f"{100 * one.mine:.1f}",
            f"{100 * one.theirs:.1f}",
            points(one.difference.mean).removesuffix(" points"),
            "< 0.001" if one.p < 0.001 else f"{one.p:.3f}",
            f"{100 * one.detectable:.1f}",
        )
        yield f"| {' | '.join(cells)} |"


def _resources(compared: Compared) -> Iterator[str]:
    own = next(curve for curve in compared.live if curve.label.startswith(AUTO))
    best = {axis: [_best_point(compared.live, axis, float(cost)) for cost in own.cost(axis)] for axis in RESOURCES}
    counted = {tuple(label for label, *_ in found) for axis, found in best.items() if not axis.endswith("seconds")}
    yield (
        f"The best method {'depends' if len(counted) > 1 else 'does not depend'} on the resource here, time left "
        f"aside, which was measured beside other work. The table has the most accurate live run that costs at most "
        f"what `{AUTO}` does. Dollars are at invented prices ({1e6 * USD_IN:g} a million tokens read, "
        f"{1e6 * USD_OUT:g} written). "
        + ", ".join(f"[{AXES[axis].unit}](allocator_{axis}.svg)" for axis in RESOURCES[1:])
        + " have figures."
    )
    yield from ("", "| total | resource | most accurate | accuracy | costs |", "| --: | :-- | :-- | --: | --: |")
    for place, each in enumerate(SHARES):
        for axis, found in best.items():
            label, reached, costs = found[place]
            yield f"| {each:g} | {AXES[axis].unit} | {code(label)} | {reached} | {costs} |"


def _best_point(curves: Sequence[Curve], axis: str, most: float) -> tuple[str, str, str]:
    """Return the label, the accuracy and the cost of the most accurate point that costs at most so much."""
    reached = [
        (found.value, -cost, curve.label)
        for curve in curves
        for cost, found in zip(curve.cost(axis).tolist(), curve.accuracy, strict=True)
        if cost <= most * (1 + 1e-9)
    ]
    value, cost, label = max(reached)
    return label, f"{100 * value:.1f}", amount(-cost)


def _restarts(rows: Sequence[Restarts]) -> Iterator[str]:
    yield "| strategy | samples | tokens | accuracy | share of the gain |"
    yield "| :-- | --: | --: | --: | :-- |"
    for one in rows:
        gain = NEVER if isnan(one.share.value) else f"{one.share.value:.2f} [{one.share.low:.2f}, {one.share.high:.2f}]"
        yield f"| {code(one.strategy)} | {one.samples:.2f} | {one.tokens:.0f} | {100 * one.accuracy:.1f} | {gain} |"


def _timings(compared: Compared) -> Iterator[str]:
    yield "| run | seconds | waves | deciding, seconds | a problem, ms | share of the run | of the total spent |"
    yield "| :-- | --: | --: | --: | --: | --: | --: |"
    for name, one in compared.deciding.items():
        each, part = 1000 * one["deciding"] / one["problems"], one["deciding"] / one["seconds"]
        yield (
            f"| {name} | {one['seconds']:.0f} | {one['waves']} | {one['deciding']:.2f} | {each:.2f} | {part:.2%} | "
            f"{one['spent']:.1%} |"
        )
