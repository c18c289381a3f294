"""Power sampling: the law of its chains on a small language, enumerated, at any number of moves and in the limit."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.letters import (
    LONGEST,
    TEXTS,
    Letters,
    Text,
    law_at_temperature,
    letter_law,
    mass,
    power_law,
    total_variation,
)
from tests.support.repeats import check_law, repeats
from tests.support.runs import search_one
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.types import Trajectory
from tts_addons.zoo.power_sampling import Chance, chances, log_ratio

LANGUAGE = ToyLanguage(accuracy=0.5, mute=0.2)  # texts without an answer are one token shorter
PROBLEM = "3 + 4 - 2"


def kernel(states: list[Text], alpha: float) -> NDArray[np.float64]:
    """Return the chances of a move between texts, by the definition of Metropolis and Hastings."""
    moves = np.zeros((len(states), len(states)))
    for i, x in enumerate(states):
        for kept in range(len(x)):
            for j, y in enumerate(states):
                if j == i or y[:kept] != x[:kept]:
                    continue
                there, back = (
                    mass(letter_law, y, kept, 1 / alpha) / len(x),
                    mass(letter_law, x, kept, 1 / alpha) / len(y),
                )
                ratio = (mass(letter_law, y) / mass(letter_law, x)) ** alpha * back / there
                moves[i, j] += there * min(1.0, ratio)
        moves[i, i] = 1 - moves[i].sum()
    return moves


def chain_law(alpha: float, block: int, moves: int) -> dict[Text, float]:
    """Return the exact law of a chain: blocks, with moves behind each that does not end the text, then moves among
    whole texts.
    """
    law: dict[Text, float] = {(): 1.0}
    limit, longest = 0, LONGEST + 1
    while any(text not in TEXTS for text in law) and limit < longest:
        ended = {text: p for text, p in law.items() if text in TEXTS}
        before, limit = limit, limit + block
        states = sorted({text[:limit] for text in TEXTS if len(text) > before})
        begun = np.array([law.get(s[:before], 0.0) * mass(letter_law, s, before, 1 / alpha) for s in states])
        going = np.array([s not in TEXTS for s in states])
        moved = (begun * going) @ np.linalg.matrix_power(kernel(states, alpha), moves) + begun * ~going
        law = ended
        for state, p in zip(states, moved.tolist(), strict=True):
            law[state] = law.get(state, 0.0) + p
    last = np.array([law.get(text, 0.0) for text in TEXTS]) @ np.linalg.matrix_power(kernel(TEXTS, alpha), moves)
    return dict(zip(TEXTS, last.tolist(), strict=True))


def drawn(plan: str, seed: int = 0) -> Counter[str]:
    end = search_one("write", Budget(samples=10**6), plan, Letters(letter_law), seed=seed)
    return Counter(c.trajectory.full_text for c in end.solution.candidates)


def check_fit(seen: Counter[str], law: dict[Text, float]) -> None:
    check_law(seen, {"".join(text): p for text, p in law.items()})


def test_the_oracle_is_a_law_whose_moves_keep_the_power() -> None:
    assert math.fsum(mass(letter_law, text) for text in TEXTS) == pytest.approx(1)
    assert {len(text) for text in TEXTS} == {2, 3, 4, 5}
    target = np.array(list(power_law(3.0).values()))
    assert target @ kernel(TEXTS, 3.0) == pytest.approx(target)
    assert chain_law(3.0, 2, 0) == pytest.approx(law_at_temperature(3.0))
    assert total_variation(law_at_temperature(3.0), power_law(3.0)) > 0.2, "tempering each letter is another law"


@pytest.mark.slow
@pytest.mark.parametrize(("alpha", "block", "moves"), [(3.0, 1, 1), (4.0, 3, 1), (3.0, 2, 0)])
def test_a_chain_of_few_moves_follows_its_exact_law(alpha: float, block: int, moves: int) -> None:
    law = chain_law(alpha, block, moves)
    assert min(total_variation(law, power_law(alpha)), total_variation(law, power_law(1.0))) > 0.1, (
        "the test could not tell the laws apart"
    )
    check_fit(drawn(f"power_sampling(alpha={alpha}, block={block}, moves={moves}, chains=400)"), law)


@pytest.mark.slow
@repeats(200, 300, "chains")
def test_many_moves_bring_whole_texts_to_the_power_of_their_law(chains: int) -> None:
    assert total_variation(chain_law(2.0, 2, 20), power_law(2.0)) < 0.01
    seen = drawn(f"power_sampling(alpha=2.0, block=2, moves=20, chains={chains})")
    check_fit(seen, power_law(2.0))
    for law in (power_law(1.0), law_at_temperature(2.0)):
        with pytest.raises(AssertionError):
            check_fit(seen, law)


@repeats(150, 400, "chains")
def test_the_power_one_is_the_law_of_the_model_after_any_moves(chains: int) -> None:
    check_fit(drawn(f"power_sampling(alpha=1, block=2, moves=2, chains={chains})"), power_law(1.0))


def test_the_ratio_by_hand() -> None:
    # x = 2 + 1 tokens, x' = 2 + 3; (p(x') / p(x))^3 = (.25 / .1)^3, q(x) / q(x') = .2 / (.8 .5), |x| / |x'| = 3 / 5
    new = [Chance(math.log(0.5), math.log(0.8)), Chance(math.log(0.5), math.log(0.5)), Chance(0.0, 0.0)]
    ratio = log_ratio(new, [Chance(math.log(0.1), math.log(0.2))], 2, 3.0)
    assert math.exp(ratio) == pytest.approx((0.25 / 0.1) ** 3 * 0.2 / (0.8 * 0.5) * 3 / 5)


def test_a_path_without_both_log_probabilities_has_none() -> None:
    root = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)
    whole = Trajectory(root, "ab", (1, 2), (-1.0, -2.0), "finished", 0, 1, 2, 1, sampling_logprobs=(-0.5, -1.0))
    assert chances(whole) == (Chance(-1.0, -0.5), Chance(-2.0, -1.0))
    for short in ({"logprobs": (-1.0,)}, {"sampling_logprobs": ()}, {"token_ids": (1,)}):
        assert chances(dataclasses.replace(whole, **short)) is None


@pytest.mark.slow
@pytest.mark.parametrize(("length", "chains"), [(40, 40), (400, 10), (800, 6)])
def test_long_texts_come_all_of_the_way_from_p_to_its_power(length: int, chains: int) -> None:
    letters = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
    law = np.log(list(letters.values()))
    plan = f"power_sampling(alpha=4, block={math.ceil(length / 4)}, chains={chains})"
    # independent letters: p^4 is that of each
    backend = Letters(lambda text: letters if len(text) < length - 1 else {"": 1.0})
    end = search_one("write", Budget(samples=10**6), plan, backend)
    powered = np.exp(4 * law) / np.exp(4 * law).sum()
    plain, sharp = float(np.exp(law) @ law), float(powered @ law)
    written = chains * (length - 1)
    seen = (
        sum(value for c in end.solution.candidates for piece in c.trajectory.path for value in piece.logprobs) / written
    )
    error = math.sqrt(float(powered @ (law - sharp) ** 2) / written)
    assert error < 0.03 * (sharp - plain), "the test could not tell the laws apart"
    assert abs(seen - sharp) < 4 * error, f"{(seen - plain) / (sharp - plain):.2f} of the way"
    cost = end.solution.usage.generated_tokens / (chains * length)
    assert cost == pytest.approx(13.5, rel=0.1), "plain samples a chain"


def test_every_proposal_is_charged_and_the_dead_are_dropped() -> None:
    end = search_one(PROBLEM, 20000, "power_sampling(moves=8, block=6, chains=3)", ToyBackend(LANGUAGE))
    tree = end.search.tree
    written = sum(call.usage.generated_tokens for call in end.search.account.ledger.calls)
    assert end.solution.usage.generated_tokens == written > 3 * 15 * 4
    assert len(end.solution.candidates) == 3
    live = {node for t in end.solution.candidates for node in t.trajectory.path}
    assert not {t.node for t in live} & tree.pruned
    rejected = [
        t
        for t in tree.nodes
        if t.status == "finished" and t.node not in {c.trajectory.node for c in end.solution.candidates}
    ]
    assert rejected
    assert {t.node for t in rejected} <= tree.pruned


def test_chains_that_a_limit_keeps_from_beginning_have_not_failed() -> None:
    solution = search_one(PROBLEM, Budget(tokens=300), "power_sampling(chains=1000)", ToyBackend(LANGUAGE)).solution
    assert (solution.stopped_by, solution.failures) == ("budget: tokens", {})
    assert solution.candidates


def test_chains_that_the_budget_cuts_are_candidates_only_where_none_is_whole() -> None:
    short = search_one(PROBLEM, Budget(samples=4), "power_sampling(moves=20, block=100)", ToyBackend(LANGUAGE))
    assert [c.index for c in short.solution.candidates] == [0]
    assert short.solution.stopped_by == "budget: samples"
    plan = "power_sampling(moves=5, block=100)"
    ten, twelve = (search_one(PROBLEM, Budget(samples=n), plan, ToyBackend(LANGUAGE)).solution for n in (12, 17))
    assert [len(s.candidates) for s in (ten, twelve)] == [2, 2]  # a chain is six samples
    assert [c.trajectory.full_text for c in ten.candidates] == [c.trajectory.full_text for c in twelve.candidates]


def test_without_a_block_a_plain_solution_shows_how_long_a_quarter_is_and_has_no_vote() -> None:
    end = search_one(PROBLEM, Budget(samples=10**4), "power_sampling(chains=3, moves=2)", ToyBackend(LANGUAGE))
    first, *chains = sorted(end.solution.candidates, key=lambda c: c.index)
    assert len(chains) == 3
    assert first.weight == 0.0
    assert all(c.weight != 0.0 for c in chains)
    plain, block, *_ = [
        call.usage.generated_tokens for call in end.search.account.ledger.calls if call.kind == "expand"
    ]
    assert plain == first.trajectory.num_tokens
    assert block == 3 * math.ceil(plain / 4), "a quarter of what was seen, and not of the task's constant"
    alone = search_one(PROBLEM, Budget(samples=2), "power_sampling", ToyBackend(LANGUAGE)).solution
    assert alone.answer is not None
