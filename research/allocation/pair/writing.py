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
    Against,
    Compared,
    totals,
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
    text = "\n".join(page(compared, restarts)).replace("[nan, nan]", "[unknown: not every draw of problems reaches it]")
    (folder / "allocator.md").write_text(text + "\n", encoding="utf-8")


def page(compared: Compared, restarts: Sequence[Restarts]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield from _head(compared)
    yield from ("", "## What is asked of it", "", *_requirements(compared, restarts))
    yield from (
        "",
        "## Accuracy against all tokens, verifier included",
        "",
        "![Accuracy against all tokens, the allocator and fixed sizes](allocator.svg)",
        "",
        *_points(compared),
    )
    yield from ("", "## Against uniform best-of-N, at the same tokens", "", *_comparison(compared.uniform))
    yield from ("", "## Against the best single strategy in hindsight, at the same tokens", "")
    yield from (f"For each total, this is the best of: {', '.join(code(name) for name in compared.singles)}.", "")
    yield from _comparison(compared.single)
    yield from ("", "## Against divisions that know less, or more", "")
    for name, of in compared.others.items():
        yield from (f"**{name}**", "", *_comparison(of), "")
    yield from ("## Which resource binds", "", *_resources(compared))
    yield from ("", "## The policy's own word on a fresh start", "", *_restarts(restarts))
    yield from ("", "## What deciding costs", "", *_timings(compared))


def _head(compared: Compared) -> Iterator[str]:
    model = shipped.load("pocket")
    yield "# The allocator on the embedded pair"
    yield ""
    yield stamp_line(
        "python -m research.allocation.pair", "; the performance model by `python -m research.allocation.pair --fit`"
    )
    yield ""
    yield (
        f"- Problems: {compared.problems} of the test split, plain expressions of 1 to 10 operations, equally "
        f"many of each; {compared.seeds} seeds. The performance model was fitted to {model.problems} problems of "
        "the validation split. No expression is in both splits."
    )
    yield (
        f"- `{AUTO}`: `solve_many` with one total for all problems, {', '.join(map(str, totals()))} tokens a problem "
        f"({', '.join(f'{each:g}' for each in SHARES)} plain samples' worth), generated and verifier tokens together; "
        "live. It begins each "
        f"problem {'as the others' if model.first is None else f'with a sample at temperature {model.first:g}, which is better'}. "  # noqa: E501
        f"Its selection is that of {code(next(iter(model.curves)))}, which reaches more for its cost on the "
        "validation split."
    )
    yield (
        "- Uniform best-of-N draws N samples of each problem. Its values are replayed, as means over subsets of "
        f"{studies.POOL[studies.TEST]} samples a seed. With `weighted` and `best` the tokens of the process "
        "model are counted. `rebase` and the greedy `single` are live."
    )
    yield (
        f"- Other divisions of the same samples: algorithm A14 divides by {divisions.BINS} quantile bins of the "
        f"success rate. The rate is the true one, or predicted from {divisions.PILOTS} samples, which are paid "
        "for. Each fold is divided by the bins of the other fold. The static oracle divides by the true success "
        "rate of each problem. Random gives each sample to a random problem. All divisions vote as the "
        "allocator does. One half of each problem's samples decides, and the other half is counted."
    )
    yield (
        "- Accuracy has 95 % intervals over problems. Differences are at the same tokens, and paired by "
        "problem. p is from a sign-flip test, corrected by Holm over the totals. *Detectable* is the smallest "
        "difference that this number of problems shows four times in five."
    )


def _requirements(compared: Compared, restarts: Sequence[Restarts]) -> Iterator[str]:
    greedy = next(of for of in compared.live if of.label.startswith("single"))
    alone = f"{100 * greedy.accuracy[0].value:.1f} % for {amount(float(greedy.cost('tokens')[0]))} tokens"
    yield (
        "- Fewer tokens than uniform best-of-N for equal accuracy: **seen, and not the division's**. The first "
        f"sample is greedy, and reaches {alone} alone. The samples beyond it add at most the difference of the "
        "rows of `auto` to this."
    )
    for base, of in compared.gains.items():
        yield (
            f"  - against {code(base)}: "
            f"{'; '.join(describe_result(one, 'tokens') for one in of) or 'no accuracy that both reach'}"
        )
    worse = [one for one in compared.single if one.p < 0.05 and one.difference.mean.value < 0]
    verdict = "**holds**" if not worse else f"**missed** at {', '.join(f'{one.share:g}' for one in worse)}"
    most = max(one.detectable for one in compared.single)
    yield (
        f"- Never significantly worse than the best single strategy: {verdict} (detectable: {100 * most:.1f} points "
        "at most)."
    )
    silent = "; ".join(f"{each:.0%} at {share:g}" for share, each in zip(SHARES, compared.unanswered, strict=True))
    yield f"  - runs without an answer: {silent}."
    yield (
        f"- With self-evaluation, {_WANTED:.0%} of the gain of {restarting.MOST} samples with {_AT} on average: "
        f"{_restart_verdict(restarts)}."
    )
    yield (
        f"  - the share that the allocator reaches of the gain of a vote of {SIZES[-1]} plain samples over one "
        f"sample: {_early_shares(compared)}."
    )
    oracle = compared.others["static oracle"]
    yield "- Distance to the static oracle, at the same tokens: " + "; ".join(
        f"{points(one.difference.mean)} at {amount(one.tokens)}" for one in oracle
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
    return "; ".join(
        f"{(one.mine - least) / (most - least):.0%} with {one.tokens / WORTH:.1f} samples' worth of tokens"
        for one in compared.uniform
    )


def _points(compared: Compared) -> Iterator[str]:
    yield "| | tokens a problem | accuracy |"
    yield "| :-- | --: | :-- |"
    for name, curve in compared.curves.items():
        for cost, found in zip(curve.cost("tokens").tolist(), curve.accuracy, strict=True):
            yield f"| {code(name)} | {cost:.0f} | {share(found)} |"


def _comparison(rows: Sequence[Against]) -> Iterator[str]:
    yield "| total, samples' worth | tokens spent | auto | other | which | difference | p (Holm) | detectable |"
    yield "| --: | --: | --: | --: | :-- | :-- | --: | --: |"
    for one in rows:
        p = "< 0.001" if one.p < 0.001 else f"{one.p:.3f}"
        cells = (
            f"{one.share:g}",
            f"{one.tokens:.0f}",
            f"{100 * one.mine:.1f}",
            f"{100 * one.theirs:.1f}",
            code(one.name),
            points(one.difference.mean).removesuffix(" points"),
            p,
            f"{100 * one.detectable:.1f}",
        )
        yield f"| {' | '.join(cells)} |"


def _resources(compared: Compared) -> Iterator[str]:
    yield (
        "For each resource, the table has the most accurate live run whose mean cost is at most that of the "
        "allocator at its totals. Best-of-N has 16 samples here, as the pools have. Keys and values are counted "
        "at their peak. Seconds were measured beside other work on the machine. Dollars are at invented prices "
        f"({1e6 * USD_IN:g} a million tokens read, {1e6 * USD_OUT:g} a million written)."
    )
    yield ""
    yield f"| resource | {' | '.join(f'as {AUTO} at {each:g}' for each in SHARES)} |"
    yield f"| :-- | {' | '.join(':--' for _ in SHARES)} |"
    own = next(curve for curve in compared.live if curve.label.startswith(AUTO))
    best = {axis: [_best_point(compared.live, axis, float(cost)) for cost in own.cost(axis)] for axis in RESOURCES}
    for axis, found in best.items():
        yield f"| {AXES[axis].title} | {' | '.join(said for _, said in found)} |"
    yield ""
    counted = {tuple(label for label, _ in found) for axis, found in best.items() if not axis.endswith("seconds")}
    yield (
        f"The best method {'depends' if len(counted) > 1 else 'does not depend'} on the resource here. Time is left "
        "out of this comparison, because it was measured beside other work."
    )
    yield ""
    yield from (f"![Accuracy against {AXES[axis].title}](allocator_{axis}.svg)" for axis in RESOURCES[1:])


def _best_point(curves: Sequence[Curve], axis: str, most: float) -> tuple[str, str]:
    """Return the label of the most accurate point that costs at most so much, and its text."""
    reached = [
        (found.value, -cost, curve.label)
        for curve in curves
        for cost, found in zip(curve.cost(axis).tolist(), curve.accuracy, strict=True)
        if cost <= most * (1 + 1e-9)
    ]
    value, cost, label = max(reached)
    return label, f"{code(label)}: {100 * value:.1f} % for {amount(-cost)}"


def _restarts(rows: Sequence[Restarts]) -> Iterator[str]:
    yield (
        "These runs are live, with the verifier `self_evaluation`. The gain over one sample is given as a share "
        f"of the gain of {restarting.MOST} samples, with a 95 % interval over problems. The sign {NEVER} means "
        f"that {restarting.MOST} samples are no better than one."
    )
    yield ""
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
