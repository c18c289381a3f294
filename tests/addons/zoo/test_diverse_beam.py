"""Diverse beam search on the toy: beams by log-probability, and groups that differ (algorithm B21)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.runs import Solved, check_books, make_run, solve_and_show
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.types import Trajectory
from tts_addons.zoo.diverse_beam import path_logprob

PROBLEM = "10 - 7 + 5 - 4"


def run(plan: str, seed: int = 0, accuracy: float = 0.6) -> Solved:
    end = solve_and_show(
        make_run(PROBLEM, Budget(samples=4000), plan, ToyBackend(ToyLanguage(accuracy=accuracy)), seed=seed)
    )
    assert end.search is not None
    assert end.solution.error is None
    check_books(end.search)
    return end


def levels(end: Solved) -> dict[int, list[Trajectory]]:
    """Return the steps that were drawn, by depth, in the order of the tree."""
    found: dict[int, list[Trajectory]] = {}
    for t in end.search.tree.nodes:  # type: ignore[union-attr]
        if t.parent is not None:
            found.setdefault(t.depth, []).append(t)
    return found


def kept(end: Solved) -> list[Trajectory]:
    """Return the paths that were kept to their end."""
    return [c.trajectory for c in end.search.candidates if c.weight != 0.0]  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(4))
def test_one_group_keeps_the_paths_of_the_highest_log_probability_at_every_level(seed: int) -> None:
    end = run("diverse_beam(n=3, groups=1, branching=4)", seed)
    paths = kept(end)
    assert len(paths) == 3
    for depth, steps in levels(end).items():
        chosen = {t.path[depth].node for t in paths if len(t.path) > depth}
        chosen |= {t.parent.node for t in levels(end).get(depth + 1, []) if t.parent is not None}
        left = [t for t in steps if t.node not in chosen]
        best = {t.text: path_logprob(t) for t in steps if t.node in chosen}
        assert all(path_logprob(t) <= min(best.values()) + 1e-9 or t.text in best for t in left if best)


@pytest.mark.parametrize("seed", range(4))
def test_the_first_group_is_an_ordinary_beam_of_its_width_for_every_strength(seed: int) -> None:
    """Its choices see no penalty; the draws of its rows do not depend on other groups' choices of the first level."""
    firsts = set()
    for strength in (0.0, 0.7, 1e6):
        end = run(f"diverse_beam(n=2, groups=2, branching=6, strength={strength})", seed)
        first = levels(end)[1][:6]  # the rows of the first group come first
        best = max(first, key=path_logprob)
        assert any(t.path[1].text == best.text for t in kept(end))
        firsts.add(best.text)
    assert len(firsts) == 1


def test_a_large_strength_makes_groups_differ_at_the_first_step_and_none_makes_them_alike() -> None:
    differ = {0.0: 0, 1e6: 0}
    for strength in differ:
        for seed in range(8):
            end = run(f"diverse_beam(n=2, groups=2, branching=12, strength={strength})", seed)
            differ[strength] += len({t.path[1].text for t in kept(end)}) == 2
    assert differ[1e6] == 8
    assert differ[0.0] == 0  # with twelve draws each, both groups see the likeliest first step


def test_the_penalty_counts_the_beams_that_chose_a_step() -> None:
    """Of four groups of one beam, each takes another of the steps that were drawn, in the order of their
    probability.
    """
    end = run("diverse_beam(n=4, groups=4, branching=40, strength=1e6)", accuracy=0.4)
    texts = [t.path[1].text for t in kept(end)]
    drawn = {t.text: path_logprob(t) for t in levels(end)[1]}
    assert len(set(texts)) == min(4, len(drawn))
    assert Counter(texts) == Counter(sorted(drawn, key=lambda text: -drawn[text])[:4])


def test_it_is_as_wide_as_it_is_asked_to_be() -> None:
    for n, groups in ((1, 3), (5, 2), (6, 3)):
        assert len(kept(run(f"diverse_beam(n={n}, groups={groups}, branching=8)", accuracy=0.4))) <= n
    assert len(kept(run("diverse_beam(n=6, groups=3, branching=8)", accuracy=0.4))) >= 3
