"""What is known before the spend is said before the spend: the plan, the task, and scores that nobody can pay or
show.
"""

from __future__ import annotations

import logging

import pytest

import tts
from tts._core.logs import RepeatLimit, VisibleRecords
from tts.errors import ConfigError
from tts.solver.checks import LOG

TAKES = "the judge's question and the problem take 72 tokens"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the log, with the first call of the model among them."""
    monkeypatch.setattr(LOG, "filters", [VisibleRecords(), RepeatLimit(1, 60.0)])  # of this test alone
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    LOG.addHandler(handler)
    caplog.set_level(logging.WARNING, LOG.name)
    yield lines
    LOG.removeHandler(handler)


def model(said: list[str], reply: str = "The answer is 7."):
    def write(ask: tts.Ask) -> tts.Answer:
        said.append("call")
        return tts.Answer(reply, tokens=5)

    return write


def test_one_greedy_sample_is_said_before_it_is_drawn(said):
    solution = tts.solve("Write a haiku.", 500, backend=model(said))
    assert [line.startswith("no strategy was given, so one greedy sample is drawn") for line in said] == [True, False]
    assert said[0] in solution.warnings


def test_a_loop_over_problems_has_one_line(said):
    for name in ("a haiku", "an ode"):
        tts.solve(f"Write {name}.", 500, backend=model(said))
    assert [line for line in said if line != "call"] == said[:1]


@pytest.mark.parametrize(
    ("verifier", "line"),
    [
        (
            "judge(prompt_tokens=20)",
            f"no solution can be scored: {TAKES}, and its prompt may have 20; give judge(prompt_tokens=584)",
        ),
        ("genrm(prompt_tokens=20, verdict='words')", "no solution can be scored: the genrm's question"),
        ("multi_aspect(prompt_tokens=20)", "no solution can be scored: the multi_aspect's question"),
        (
            "judge(prompt_tokens=120)",
            f"long solutions cannot be scored: {TAKES}, a solution about 256, and its prompt may have 120",
        ),
    ],
)
def test_prompts_of_judges_that_do_not_fit_are_said_before_the_first_call(said, verifier, line):
    tts.solve("Write 3 poems", 20_000, backend=model(said), verifier=verifier, strategy="best_of_n(n=1) | best")
    assert said[0].startswith(line)


def test_scores_that_the_budget_cannot_pay_are_said_before_the_first_call(said):
    solution = tts.solve("3 + 4 - 2", 500, model="toy", verifier="judge", strategy="best_of_n | best")
    assert said == [
        "scores may not be paid: a solution takes about 64 tokens, and a score by judge up to 1,792 more, but the "
        "budget is tokens=500; "
        "give a larger one, or a cheaper verifier, such as judge(votes=1, max_tokens=128, prompt_tokens=512)"
    ]
    assert any("could not be scored within the budget" in line for line in solution.warnings)  # as was said
    assert solution.warnings[0] == said[0]  # who sees no log, sees it with the solution
    said.clear()
    tts.solve(
        "3 + 4 - 2",
        500,
        model="toy",
        verifier="judge(votes=1, max_tokens=64, prompt_tokens=200)",
        strategy="best_of_n | best",
    )
    assert said == []


def test_many_problems_have_the_lines_once_before_all(said):
    tts.solve_many(["Write a haiku.", "Write an ode."], each=500, backend=model(said))
    assert said[0].startswith("no strategy was given")
    assert said[1:] == ["call", "call"]


def test_a_study_says_them_once_a_row_before_its_first_cell(said, tmp_path):
    study = tts.Study(
        name="judged",
        models="toy",
        problems={"dataset": "arithmetic", "limit": 2},
        strategies=["best_of_n | best"],
        budgets=[400, 500, 8000],
        verifiers={"main": "judge"},
    )
    study.run(tmp_path / "store.sqlite", progress=False)
    assert [line.partition("but the budget is ")[2].partition(";")[0] for line in said] == ["tokens=400", "tokens=500"]
    assert said[0].endswith("(best_of_n | best under tokens=400)")


@pytest.mark.parametrize("strategy", ["beam", "best_of_n | best", "auto(verifier='main')"])
def test_a_missing_verifier_is_refused_with_the_cure(strategy):
    with pytest.raises(ConfigError) as refused:
        tts.solve("3 + 4", 500, model="toy", strategy=strategy)
    assert "--verifier judge in commands" in refused.value.hint
