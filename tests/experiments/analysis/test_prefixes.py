"""One pass over an order gives, for each size, what a run of that size alone gives."""

from __future__ import annotations

import numpy as np
import pytest

import tts
from tests.experiments.pools import written
from tts.errors import ConfigError
from tts.experiments.analysis.pools import ProblemPool
from tts.experiments.analysis.recorded_search import RecordedSearch, ReplayOutcome
from tts.search.parts import STOP_RULES
from tts.search.plan import parse

SELECTIONS = ("majority", "majority(truncated='drop')", "weighted", "best", "best_of_majority")
RULES = (
    "",
    "never | ",
    "posterior | ",
    "unanimous(window=2) | ",
    "in_a_row(k=2) | ",
    "entropy(least=2) | ",
    "score_threshold(threshold=0.8) | ",
)


def pool(seed: int, num: int = 14) -> ProblemPool:
    rng = np.random.default_rng(seed)
    kinds = rng.choice([None, 0, 1, 2, 3], num, p=[0.1, 0.4, 0.25, 0.15, 0.1])
    return written(
        *(
            (kind, float(score), int(tokens))
            for kind, score, tokens in zip(kinds, rng.random(num), rng.integers(1, 9, num), strict=True)
        )
    )


def alone(of: ProblemPool, plan: str, order: list[int]) -> ReplayOutcome:
    return RecordedSearch(of, parse(plan)).run(order)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_beginnings_of_an_order_equal_runs_of_their_own(rule: str, selection: str):
    plan = f"best_of_n | {rule}{selection}"
    for seed in range(4):
        of = pool(seed)
        order = np.random.default_rng(seed).permutation(14).tolist()
        found = RecordedSearch(of, parse(plan)).prefixes(order, [9, 1, 14, 4, 2])
        assert found == [alone(of, plan, order[:count]) for count in (9, 1, 14, 4, 2)]


def test_the_counted_majority_is_the_selection_itself():
    """With equal scores the weighted vote is the majority, and is computed by the selection of a live search."""
    for seed in range(20):
        of = pool(seed)
        even = written(*((one.answer_class, 1.0, one.tokens) for one in of.drawn))
        counted = RecordedSearch(of, parse("best_of_n | majority")).prefixes(range(14), range(15))
        chosen = RecordedSearch(even, parse("best_of_n | weighted")).prefixes(range(14), range(15))
        assert [one.answer for one in counted] == [one.answer for one in chosen]


def test_every_stop_rule_by_votes_is_replayed_in_one_pass():
    """A rule that reads counts sees the same whether they are kept up to date or made anew."""
    for name in STOP_RULES.names():
        rule = STOP_RULES.get(name)()
        if rule.order == "finished":  # all samples are begun, whichever it waits for
            continue
        for seed in range(3):
            of, order = pool(seed), list(range(14))
            search = RecordedSearch(of, parse(f"best_of_n | {rule} | majority"))
            candidates = search._candidates(order)
            first = next((count for count in range(1, 15) if rule.should_stop(candidates[:count]) is not None), 14)
            assert search.prefixes(order, [14])[0].samples == first, name


def test_samples_that_are_written_at_once_cost_no_more_than_the_last_one_that_is_waited_for():
    of = written((0, 1.0, 50), (1, 1.0, 10), (0, 1.0, 40), (1, 1.0, 20), (0, 1.0, 30), (2, 1.0, 20))
    search = RecordedSearch(of, parse("best_of_n | first_finish(k=3) | majority"))
    two, six = search.prefixes(range(6), [2, 6])
    assert (two.stopped_by, two.samples, two.generated_tokens, two.path_tokens) == ("done", 2, 60, 50)
    assert (six.stopped_by, six.samples, six.path_tokens) == ("first finish", 6, 20)
    assert six.generated_tokens == 20 + 10 + 20 + 20 + 20 + 20
    assert (six.answer, six.right) == ("answer 1", False)  # of 10, 20 and 20 tokens: 1, 1, 2


def test_a_pool_without_counts_of_tokens_is_refused_by_a_rule_that_needs_them():
    of = written((0, 1.0, 0), (1, 1.0, 0))
    with pytest.raises(ConfigError, match=r"first_finish orders.*'p'"):
        RecordedSearch(of, parse("best_of_n | first_finish | majority")).run([0, 1])


@pytest.mark.parametrize("plan", ["shortest", "last_finish", "first_finish(k=2) | majority"])
def test_a_replay_by_lengths_says_that_some_are_estimated(plan: str, caplog: pytest.LogCaptureFixture):
    rows = [{"problem": "p", "sample": i, "text": f"\\boxed{{{i % 2}}}", "reference": "1"} for i in range(4)]
    some = [row | {"tokens": 9} if i % 2 else row for i, row in enumerate(rows)]
    for given, is_said in ((some, True), ([row | {"tokens": 9} for row in rows], False)):
        caplog.clear()
        tts.Pool.from_rows(given, name="p", task="math").replay([f"best_of_n | {plan}", "best_of_n | majority"], [2])
        assert ("estimated" in caplog.text) == is_said
        assert "majority," not in caplog.text
