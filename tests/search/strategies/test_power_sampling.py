"""Power sampling: the law of its chains on the toy, enumerated token by token, at any number of moves and in the limit."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.support.repeats import repeats
from tests.support.runs import check_books, make_run, searched, solve
from tts.backends.toy.backend import ToyBackend, ToyLanguage
from tts.budget.budget import Budget
from tts.search.strategies.power_sampling import log_ratio, logprobs
from tts.types import Trajectory

LANGUAGE = ToyLanguage(accuracy=0.5, mute=0.2)  # texts without an answer are one token shorter
PROBLEM, FIRST, CHANGES = "3 + 4 - 2", 3, (4, -2)
Text = tuple[tuple[str, float], ...]  # tokens, each with its probability behind those before


def every_text(value: int = FIRST, changes: tuple[int, ...] = CHANGES) -> list[Text]:
    """Return all texts of the language, written out by its definition."""
    if not changes:
        mute = LANGUAGE.mute
        return [(("A: ", 1 - mute), (str(value), 1.0), ("", 1.0)), (("?", mute), ("", 1.0))]
    sign, found = " - " if changes[0] < 0 else " + ", list[Text]()
    for offset, p in LANGUAGE.outcomes():
        result = value + changes[0] + offset
        line = ((str(value), 1.0), (sign, 1.0), (str(abs(changes[0])), 1.0), (" = ", 1.0), (str(result), p), ("\n", 1.0))
        found += [(*line, *rest) for rest in every_text(result, changes[1:])]
    return found


def mass(text: Text) -> float:
    return math.prod(p for _, p in text)


def kernel(states: list[Text], alpha: float) -> NDArray[np.float64]:
    """Return the chances of a move between texts, by the definition of Metropolis and Hastings."""
    moves = np.zeros((len(states), len(states)))
    for i, x in enumerate(states):
        for kept in range(len(x)):
            for j, y in enumerate(states):
                if j == i or y[:kept] != x[:kept]:
                    continue
                there, back = mass(y[kept:]) / len(x), mass(x[kept:]) / len(y)
                ratio = (mass(y) / mass(x)) ** alpha * back / there
                moves[i, j] += there * min(1.0, ratio)
        moves[i, i] = 1 - moves[i].sum()
    return moves


def chain_law(alpha: float, block: int, moves: int) -> dict[Text, float]:
    """Return the exact law of a chain: blocks with moves behind each, then moves among whole texts."""
    texts, limit = every_text(), 0
    law: dict[Text, float] = {(): 1.0}
    longest = max(map(len, texts))
    while any(len(text) == limit for text in law) and limit < longest:
        waiting = {text: p for text, p in law.items() if len(text) < limit}
        limit += block
        states = sorted({text[:limit] for text in texts})
        begun = np.array(
            [sum(p * mass(s[limit - block :]) for t, p in law.items() if t == s[: limit - block] and t not in waiting) for s in states]
        )
        after = begun @ np.linalg.matrix_power(kernel(states, alpha), moves)
        law = waiting.copy()
        for state, p in zip(states, after.tolist(), strict=True):
            law[state] = law.get(state, 0.0) + p
    last = np.array([law.get(text, 0.0) for text in texts]) @ np.linalg.matrix_power(kernel(texts, alpha), moves)
    return dict(zip(texts, last.tolist(), strict=True))


def powered(alpha: float) -> dict[Text, float]:
    weights = {text: mass(text) ** alpha for text in every_text()}
    return {text: weight / sum(weights.values()) for text, weight in weights.items()}


def apart(a: dict[Text, float], b: dict[Text, float]) -> float:
    return sum(abs(a[text] - b[text]) for text in a) / 2


def drawn(plan: str, seed: int = 0) -> Counter[str]:
    end = searched(make_run(PROBLEM, Budget(samples=10**6), plan, ToyBackend(LANGUAGE), seed=seed))
    assert end.solution.error is None
    assert end.search is not None
    check_books(end.search)
    return Counter(c.trajectory.full_text for c in end.solution.candidates)


def check_fit(seen: Counter[str], law: dict[Text, float]) -> None:
    by_text = {"".join(token for token, _ in text): p for text, p in law.items()}
    total = sum(seen.values())
    common = [text for text, p in by_text.items() if p * total >= 5]
    counts = [seen[text] for text in common] + [total - sum(seen[text] for text in common)]
    expected = [by_text[text] * total for text in common]
    expected.append(total - sum(expected))
    assert set(seen) <= set(by_text)
    assert stats.chisquare(counts, expected).pvalue > 1e-3  # one seed in a thousand would fail by chance; the seed is fixed


def test_the_oracle_is_a_law_whose_moves_keep_the_power() -> None:
    texts = every_text()
    assert math.fsum(map(mass, texts)) == pytest.approx(1)
    assert len({len(text) for text in texts}) == 2
    target = np.array(list(powered(3.0).values()))
    assert target @ kernel(texts, 3.0) == pytest.approx(target)
    assert chain_law(3.0, 5, 0) == pytest.approx({text: mass(text) for text in texts})


@pytest.mark.parametrize(("alpha", "block", "moves"), [(3.0, 5, 1), (4.0, 8, 2)])
def test_a_chain_of_few_moves_follows_its_exact_law(alpha: float, block: int, moves: int) -> None:
    law = chain_law(alpha, block, moves)
    assert min(apart(law, powered(alpha)), apart(law, powered(1.0))) > 0.2, "the test could not tell the laws apart"
    check_fit(drawn(f"power_sampling(alpha={alpha}, block={block}, moves={moves}, chains=400)"), law)


@repeats(200, 300, "chains")
def test_many_moves_bring_whole_texts_to_the_power_of_their_law(chains: int) -> None:
    assert apart(chain_law(2.0, 8, 8), powered(2.0)) < 0.002
    seen = drawn(f"power_sampling(alpha=2.0, block=8, moves=8, chains={chains})")
    check_fit(seen, powered(2.0))
    with pytest.raises(AssertionError):
        check_fit(seen, powered(1.0))


@repeats(150, 400, "chains")
def test_the_power_one_is_the_law_of_the_model_after_any_moves(chains: int) -> None:
    check_fit(drawn(f"power_sampling(alpha=1, block=7, moves=2, chains={chains})"), powered(1.0))


@pytest.mark.parametrize("block", [1, 4, 100])
def test_without_moves_a_chain_is_a_plain_sample(block: int) -> None:
    for seed in range(5):
        plan = f"power_sampling(block={block}, moves=0, chains=1)"
        texts = [
            solve(make_run(PROBLEM, 500, p, ToyBackend(LANGUAGE), seed=seed)).candidates[0].trajectory.full_text for p in (plan, "single")
        ]
        assert texts[0] == texts[1]


def test_the_ratio_by_hand() -> None:
    # x = 2 + 1 tokens, x' = 2 + 3; p(x'_2:) / p(x_2:) = .5 .5 / .1, to the power 2; |x| / |x'| = 3 / 5
    ratio = log_ratio([math.log(0.5), math.log(0.5), 0.0], [math.log(0.1)], 2, 3.0)
    assert math.exp(ratio) == pytest.approx((0.25 / 0.1) ** 2 * 3 / 5)


def test_a_path_without_its_log_probabilities_has_none() -> None:
    root = Trajectory(None, "", (), (), "active", 0, 0, 0, 0)
    assert logprobs(Trajectory(root, "ab", (1, 2), (-1.0,), "finished", 0, 1, 2, 1)) is None
    assert logprobs(Trajectory(root, "ab", (1, 2), (-1.0, -2.0), "finished", 0, 1, 2, 1)) == (-1.0, -2.0)


def test_every_proposal_is_charged_and_the_dead_are_dropped() -> None:
    end = searched(make_run(PROBLEM, 20000, "power_sampling(moves=8, block=6, chains=3)", ToyBackend(LANGUAGE)))
    assert end.search is not None
    tree = end.search.tree
    written = sum(call.usage.generated_tokens for call in end.search.account.ledger.calls)
    assert end.solution.usage.generated_tokens == written > 3 * 15 * 4
    assert len(end.solution.candidates) == 3
    live = {node for t in end.solution.candidates for node in t.trajectory.path}
    assert not {t.node for t in live} & tree.pruned
    rejected = [t for t in tree.nodes if t.status == "finished" and t.node not in {c.trajectory.node for c in end.solution.candidates}]
    assert rejected
    assert {t.node for t in rejected} <= tree.pruned


def test_chains_that_a_limit_keeps_from_beginning_have_not_failed() -> None:
    solution = searched(make_run(PROBLEM, Budget(tokens=300), "power_sampling(chains=1000)", ToyBackend(LANGUAGE))).solution
    assert (solution.stopped_by, solution.failures) == ("budget: tokens", {})
    assert solution.candidates


def test_chains_that_the_budget_cuts_are_candidates_only_where_none_is_whole() -> None:
    short = searched(make_run(PROBLEM, Budget(samples=4), "power_sampling(moves=20, block=100)", ToyBackend(LANGUAGE)))
    assert [c.index for c in short.solution.candidates] == [0]
    assert short.solution.stopped_by == "budget: samples"
    plan = "power_sampling(moves=5, block=100)"
    ten, twelve = (searched(make_run(PROBLEM, Budget(samples=n), plan, ToyBackend(LANGUAGE))).solution for n in (22, 30))
    assert [len(s.candidates) for s in (ten, twelve)] == [2, 2]  # a chain is eleven samples
    assert [c.trajectory.full_text for c in ten.candidates] == [c.trajectory.full_text for c in twelve.candidates]


def test_without_a_block_a_plain_solution_shows_how_long_a_quarter_is_and_has_no_vote() -> None:
    end = searched(make_run(PROBLEM, Budget(samples=10**4), "power_sampling(chains=3, moves=2)", ToyBackend(LANGUAGE)))
    assert end.search is not None
    check_books(end.search)
    first, *chains = sorted(end.solution.candidates, key=lambda c: c.index)
    assert len(chains) == 3
    assert first.weight == 0.0
    assert all(c.weight != 0.0 for c in chains)
    plain, block, *_ = [call.usage.generated_tokens for call in end.search.account.ledger.calls if call.kind == "expand"]
    assert plain == first.trajectory.num_tokens
    assert block == 3 * math.ceil(plain / 4), "a quarter of what was seen, and not of the task's constant"
    alone = searched(make_run(PROBLEM, Budget(samples=2), "power_sampling", ToyBackend(LANGUAGE))).solution
    assert alone.answer is not None
