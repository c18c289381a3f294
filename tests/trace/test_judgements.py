"""Prompts and replies of judges are in the trace, and so is what was too long to be shown, with its excess."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tts
from tests.support.browser import CHROMIUM, add_script, open_page
from tts.trace.trace import Trace

VERDICT = '{"reason": "it adds up", "score": 9}'


def writer(ask: tts.Ask) -> tts.Answer:
    return tts.Answer("so " * (60 if ask.seed % 2 else 3) + "\\boxed{4}", tokens=20)


def grader(ask: tts.Ask) -> tts.Answer:
    return tts.Answer(VERDICT, tokens=12)


def judged(verifier: str) -> tts.Solution:
    models = {"policy": writer, "grader": grader}
    with tts.Solver(models, verifier, task="math", strategy="best_of_n(n=4) | best") as solver:
        return solver.solve("What is 2 + 2?", 20_000)


def test_a_trace_has_what_a_judge_was_shown_and_what_it_said() -> None:
    solution = judged("judge(model='grader', votes=2, prompt_tokens=400)")
    judgements = solution.trace.judgements
    assert len(judgements) == 4
    assert {one.role for one in judgements} == {"main"}
    assert {one.replies for one in judgements} == {(VERDICT, VERDICT)}
    assert all("What is 2 + 2?" in one.prompt and "\\boxed{4}" in one.prompt for one in judgements)
    assert not any(one.over for one in judgements)


def test_what_was_too_long_says_by_how_much_in_trace_and_warning() -> None:
    solution = judged("judge(model='grader', votes=1, prompt_tokens=100)")
    long = [one for one in solution.trace.judgements if one.over]
    shown = [one for one in solution.trace.judgements if not one.over]
    assert 0 < len(long) < 4
    assert len(shown) + len(long) == 4
    assert all(one.replies == () and len(one.prompt.split()) == 100 + one.over for one in long)
    most = max(one.over for one in long)
    told = (
        f"{len(long)} of 4 prompts were longer than the judge's prompt_tokens=100, and not shown: the longest by "
        f"{most} tokens"
    )
    assert told in solution.warnings


def test_members_of_an_ensemble_are_judges_of_its_role() -> None:
    judge = "judge(model='grader', votes=1, prompt_tokens=400)"
    solution = judged(f"ensemble(members=[{judge!r}, {judge.replace('votes=1', 'votes=2')!r}])")
    assert sorted(len(one.replies) for one in solution.trace.judgements) == [1, 1, 1, 1, 2, 2, 2, 2]


def test_they_come_back_from_json_and_cost_nothing_where_there_are_none() -> None:
    trace = judged("judge(model='grader', votes=1, prompt_tokens=100)").trace
    assert Trace.from_json(trace.to_json()).judgements == trace.judgements
    plain = tts.solve("3 + 4 - 2", 400, model="toy", strategy="best_of_n(n=2) | majority").trace
    assert "judgements" not in plain.to_dict()


DRIVER = """
const log = {};
const all = [...document.querySelectorAll("#judgements details")];
log.count = all.length;
for (const one of all) one.open = true;
setTimeout(() => {
  log.text = document.getElementById("judgements").textContent;
  document.body.dataset.log = JSON.stringify(log);
}, 100);
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_the_page_shows_them(tmp_path: Path) -> None:
    trace = judged("judge(model='grader', votes=1, prompt_tokens=100)").trace
    page = open_page(add_script(trace.to_html(), DRIVER), tmp_path, size="1200,1600")
    assert page.log == []
    log = json.loads(page.body["data-log"])
    assert log["count"] == 4
    assert "not shown: too long by" in log["text"]
    assert VERDICT in log["text"]
    assert "What is 2 + 2?" in log["text"]
    plain = tts.solve("3 + 4 - 2", 400, model="toy", strategy="single").trace
    assert "hidden" in open_page(plain.to_html(), tmp_path, size="900,700").find_id("judgements").attributes
