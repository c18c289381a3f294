"""Claims on countdowns (`research/claims`): what is said of given figures, and the command at its smallest size."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("research.claims", reason="research is no part of the wheel")

from research.claims import plans, self_evaluation
from research.claims.claims import FAILS, HOLDS, UNSEEN, Claim, claims
from research.claims.measuring import Choices, Measured
from research.claims.reasons import reasons
from research.claims.testing import correct, difference, figure_of
from tts.experiments.analysis.comparing import gain
from tts.experiments.analysis.curves import Curve, accuracies
from tts.search.plan import parse

PROBLEMS = 200
CHARGED = {"ets(n=8, charge=0.5) | weighted": [21.0, 60.0], "ets(n=8, charge=8) | weighted": [20.0, 40.0]}
METHODS = (*plans.SAMPLED, *plans.STEPWISE)


def curve_of(solved: Sequence[float], cost: Sequence[float]) -> Curve:
    """Return a curve that solves the first problems, as large a share of them as is given at each point."""
    shares = np.array([np.arange(PROBLEMS) < share * PROBLEMS for share in solved], float)
    costs = {axis: np.array(cost, float) for axis in ("generated_tokens", "tokens", "flops")}
    names = [f"{i:04}" for i in range(PROBLEMS)]
    estimates = accuracies(shares, np.random.default_rng(0))
    return Curve(
        label="",
        dataset="countdown",
        model="",
        costs=costs,
        accuracy=estimates,
        shares=shares,
        problems=names,
        seeds=[0],
    )


def measured(
    solved: Mapping[str, Sequence[float]],
    pools: tuple[Sequence[float], Sequence[float]] = ((0.1,) * 6, (0.1,) * 6),
    live: float = 60,
) -> Measured:
    """Return a comparison in which methods solve what is said: "beam" by every verifier, "exact beam" by that one."""
    default = (0.1, 0.15, 0.2)
    curves = {
        (verifier, method): curve_of(solved.get(f"{verifier} {method}", solved.get(method, default)), plans.BUDGETS)
        for verifier in plans.VERIFIERS
        for method in METHODS
    }
    curves[plans.LEARNT, "auto"] = curve_of(solved.get("auto", default), plans.BUDGETS)
    kept = {
        (verifier, method, budget): {str(i): tokens for i in range(PROBLEMS)}
        for verifier in plans.VERIFIERS
        for budget in plans.BUDGETS
        for method, tokens in (("rebase", 100.0), ("ets", live))
    }
    replayed = {"best": curve_of(pools[0], plans.POOL_SIZES), "alpha 0.1": curve_of(pools[1], plans.POOL_SIZES)}
    return Measured(curves=curves, ruled={}, kept=kept, pools=replayed, problems=PROBLEMS, seeds=1)


def made(of: Measured, folder: Path) -> dict[str, Claim]:
    chosen = Choices(problems=1, seeds=1, plans={}, stepwise="beam", single="beam", alpha=0.1)
    return {claim.text[:30]: claim for claim in claims(of, chosen, folder)}


def verdict(of: Measured, folder: Path, start: str) -> str:
    (found,) = (claim.verdict for text, claim in made(of, folder).items() if text.startswith(start))
    return found


def test_ten_points_are_asked_and_exact_verdicts_explain_what_does_not_hold(tmp_path: Path) -> None:
    assert verdict(measured({"beam": (0.1, 0.15, 0.4)}), tmp_path, "(a)") == HOLDS
    assert verdict(measured({"beam": (0.1, 0.15, 0.28)}), tmp_path, "(a)") == FAILS
    explained = verdict(measured({"exact beam": (0.1, 0.15, 0.4)}), tmp_path, "(a)")
    assert explained == f"{FAILS}; explained by the verifier: with exact verdicts it does"


def test_ratios_are_those_of_gain_at_the_accuracy_that_both_reach(tmp_path: Path) -> None:
    fast = measured({"a_star": (0.2, 0.2, 0.2)})
    (text,) = (text for text in made(fast, tmp_path) if text.startswith("(b)"))
    known = gain(
        fast.curves["learnt", "a_star"], fast.curves["learnt", "best_of_n"], "tokens", rng=np.random.default_rng(0)
    )
    assert known is not None
    assert made(fast, tmp_path)[text].tests[0].found.value == pytest.approx(known.ratio.value) == pytest.approx(4)
    assert made(fast, tmp_path)[text].verdict == HOLDS
    assert verdict(measured({}), tmp_path, "(b)") == FAILS


def test_particles_lose_least_only_where_all_others_lose_more(tmp_path: Path) -> None:
    exact = {f"exact {name}": (0.5, 0.5, 0.5) for name in plans.STEPWISE}
    assert (
        verdict(measured({**exact, "particle_filter": (0.4, 0.4, 0.4)}), tmp_path, "(c) particle filtering loses")
        == HOLDS
    )
    both = {**exact, "particle_filter": (0.4, 0.4, 0.4), "beam": (0.45, 0.45, 0.45)}
    assert verdict(measured(both), tmp_path, "(c) particle filtering loses") == FAILS
    assert (
        verdict(measured({"learnt particle_filter": (0.2, 0.2, 0.2)}), tmp_path, "(c) particle filtering needs")
        == HOLDS
    )


def test_ets_keeps_accuracy_within_two_points_and_saves_live_tokens(tmp_path: Path) -> None:
    equal = measured({})
    assert verdict(equal, tmp_path, "(d) ETS keeps") == verdict(equal, tmp_path, "(d) ETS has") == HOLDS
    assert verdict(measured({"ets": (0.1, 0.15, 0.1)}), tmp_path, "(d) ETS keeps") == FAILS
    assert verdict(measured({}, live=80), tmp_path, "(d) ETS has") == FAILS


def test_best_of_majority_is_seen_only_where_best_of_n_falls(tmp_path: Path) -> None:
    falling, rising = (0.1, 0.2, 0.3, 0.4, 0.3, 0.2), (0.1, 0.2, 0.3, 0.4, 0.4, 0.4)
    assert verdict(measured({}, (falling, rising)), tmp_path, "(e)") == HOLDS
    assert verdict(measured({}, (falling, falling)), tmp_path, "(e)") == FAILS
    assert verdict(measured({}, (rising, rising)), tmp_path, "(e)").startswith(UNSEEN)


def test_what_self_evaluation_keeps_is_read_from_its_file(tmp_path: Path) -> None:
    assert verdict(measured({}), tmp_path, "(g)").startswith(UNSEEN)
    figures = {"one": [0.2] * 50, "stopped": [0.38] * 50, "many": [0.4] * 50, "samples": [1.2] * 50}
    (tmp_path / self_evaluation.FILE).write_text(json.dumps(figures))
    claim = next(claim for text, claim in made(measured({}), tmp_path).items() if text.startswith("(g)"))
    assert claim.tests[0].found.value == pytest.approx(0.9)
    assert claim.verdict == HOLDS


def test_runs_stop_at_the_threshold_in_the_order_of_a_ring() -> None:
    scores, right = np.array([0.1, 0.9, 0.3, 0.2]), np.array([0.0, 1.0, 0.0, 1.0])
    shares, drawn = self_evaluation.replay_stops(scores, right, 0.8)
    assert (shares, drawn) == (1.0, (2 + 1 + 4 + 3) / 4)
    assert self_evaluation.replay_stops(scores, right, 0.0) == (0.5, 1.0)
    assert self_evaluation.replay_stops(scores, right, 1.0) == (1.0, 4.0)
    least = self_evaluation.choose_threshold([(scores, right)])
    # the sample scored 0.1 is the only one that does not end a run
    assert self_evaluation.replay_stops(scores, right, least)[1] == 1.25


def test_p_values_are_one_sided_and_corrected_over_all_claims() -> None:
    better = np.concatenate([np.ones(30), np.zeros(70)])
    up, down = difference("up", better, np.zeros(100), 10.0), difference("down", np.zeros(100), better, 10.0)
    assert up.p < 0.001
    assert down.p > 0.999
    ((first, second), (third,)) = correct([[up, down], [up]])
    assert first.corrected == pytest.approx(3 * up.p)
    assert first.holds
    assert not second.holds
    assert third.corrected == first.corrected
    unknown = figure_of("ratio", lambda counts: np.full(len(counts), np.nan), 10, 2.0, "times")
    assert unknown.p == 1


def test_every_plan_is_one_and_ets_differs_from_rebase_in_its_charge_alone() -> None:
    tried = [*plans.SAMPLED.values(), *(plan for grid in plans.GRIDS.values() for plan in grid)]
    for plan in (*tried, *(ets for rebase in plans.GRIDS["rebase"] for ets in plans.ets_grid(rebase))):
        assert parse(plan).strategy is not None
        assert parse(plans.add_rules(plan)).selection is not None
    assert (
        plans.ets_grid("rebase(n=8, balance_temperature=0.2) | weighted")[1]
        == "ets(n=8, balance_temperature=0.2, charge=1) | weighted"
    )


def test_the_command_writes_its_choices_and_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    from research.claims import __main__ as command

    monkeypatch.setattr(plans, "BUDGETS", (30, 60))
    monkeypatch.setattr(
        plans, "VERIFIERS", {name: plans.VERIFIERS[name] for name in ("learnt", "exact", "flipped 15 %")}
    )
    places = ("--store", str(tmp_path / "store.db"), "--out", str(tmp_path))
    for options in (
        ("--choose", "--problems", "2"),
        ("--auto", "--problems", "2", "--seeds", "1"),
        ("--problems", "2", "--seeds", "1"),
    ):
        monkeypatch.setattr(sys, "argv", ["claims", *options, *places])
        command.main()
    page = (tmp_path / "claims.md").read_text()
    assert "Made by `python -m research.claims --problems 2 --seeds 1` (result version " in page
    for letter in "abcdefg":
        assert f"- ({letter}) " in page
    for verifier in ("learnt", "exact", "flipped 15 %"):
        assert f"| {verifier} | particle_filter | 60 | " in page
    assert page.count("| learnt | beam | 30 |") == 2  # and with the rules
    about_auto = (tmp_path / "claims_auto.md").read_text()
    assert about_auto.count("- (f) ") == 2
    assert "| learnt | auto | 60 | " in about_auto
    assert "## Why" in page
    assert "(d): a charge of 8 has " in page


def test_reasons_say_what_stands_in_the_way_of_each_claim(tmp_path: Path) -> None:
    exact = {f"exact {name}": (0.5, 0.5, 0.5) for name in plans.STEPWISE}
    flipped = {
        f"{verdicts} beam": (share,) * 3 for verdicts, share in zip(plans.FLIPPED, (0.45, 0.3, 0.2), strict=True)
    }
    found = measured({**exact, **flipped, "learnt beam": (0.1, 0.15, 0.375), "majority": (0.1, 0.1, 0.1)})
    chosen = Choices(
        problems=1, seeds=1, plans={}, stepwise="beam", single="beam", alpha=0.1, tried={"beam": [9.0], **CHARGED}
    )
    (tmp_path / self_evaluation.FILE).write_text(
        json.dumps({"one": [0.2] * 50, "stopped": [0.3] * 50, "many": [0.4] * 50})
    )
    text = "\n".join(reasons(dataclasses.replace(found, ruled=found.curves), chosen, tmp_path))
    assert "beam 10%" in text  # halfway between 5 and 15 % in accuracy
    assert "beam: +40.0 points, 88% of it flipped 5 %, 50% of it flipped 15 %, 25% of it flipped 30 %" in text
    assert "a charge of 8 has 1.50 times fewer live tokens than the smallest, but 20.0 % in place of " in text
    assert "best-of-N that ends at the first right answer: 1 times [1, 1] the" in text
    assert "gains +20.0 [+20.0, +20.0] points on one sample." in text
    assert "stops early gains +10.0 [+10.0, +10.0] points" in text
