"""Trials of agents: folders of Harbor and trajectories of mini-swe-agent, as their published models have them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

import tts
from tests.experiments.trials import atif_step, diff, trajectory, trial
from tts.cli.app import app
from tts.errors import ConfigError


def samples(pool: Any) -> list[Any]:
    return [one for problem in pool.problems for one in problem.drawn]


def test_a_job_of_harbor_is_a_pool_with_tokens_dollars_and_rewards(tmp_path):
    job = tmp_path / "job"
    trial(job, "dates__b", 0.0, started_at="2026-01-02T03:04:06")
    trial(
        job, "dates__c", started_at="2026-01-02T03:04:05", final={"total_completion_tokens": 71, "total_cost_usd": 0.04}
    )
    trial(job, "years__a", task="years")
    (job / "result.json").write_text(json.dumps({"id": "job", "n_total_trials": 3}))
    pool = tts.Pool.from_files(job)
    assert [(problem.cell.problem, len(problem.drawn)) for problem in pool.problems] == [("dates", 2), ("years", 1)]
    assert [(one.answer, one.right, one.tokens, one.usd) for one in samples(pool)] == [
        ("Done by dates__c.", True, 71, 0.04),
        ("Done by dates__b.", False, 70, 0.03),
        ("Done by years__a.", True, 70, 0.03),
    ]
    assert pool.problems[0].cell.model == "terminus/qwen"
    assert "6 steps of agents" in pool.report.lines()


def test_a_reward_between_0_and_1_is_a_score_and_others_have_their_names(tmp_path):
    trial(tmp_path, "a", 0.5)
    trial(tmp_path, "b", verifier_result={"rewards": {"style": 0.25, "reward": 1}})
    first, second = samples(tts.Pool.from_files(tmp_path))
    assert (first.right, first.scores["main"]) == (None, 0.5)
    assert (second.right, second.scores["style"]) == (True, 0.25)


def test_a_trial_that_failed_is_left_out_unless_it_was_only_late(tmp_path):
    trial(tmp_path, "a")
    late = {"exception_type": "AgentTimeoutError"}
    trial(tmp_path, "b", 0.0, exception_info=late)
    trial(tmp_path, "c", exception_info={**late, "exception_type": "DockerError"}, verifier_result=None)
    pool = tts.Pool.from_files(tmp_path)
    assert [one.status for one in samples(pool)] == ["finished", "truncated"]
    assert "1 trials failed, and are left out" in pool.report.lines()


def test_costs_are_those_of_the_result_where_the_trajectory_states_none(tmp_path):
    log = {"schema_version": "ATIF-v1.4", "agent": {"name": "own"}, "steps": [atif_step(1, "Done.")]}
    (one,) = samples(tts.Pool.from_files(trial(tmp_path, "a", log=log)))
    assert (one.tokens, one.usd) == (99, 0.5)


def test_equal_patches_of_mini_swe_agent_vote_together(tmp_path):
    for run, new in enumerate(("new  ", "other", "new")):
        trajectory(tmp_path / str(run) / "astropy-1" / "astropy-1.traj.json", diff(new), instance_id="astropy-1")
    trajectory(
        tmp_path / "3" / "astropy-1" / "astropy-1.traj.json", None, status="LimitsExceeded", instance_id="astropy-1"
    )
    pool = tts.Pool.from_files(tmp_path)
    assert [(one.answer_class, one.status, one.tokens, one.usd) for one in samples(pool)] == [
        (0, "finished", 30, 0.25),
        (1, "finished", 30, 0.25),
        (0, "finished", 30, 0.25),
        (None, "truncated", 30, 0.25),
    ]
    assert samples(pool)[1].answer == diff("other")
    assert "8 steps of agents" in pool.report.lines()


def test_a_trajectory_without_an_instance_is_of_the_problem_of_its_prompt(tmp_path):
    paths = [trajectory(tmp_path / f"{n}.traj.json", text) for n, text in enumerate(("It is 4.", "It is 4."))]
    (problem,) = tts.Pool.from_files(*paths).problems
    assert [one.answer_class for one in problem.drawn] == [0, 0]


def test_selections_and_stop_rules_are_replayed_with_tokens_and_dollars(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        trial(tmp_path / "job", f"dates__{number}", float(number != 2))
    told = CliRunner().invoke(app, ["import", "job", "--form", "atif", "--name", "trials"])
    assert told.exit_code == 0, told.stderr
    assert "12 steps of agents" not in told.stdout
    assert "8 steps of agents" in told.stdout
    strategies = ["--strategy", "pass@k", "--strategy", "best_of_n | unanimous(window=2) | majority"]
    told = CliRunner().invoke(app, ["replay", "trials", *strategies, "--n", "1,2", "--json"])
    assert told.exit_code == 0, told.stderr
    points = [point for point in json.loads(told.stdout) if point["strategy"] == "pass@k"]
    assert [point["accuracy"]["value"] for point in points] == [0.75, 1.0]
    assert [round(point["costs"]["usd"], 6) for point in points] == [0.03, 0.06]
    assert [point["costs"]["tokens"] for point in points] == [70, 140]


def test_plain_rows_have_dollars_too(tmp_path):
    rows = [{"problem": "sum", "reference": "4", "answer": ["4", "5"], "tokens": [3, 4], "usd": [0.5, "0.25"]}]
    pool = tts.Pool.from_rows(rows, name="mine")
    assert [one.usd for one in samples(pool)] == [0.5, 0.25]
    with pytest.raises(ConfigError, match=r"usd.*-1,.*dollars,.*0"):
        tts.Pool.from_rows([{"problem": "sum", "answer": "4", "usd": -1}], name="mine")


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ({"verifier_result": {"rewards": {"reward": "1"}}}, "its reward 'reward' is '1', but must be a finite number"),
        ({"verifier_result": [1]}, "its verifier_result is .*, but must be an object"),
        ({"task": ""}, "its task_name is '', but must be a text"),
        ({"log": {"schema_version": "2"}}, "its schema_version is '2', but must begin with ATIF-v1"),
        ({"log": {"schema_version": "ATIF-v1.6", "steps": "x"}}, "its steps is 'x', but must be a list of objects"),
        ({"log": [1]}, "it is no JSON object"),
        ({"final": {"total_completion_tokens": -1}}, "count of completion tokens is -1"),
        ({"final": {"total_cost_usd": -1}}, "its cost_usd is -1, but must be dollars"),
    ],
)
def test_a_trial_of_another_form_is_refused_by_its_file(tmp_path, broken, line):
    trial(tmp_path, "a", **broken)
    with pytest.raises(ConfigError, match=line) as refused:
        tts.Pool.from_files(tmp_path)
    assert "\n" not in str(refused.value)
    assert ".json" in str(refused.value)


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ({"trajectory_format": "mini-swe-agent-2"}, "trajectory_format is 'mini-swe-agent-2'.*mini-swe-agent-1"),
        ({"messages": None}, "messages is None, but must be a list of objects"),
        ({"messages": []}, "neither an instance_id nor a message of the user"),
        ({"submission": 5}, "submission is 5, but must be a text"),
        ({"usd": "free"}, "instance_cost is 'free', but must be dollars"),
    ],
)
def test_a_trajectory_of_another_form_is_refused_by_its_file(tmp_path, broken, line):
    path = trajectory(tmp_path / "a.traj.json", **{"submission": "4", **broken})
    with pytest.raises(ConfigError, match=line) as refused:
        tts.Pool.from_files(path)
    assert str(refused.value).startswith(str(path))


def test_a_folder_without_trials_is_refused(tmp_path):
    for form, line in (("atif", "no trial of Harbor"), ("mini-swe-agent", "no trajectory of mini-swe-agent")):
        with pytest.raises(ConfigError, match=line):
            tts.Pool.from_files(tmp_path, form=form)
    path = trial(tmp_path, "a", verifier_result=None)
    (path / "agent" / "trajectory.json").unlink()
    with pytest.raises(ConfigError, match="there are no samples"):
        tts.Pool.from_files(tmp_path)
