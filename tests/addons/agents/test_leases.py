"""Agents that call a model: the budget of the search pays each call, and a key is of no use after its row."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("yaml", reason="the extra serve is not installed")

import tts
from tests.addons.agents.agents import make_repository, plant, search, write_program
from tests.addons.agents.models import Scripted, check_ledger, talker
from tests.support.guard import LIMIT_S
from tests.support.yaml_bomb import BOMB
from tts_addons.agents.door import ModelDoor

GO_ON = "continue"
MUCH = {"generated_tokens": 1000, "usd": 10**15, "flops": 10**9}


@pytest.fixture
def repo(tmp_path):
    return make_repository(tmp_path / "repo")


def mend(prompt: str) -> str:
    """Mend the sum in one call, and say so in the next."""
    return "done : the sum is right" if "no output" in prompt else "sed -i s/-/+/ add.py"


def run_away(prompt: str) -> str:
    """Never end."""
    del prompt
    return "echo 1 >> more"


def solve(repo: Path, model: Scripted, agent: str, n: int = 3, *, jobs: int = 4, **limits: float) -> tts.Solution:
    with tts.Workspace(repo, agent=agent, model=model, jobs=jobs) as workspace:
        return search(workspace, n, **limits)


# Spend ----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{}, {"usd": 0.01}, {"tokens": 300}, {"generated_tokens": 300}, {"flops": 10_000}])
def test_the_ledger_is_what_the_model_counts(repo, tmp_path, limits):
    model = Scripted(mend)
    found = solve(repo, model, talker(tmp_path), **limits)
    assert len(model.calls) == 6
    assert "+    return a + b" in str(found.answer)
    assert [one.trajectory.status for one in found.candidates] == ["finished"] * 3
    assert found.candidates[0].trajectory.full_text.startswith("done : the sum is right\n")
    check_ledger(found, model)


@pytest.mark.slow
@pytest.mark.parametrize("after", ["sys.exit(1)", "break", GO_ON])
@pytest.mark.parametrize(
    ("unit", "limit"), [("generated_tokens", 60), ("tokens", 60), ("usd", 0.0009), ("flops", 300), ("requests", 6)]
)
def test_a_runaway_is_stopped_by_its_lease_within_one_call(repo, tmp_path, unit, limit, after):
    """An agent that goes on after a refusal is stopped at the next."""
    model = Scripted(run_away)
    found = solve(repo, model, talker(tmp_path, after=after), **{unit: limit})
    check_ledger(found, model)
    assert limit / 2 < getattr(found.usage, unit) <= limit
    assert [one.trajectory.status for one in found.candidates] == ["truncated"] * 3
    assert all("+1" in str(one.answer).splitlines() for one in found.candidates)  # what it has counts


@pytest.mark.slow
def test_a_failure_keeps_what_was_spent(repo, tmp_path):
    """An agent that fails without a change, after a call."""
    model, account = Scripted(lambda _: "true"), tts.Account(tts.Budget(samples=2, usd=1))
    agent = talker(tmp_path, more="{} if len(said) == 1 else sys.exit('it is broken')")
    with (
        tts.Workspace(repo, agent=agent, model=model) as workspace,
        pytest.raises(tts.EngineError, match=r"failed.*exit code 1: it"),
    ):
        tts.solve("Fix it.", account, backend=workspace, strategy="best_of_n(n=2) | majority")
    assert account.spent["generated_tokens"] == model.counters.generated_tokens == 2
    assert account.spent["usd"] > 0


@pytest.mark.slow
def test_a_deadline_ends_calls_under_way(repo, tmp_path):
    """A function without an end is charged in full, which its lease bounds."""

    async def wait(ask: tts.Ask) -> str:
        del ask
        await asyncio.Event().wait()
        raise AssertionError

    with tts.Workspace(repo, agent=talker(tmp_path), model=wait) as workspace:
        found = search(workspace, seconds=1.5, generated_tokens=500)
    assert found.stopped_by == "budget: seconds"
    assert found.usage.estimated
    assert found.usage.generated_tokens + found.usage.cancelled_tokens <= 500


# What a lease is ------------------------------------------------------------------------------------------------------


class Watched:
    """The limits of all leases, in the order in which they were lent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lent: list[dict[str, int]] = []
        lend = ModelDoor.lend

        def watch(door, limits, seed):
            self.lent.append(dict(limits))
            return lend(door, limits, seed)

        monkeypatch.setattr(ModelDoor, "lend", watch)


@pytest.mark.slow
def test_a_lease_is_what_is_left_divided_by_the_rows_still_to_run(repo, tmp_path, monkeypatch):
    watched, model = Watched(monkeypatch), Scripted(mend)
    solve(repo, model, talker(tmp_path), 4, jobs=2, generated_tokens=400)
    assert [one["generated_tokens"] for one in watched.lent] == [100, 100, 190, 190]  # a row takes 10 tokens
    watched.lent.clear()
    solve(repo, Scripted(mend), talker(tmp_path), jobs=1)
    assert len(watched.lent) == 3
    watched.lent.clear()
    solve(repo, model, talker(tmp_path), jobs=1, usd=0.03)
    left, expected = 3 * 10**13, list[int]()
    for rows in (3, 2, 1):
        expected.append(left // rows)
        left -= 10 * (3 * 10**9 + 10**10)
    assert [one["usd"] for one in watched.lent] == expected


@pytest.mark.slow
@pytest.mark.parametrize(("verifier", "requests"), [("none", 7), ("tests(command='true')", 7)])
def test_what_a_row_leaves_of_requests_and_dollars_pays_later_rows(repo, tmp_path, verifier, requests):
    """Tests cost no dollars, so that nothing is held for their scores."""
    model = Scripted(mend)
    with tts.Workspace(repo, agent=talker(tmp_path), model=model, jobs=1) as workspace:
        limits = {"samples": 4, "requests": requests, "usd": 4 * 0.00014}
        plan = "best_of_n(n=4) | majority" if verifier == "none" else "best_of_n(n=4) | best"
        found = tts.solve("Fix it.", limits, backend=workspace, verifier=verifier, strategy=plan)
    assert found.usage.requests == len(model.calls) == requests
    assert [one.truncated for one in found.candidates].count(False) == 3


@pytest.mark.slow
def test_leases_do_not_depend_on_who_ends_first(repo, tmp_path, monkeypatch):
    watched, lent = Watched(monkeypatch), list[list[dict[str, int]]]()
    for which in (0, 1):
        slow = f"__import__('time').sleep(0.3 * (int(os.environ['TTS_SEED']) % 2 == {which})) or {{}}"
        found = solve(repo, Scripted(mend), talker(tmp_path, more=slow), jobs=2, usd=0.02)
        lent.append(watched.lent[:])
        watched.lent.clear()
        assert found.usage.usd == pytest.approx(0.00039)
    assert lent[0] == lent[1]


@pytest.mark.slow
def test_without_a_number_of_rows_they_run_until_the_money_does_not_pay_one_more(repo, tmp_path):
    model = Scripted(mend)
    with tts.Workspace(repo, agent=talker(tmp_path), model=model) as workspace:
        found = tts.solve("Fix it.", {"usd": 0.001}, backend=workspace, strategy="best_of_n | majority")
    assert len(found.candidates) == 7  # of 0.00013 each
    assert found.stopped_by == "budget: usd"
    check_ledger(found, model)


_LIMITS = st.fixed_dictionaries(
    {"samples": st.integers(1, 4), "generated_tokens": st.integers(1, 60)},
    optional={
        "tokens": st.integers(1, 60),
        "requests": st.integers(1, 8),
        "usd": st.integers(1, 120).map(lambda one: one * 1e-5),
    },
)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_LIMITS, st.sampled_from([mend, run_away]), st.integers(1, 3))
def test_no_limit_is_passed(repo, tmp_path, limits, script, jobs):
    model = Scripted(script)
    account = tts.Account(tts.Budget(**limits))
    with tts.Workspace(repo, agent=talker(tmp_path), model=model, jobs=jobs) as workspace:
        found = tts.solve("Fix it.", account, backend=workspace, strategy="best_of_n | majority")
    assert all(account.spent[unit] <= limit for unit, limit in limits.items())
    assert not any(account.reservation(unit) for unit in account.units)
    check_ledger(found, model)


# Keys -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def door():
    model = ModelDoor(Scripted(lambda _: "one two three"))
    yield model
    model.close()


CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "Hello"}]}


def ask(lease, path: str = "/v1/chat/completions", body: dict | None = None, key: str | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {lease.key if key is None else key}"}
    return httpx.post(lease.url + path, json=CHAT if body is None else body, headers=headers, timeout=LIMIT_S)


def test_a_key_is_of_no_use_after_its_row_and_there_is_no_other(door):
    first, second = door.lend(MUCH, 1), door.lend(MUCH, 2)
    assert first.url == second.url
    assert first.url.startswith("http://127.0.0.1:")
    assert ask(first).status_code == ask(second).status_code == 200
    usage = first.end()
    assert (usage.prompt_tokens, usage.generated_tokens) == (1, 3)
    assert ask(first).status_code == 401
    assert ask(second).status_code == 200
    second.end()
    for key in (first.key, second.key, "nobody", "another"):
        assert ask(first, key=key).status_code == 401
    assert door.backend.counters.generated_tokens == 9
    assert first.end() == usage


@pytest.mark.slow
def test_a_row_cannot_use_the_key_of_a_row_before(repo, tmp_path):
    kept = tmp_path / "key"
    more = f"open({str(kept)!r}, 'a').write(os.environ['OPENAI_API_KEY'] + ' ') and {{}}"
    agent = talker(tmp_path, more=more)
    path = Path(agent.removeprefix("command:"))
    path.write_text(path.read_text().replace('os.environ["OPENAI_API_KEY"]', f"open({str(kept)!r}).read().split()[0]"))
    model = Scripted(lambda _: "done")
    found = solve(repo, model, agent, 2, jobs=1)
    assert len(set(kept.read_text().split())) == 2
    assert len(model.calls) == 1
    assert found.usage.generated_tokens == 1


def test_a_call_is_refused_once_the_lease_is_used_up_and_a_second_one_stops_the_agent(door):
    stopped, lease = threading.Event(), door.lend({"generated_tokens": 4}, 1)
    lease.stop = stopped.set
    assert not lease.is_used_up
    assert ask(lease).json()["choices"][0]["finish_reason"] == "stop"
    cut = ask(lease)
    assert cut.json()["choices"][0]["finish_reason"] == "length"
    assert cut.json()["usage"]["completion_tokens"] == 1
    assert lease.is_used_up
    refused = ask(lease)
    assert refused.status_code == 429
    assert refused.headers["x-should-retry"] == "false"
    assert "used up" in refused.json()["error"]["message"]
    assert not stopped.is_set()
    assert ask(lease).status_code == 429
    assert stopped.is_set()
    assert lease.end().generated_tokens == 4


@pytest.mark.slow
def test_all_three_wires_are_paid_by_the_lease_and_nothing_else_is_offered(door):
    lease = door.lend(MUCH, 1)
    said = {"role": "user", "content": "Hello"}
    assert ask(lease, "/v1/responses", {"model": "scripted", "input": "Hello"}).json()["status"] == "completed"
    reply = ask(lease, "/v1/messages", {"model": "scripted", "max_tokens": 50, "messages": [said]})
    assert reply.json()["content"] == [{"type": "text", "text": "one two three"}]
    with httpx.stream(
        "POST",
        f"{lease.url}/v1/chat/completions",
        json={**CHAT, "stream": True},
        headers={"authorization": f"Bearer {lease.key}"},
    ) as lines:
        assert "data: [DONE]" in list(lines.iter_lines())
    assert ask(lease, body={**CHAT, "tts": {"strategy": "best_of_n(n=4) | majority"}}).status_code == 200
    limited = {"strategy": "best_of_n(n=4) | majority", "budget": {"samples": 2}}
    assert ask(lease, body={**CHAT, "tts": limited}).json()["tts"]["candidates"] == 2
    for path in ("/v1/completions", "/metrics", "/v1/accounts", "/v1/searches", "/tokenize"):
        assert ask(lease, path, {"model": "scripted", "prompt": "Hello"}).status_code == 404, path
    assert ask(lease, body={**CHAT, "tts": {"account": "row-2"}}).status_code == 400
    assert ask(lease, body={**CHAT, "tts": {"verifier": "judge"}}).status_code == 400
    assert lease.end().generated_tokens == door.backend.counters.generated_tokens == 3 * 9


def test_the_seeds_of_calls_follow_from_the_row():
    seeds: list[int] = []
    door = ModelDoor(lambda ask: seeds.append(ask.seed) or "x")
    try:
        for seed in (1, 1, 2):
            lease = door.lend({"generated_tokens": 100}, seed)
            for _ in range(2):
                assert ask(lease, body={**CHAT, "model": door.model}).status_code == 200
            lease.end()
    finally:
        door.close()
    assert seeds[:2] == seeds[2:4] != seeds[4:]
    assert len(set(seeds)) == 4


def test_a_closed_workspace_serves_no_more(repo, tmp_path):
    before = threading.active_count()
    with tts.Workspace(repo, agent=talker(tmp_path), model=Scripted(mend)) as workspace:
        assert threading.active_count() == before  # it begins with the first row
        search(workspace, 1)
        assert "tts-leases" in {thread.name for thread in threading.enumerate()}
    assert "tts-leases" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.slow
def test_the_gateway_of_a_forgotten_workspace_ends(repo, tmp_path):
    workspace = tts.Workspace(repo, agent=talker(tmp_path), model=Scripted(mend))
    search(workspace, 1)
    (thread,) = (one for one in threading.enumerate() if one.name == "tts-leases")
    del workspace
    gc.collect()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


# Environment and mistakes ---------------------------------------------------------------------------------------------


def test_keys_of_the_user_reach_no_agent(repo, tmp_path, monkeypatch):
    plant(monkeypatch, tmp_path, "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "HTTPS_PROXY")
    seen = tmp_path / "seen"
    more = f"open({str(seen)!r}, 'w').write(json.dumps([dict(os.environ), os.listdir(os.environ['HOME'])])) and {{}}"
    solve(repo, Scripted(mend), talker(tmp_path, more=more), 1)
    environment, files = json.loads(seen.read_text())
    assert files == []
    assert "planted" not in str(environment)
    assert environment["TTS_MODEL"] == "scripted"
    assert environment["OPENAI_BASE_URL"] == environment["ANTHROPIC_BASE_URL"] + "/v1"
    assert environment["OPENAI_API_KEY"] == environment["ANTHROPIC_API_KEY"]


def record(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


OWN = """name: mine
command: [{program}, "--file={{prompt_file}}"]
environment: {{MY_URL: "{{url}}/v1", MY_KEY: "{{key}}"}}
files: {{.mine/rc: "{{model}}"}}
"""


@pytest.mark.slow
def test_a_record_of_ones_own_is_a_harness(repo, tmp_path):
    path = Path(talker(tmp_path).removeprefix("command:"))
    text = path.read_text().replace("OPENAI_BASE_URL", "MY_URL").replace("OPENAI_API_KEY", "MY_KEY")
    text = text.replace('open(os.environ["TTS_PROMPT_FILE"])', "open(sys.argv[1].removeprefix('--file='))")
    path.write_text(text.replace('os.environ["TTS_MODEL"]', 'open(os.environ["HOME"] + "/.mine/rc").read()'))
    model = Scripted(mend)
    found = solve(repo, model, record(tmp_path, OWN.format(program=path)))
    assert "+    return a + b" in str(found.answer)
    check_ledger(found, model)


def test_a_harness_that_ignores_the_url_is_named_in_one_line(repo, tmp_path):
    program = write_program(tmp_path / "own", "echo a > a")
    with pytest.raises(tts.EngineError, match=r"AgentCalls:.*call"):
        solve(repo, Scripted(mend), record(tmp_path, OWN.format(program=program)))


TRUSTED = """name: mine
command: [{program}]
trust_usage: {{passes: [OWN_KEY], tokens: usage.output, message: said}}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("told", "tokens"), [("20", 20), ("1000", 50), ("none", 50)])
def test_a_harness_with_its_own_login_counts_by_its_own_report_as_an_estimate(
    repo, tmp_path, monkeypatch, told, tokens
):
    """It gets the variables that its record names, and no others of the user's. What it does not tell counts as all
    that it may take.
    """
    monkeypatch.setenv("OWN_KEY", "own")
    monkeypatch.setenv("OPENAI_API_KEY", "planted")
    report = json.dumps({"said": "I did", "usage": {"output": int(told)}}) if told.isdecimal() else "nothing"
    program = write_program(tmp_path / "own", f"echo $OWN_KEY$OPENAI_API_KEY > a\necho '{report}'")
    with tts.Workspace(repo, agent=record(tmp_path, TRUSTED.format(program=program))) as workspace:
        found = search(workspace, 1, tokens=50)
    assert found.usage.generated_tokens == tokens
    assert found.usage.estimated
    assert "+own" in str(found.answer).splitlines()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("- a", "must be keys with values"),
        ("a: [", "is no YAML"),
        (BOMB.format("command"), "the YAML has more than 1,000,000 values"),
        ("name: a\ncommand: [a]\ncommnd: [b]", "commnd"),
        ("name: a\ncommand: a b", "command is 'a b'"),
        ("name: a\ncommand: [a, '{prompt}', '{url}', '{key}']", r"the argument \{prompt\} alone"),
        ("name: a\ncommand: ['{prompt}']", "must begin with the name of a program"),
        ("name: a\ncommand: [a]", r"does not use both \{url\} and \{key\}"),
        ("name: a\ncommand: [a]\nenvironment: {LD_PRELOAD: '{url}{key}'}", "LD_PRELOAD"),
        ("name: a\ncommand: [a]\nfiles: {../a: '{url}{key}'}", "below the home"),
        ("name: a\ncommand: [a, '{key}']\ntrust_usage: {passes: [A], tokens: a}", "trust_usage is given"),
        ("name: a\ncommand: [a]\ntrust_usage: true", "trust_usage"),
        (
            "name: a\ncommand: [no-such-program, '{url}', '{key}']\ninstall: pip install it",
            "'no-such-program' is not found on PATH",
        ),
        ("name: !!python/object/apply:os.system [a]\ncommand: [a]", "is no YAML"),
    ],
)
def test_a_wrong_record_is_refused_in_one_line(repo, tmp_path, text, line):
    with pytest.raises(tts.ConfigError, match=line) as failure:
        tts.Workspace(repo, agent=record(tmp_path, text), model=Scripted(mend))
    assert "\n" not in str(failure.value)


def test_what_does_not_fit_together_is_refused_before_anything_runs(repo, tmp_path):
    program = talker(tmp_path).removeprefix("command:")
    mine = record(tmp_path, OWN.format(program=program))
    for agent, model, line in (
        (mine, None, r"agent.*'mine',.*calls.*there"),
        ("toy", "pocket", "agent 'toy'"),
        (mine, "pockt", "did you mean pocket"),
        ("none.yaml", "pocket", r"none\.yaml: .*cannot be read"),
    ):
        with pytest.raises(tts.ConfigError, match=line):
            tts.Workspace(repo, agent=agent, model=model)
    with (
        tts.Workspace(repo, agent=mine, model=Scripted(mend, usd=False)) as workspace,
        pytest.raises(tts.ConfigError, match="usd"),
    ):
        tts.solve("Fix it.", tts.Budget(usd=1), backend=workspace, strategy="single")
