"""Searches over runs of an agent: equal seeds, hard budgets, freed states, and agents that misbehave."""

from __future__ import annotations

import asyncio
import errno
import os
import random  # noqa: TID251 - moments at which processes are killed
import re
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tts
from tests.addons.agents.agents import (
    SOURCE,
    make_repository,
    plant,
    running,
    script,
    search,
    snapshot,
    write_program,
)
from tests.support.programs import Program
from tests.support.runs import check_books, make_run, solve_and_show
from tts.backends.base import Row, SampleRequest, Sampling, StopCondition
from tts.budget.budget import Rates
from tts.search.needs import Needs
from tts.tasks.patch import PatchTask, patch_key
from tts_addons.agents.agents import Agent
from tts_addons.agents.store import StateStore, clean
from tts_addons.agents.toy_agent import GRAMMAR, Edit, edit_text, edits

TO_END = StopCondition()
FEW = tts.Budget(samples=6)


@pytest.fixture
def repo(tmp_path):
    return make_repository(tmp_path / "repo")


def patches(solution: tts.Solution) -> list[str | None]:
    """Return the answers in the order in which they were drawn."""
    return [candidate.answer for candidate in sorted(solution.candidates, key=lambda one: one.index)]


def is_empty(workspace: tts.Workspace) -> bool:
    """Whether a workspace keeps nothing but its root."""
    store = workspace.store
    left = [path for name in ("forks", "scratch", "indexes") for path in (store.folder / name).glob("*")]
    return store.states() == [store.root.commit] and left == []


@pytest.mark.slow
def test_equal_seeds_give_equal_patches_and_the_first_of_more(repo):
    with tts.Workspace(repo, agent="toy") as workspace:
        six, three = search(workspace, 6), search(workspace, 3)
        assert is_empty(workspace)
    with tts.Workspace(repo, agent="toy", jobs=1) as workspace:
        again, other = search(workspace, 6), search(workspace, 6, seed=1)
    assert patches(six) == patches(again) != patches(other)
    assert patches(six)[:3] == patches(three)
    assert six.reproducible
    assert len({candidate.answer_class for candidate in six.candidates if candidate.answer}) > 1
    assert not workspace.store.folder.exists()


@pytest.mark.slow
def test_the_runs_of_one_request_do_not_hold_the_line(repo):
    async def check() -> None:
        wide, single = [opened.value for opened in await workspace.open(["Fix all.", "Fix it."])]
        many = workspace.sample(SampleRequest(wide, tuple(Row(n, 0, 100) for n in range(6)), Sampling(), TO_END))
        one = workspace.sample(SampleRequest(single, (Row(9, 0, 100),), Sampling(), TO_END))
        await one.drain()
        assert sum(sample is not None for sample in many.samples) <= 2
        await many.drain()

    with tts.Workspace(repo, agent="toy", jobs=1) as workspace:
        asyncio.run(check())


@pytest.mark.slow
def test_a_row_in_pieces_is_the_row_at_once(repo):
    async def check(stream: int, sizes: list[int], *, at_step: bool) -> None:
        (opened,) = await workspace.open(["Fix it."])

        async def draw(handle, position, cap, stop=TO_END):
            rows = workspace.sample(SampleRequest(handle, (Row(stream, position, cap),), Sampling(), stop))
            await rows.drain()
            return rows.samples[0]

        whole = await draw(opened.value, 0, 100)
        handle, text, used = opened.value, "", 0
        while True:
            piece = await draw(
                handle, used, sizes[used % len(sizes)], StopCondition(PatchTask.step_stop, at_step=at_step)
            )
            assert piece.finish in ("length", "stop", "eos")
            text, used, handle = text + piece.text, used + piece.num_tokens, piece.handle
            if piece.finish == "eos":
                break
        assert (text, used) == (whole.text, whole.num_tokens)
        assert handle.state == whole.handle.state

    with tts.Workspace(repo, agent="toy") as workspace:
        for stream in range(4):
            asyncio.run(check(stream, [3, 1, 7], at_step=False))
            asyncio.run(check(stream, [100], at_step=True))


@pytest.mark.slow
def test_each_edit_of_the_toy_is_equally_likely_and_half_of_its_runs_end_after_one(repo):
    possible = [edit_text(SOURCE, edit) for edit in edits({"add.py": SOURCE})]
    assert len(possible) == len(set(possible)) == 3
    assert edits({"a.py": "x = 1  # + and\ny = '1 + 1'\n"}) == [Edit("a.py", 1, 4, "1", new) for new in GRAMMAR["1"]]
    with tts.Workspace(repo, agent="toy") as workspace:
        found = search(workspace, 60)
    turns = [candidate.trajectory.full_text.count("write ") for candidate in found.candidates]
    # standard errors: sqrt(.25 / 60) = .065 of runs of one turn; sqrt(2/9 / 60) = .061 of first edits
    assert sum(one == 1 for one in turns) / 60 == pytest.approx(1 / 2, abs=0.2)
    first = [candidate.trajectory.full_text.startswith("add.py:2:") for candidate in found.candidates]
    assert sum(first) / 60 == pytest.approx(1 / 3, abs=0.19)


class WorkspaceProgram(Program):
    """A random program of calls that a workspace takes."""

    def needs(self) -> Needs:
        return Needs(capabilities=("steps",))


_OPS = st.tuples(
    st.sampled_from(["expand", "expand", "complete", "rollout", "keep", "finish", "open"]),
    st.integers(0, 7),
    st.integers(0, 3),
    st.integers(0, 40),
)
_LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "tokens": st.integers(1, 120),
        "generated_tokens": st.integers(1, 120),
        "samples": st.integers(1, 6),
        "usd": st.integers(1, 120).map(lambda tokens: tokens * 1e-6),
        "seconds": st.sampled_from([0.05, 0.3, 1.0]),
    },
).filter(bool)


@pytest.fixture(scope="module")
def priced(tmp_path_factory):
    """A workspace whose tokens cost a millionth of a dollar each."""
    with tts.Workspace(make_repository(tmp_path_factory.mktemp("budgets") / "repo"), agent="toy") as workspace:
        workspace.rates = Rates(usd_in=0, usd_out=10**9)
        yield workspace


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_OPS, min_size=1, max_size=6), _LIMITS, st.integers(0, 3))
def test_no_budget_is_passed_and_every_state_is_freed(priced, ops, limits, seed):
    clock = time.perf_counter if "seconds" in limits else None
    program = WorkspaceProgram(ops=tuple(ops))
    run = make_run("Fix it.", tts.Budget(**limits), program, priced, seed=seed, task="patch", clock=clock)
    before = priced.counters.generated_tokens
    end = solve_and_show(run)
    if end.search is not None:
        check_books(end.search)
        booked = [call.usage for call in end.search.account.ledger.calls]
        spent = sum(usage.generated_tokens + usage.cancelled_tokens for usage in booked)
        assert spent == priced.counters.generated_tokens - before
    assert is_empty(priced)


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy", ["best_of_n | majority", "beam(n=2) | majority", "particle_filter(n=2) | majority", "ab_mcts"]
)
def test_strategies_stay_within_each_unit(priced, strategy):
    for limits in ({"tokens": 60}, {"samples": 3}, {"usd": 50e-6}, {"seconds": 1.5}):
        solution = tts.solve(
            "Fix it.", limits, backend=priced, strategy=strategy, verifier=lambda _, text: text.count("add.py:2:")
        )
        spent = solution.usage
        assert spent.tokens <= limits.get("tokens", spent.tokens)
        assert spent.samples <= limits.get("samples", spent.samples)
        assert (spent.usd or 0) <= limits.get("usd", 1)
        assert spent.seconds <= limits.get("seconds", 60) + 2
        assert is_empty(priced)


# Agents of one's own --------------------------------------------------------------------------------------------------


def solve_by(repo, agent: str, **limits) -> tts.Solution:
    with tts.Workspace(repo, agent=agent) as workspace:
        found = search(workspace, task="Fix\nit.", **limits)
        assert is_empty(workspace)
    return found


def test_a_program_gets_its_task_and_an_environment_of_its_own(repo, tmp_path, monkeypatch):
    home = plant(monkeypatch, tmp_path, "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GIT_DIR", "PYTHONPATH")
    agent = script(
        tmp_path / "own",
        'env > seen.txt; ls -A "$HOME" >> seen.txt; cat "$TTS_PROMPT_FILE" - > task.txt; echo "seed $TTS_SEED"',
    )
    found = solve_by(repo, agent)
    assert not found.reproducible
    assert all(candidate.answer is not None and "planted" not in candidate.answer for candidate in found.candidates)
    assert all(str(home) not in str(candidate.answer) for candidate in found.candidates)
    assert "+Fix\n+it.Fix\n+it." in str(found.answer)
    seeds = {candidate.trajectory.full_text.splitlines()[0] for candidate in found.candidates}
    assert len(seeds) == 2
    assert all(seed.removeprefix("seed ").isdecimal() for seed in seeds)


def test_commits_of_an_agent_count_and_the_repository_stays(repo, tmp_path):
    before = snapshot(repo)
    who = "git -c user.name=a -c user.email=b"
    agent = script(
        tmp_path / "own",
        f"echo one > one; {who} add one; {who} commit -qm one; git checkout -qb side; git stash -u; echo two > two",
    )
    assert {"+one", "+two"} <= set(str(solve_by(repo, agent).answer).splitlines())
    assert snapshot(repo) == before


def test_nothing_of_an_agent_outlives_it(repo, tmp_path):
    mark = "86411"  # seconds, which nobody else sleeps
    agent = script(
        tmp_path / "own", f"setsid sleep {mark} & (setsid sh -c 'sleep {mark} & sleep {mark}' &) ; echo a > a; exit 0"
    )
    assert solve_by(repo, agent).answer is not None
    assert running(f"sleep {mark}") == []


def test_a_deadline_ends_agents_and_keeps_what_they_have(repo, tmp_path):
    mark = "86412"
    agent = script(tmp_path / "own", f"trap '' TERM; echo a > a; setsid sleep {mark} & sleep {mark}")
    began = time.monotonic()
    found = solve_by(repo, agent, seconds=1.5)
    assert time.monotonic() - began < 30
    assert found.stopped_by == "budget: seconds"
    assert "+a" in str(found.answer)
    assert running(f"sleep {mark}") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("echo it is broken; exit 3", "AgentFailed: it ended with exit code 3: it is broken"),
        ("yes", "AgentOutput: it printed more than 64 MiB"),
        (
            "git init -q sub; cd sub; git -c user.name=a -c user.email=b commit -q --allow-empty -m a",
            "another repository in 'sub'",
        ),
        ("""echo '{"tokens": -1}' > $TTS_REPORT_FILE""", "AgentReport: it reports '-1' tokens"),
        ("""echo '{"status": "turn"}' > $TTS_REPORT_FILE""", "AgentReport: it reports the status 'turn'"),
        ("cat < /dev/tty", "AgentFailed: it ended with exit code 2: "),
        ("kill -9 $$", "AgentFailed: it ended with exit code -9"),
    ],
)
def test_an_agent_that_fails_is_named_in_one_line(repo, tmp_path, text, line):
    with pytest.raises(tts.EngineError, match="every row failed") as failure:
        solve_by(repo, script(tmp_path / "own", text))
    assert line in str(failure.value)


def test_an_agent_without_a_change_has_no_answer(repo, tmp_path):
    found = solve_by(repo, script(tmp_path / "own", "echo I looked at it"))
    assert found.answer is None
    assert len(found.candidates) == 2
    assert "I looked at it" in found.candidates[0].trajectory.full_text


def test_what_is_no_agent_is_refused(repo, tmp_path):
    (tmp_path / "plain").write_text("")
    for agent, line in (
        ("toi", "did you mean toy"),
        (f"command:{tmp_path}/plain", "no program"),
        ("command:", "no program"),
    ):
        with pytest.raises(tts.ConfigError, match=line):
            tts.Workspace(repo, agent=agent)
    with pytest.raises(tts.ConfigError, match="jobs is 0"):
        tts.Workspace(repo, agent="toy", jobs=0)


def test_a_workspace_is_no_model_of_a_record():
    with pytest.raises(tts.ConfigError, match=r"workspace.*repository"):
        tts.solve("Fix it.", FEW, backend="workspace")


def test_a_failure_of_the_system_ends_the_row(repo, monkeypatch):
    """A full disk, for one."""

    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tts_addons.agents.backend.TurnFiles", fill)
    with pytest.raises(tts.EngineError, match="No space left on device"):
        solve_by(repo, "toy")


def test_a_plan_by_steps_needs_an_agent_that_goes_on(repo, tmp_path):
    with (
        tts.Workspace(repo, agent=script(tmp_path / "own", "true")) as workspace,
        pytest.raises(tts.CapabilityError, match="'steps'"),
    ):
        tts.solve(
            "Fix it.", FEW, backend=workspace, strategy="beam(n=2) | majority", verifier=lambda _, text: len(text)
        )


@pytest.mark.slow
def test_a_program_that_goes_on_is_searched_by_steps(repo, tmp_path):
    """An agent of one's own that counts its turns in its session, and adds a line in each."""
    name = script(
        tmp_path / "own",
        'n=$(cat "$TTS_SESSION_FILE" 2>/dev/null || echo 0); n=$((n + 1)); echo $n > "$TTS_SESSION_FILE"\n'
        'echo "$n $TTS_SEED" >> turns.txt; status=turn; [ $n = 3 ] && status=finished\n'
        'echo "{\\"status\\": \\"$status\\", \\"message\\": \\"turn $n\\"}" > "$TTS_REPORT_FILE"',
    )
    agent = Agent("counter", (name.removeprefix("command:"),), resumes=True)
    with tts.Workspace(repo, agent=agent) as workspace:
        found = tts.solve(
            "Go.",
            tts.Budget(samples=4),
            backend=workspace,
            strategy="beam(n=2) | best",
            verifier=lambda _, text: len(text),
        )
        assert is_empty(workspace)
    lines = re.findall(r"^\+(\d) (.+)", str(found.answer), re.MULTILINE)
    assert [turn for turn, _ in lines] == ["1", "2", "3"]
    assert len({seed for _, seed in lines}) == 3
    assert found.candidates[0].trajectory.full_text.count("turn ") == 3


@pytest.mark.slow
def test_patches_with_equal_changes_vote_together(repo, tmp_path):
    agent = script(
        tmp_path / "own", "if [ $((TTS_SEED % 2)) = 0 ]; then printf 'a \\r\\n' > a; else printf 'a\\n' > a; fi"
    )
    with tts.Workspace(repo, agent=agent) as workspace:
        found = search(workspace, 6, task="Go.")
    assert len({candidate.answer for candidate in found.candidates}) == 2
    assert {candidate.answer_class for candidate in found.candidates} == {0}
    assert len({patch_key(str(candidate.answer)) for candidate in found.candidates}) == 1


ENDLESS = """
import sys, tts
while True:
    with tts.Workspace(sys.argv[1], agent=sys.argv[2]) as workspace:
        for seed in range(3):
            tts.solve("Fix it.", tts.Budget(samples=4), backend=workspace, strategy="best_of_n(n=4) | majority", seed=seed)
            print(seed, flush=True)
"""  # noqa: E501


@pytest.mark.slow
def test_a_killed_search_leaves_the_repository_as_it_was_and_no_agent(repo, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before, random_, mark, own = snapshot(repo), random.Random(46), f"86413.{os.getpid()}", str(tmp_path / "own")
    agent = script(
        tmp_path / "own", f"git stash -u; echo $TTS_SEED > a; setsid sleep {mark} & sleep 0.0$((TTS_SEED % 9))"
    )
    with StateStore(repo) as mine:
        for _ in range(50):
            process = subprocess.Popen([sys.executable, "-c", ENDLESS, str(repo), agent], stdout=subprocess.PIPE)
            assert process.stdout is not None
            for _ in range(random_.randint(1, 3)):
                assert process.stdout.readline()
            time.sleep(random_.random() / 5)
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
            assert snapshot(repo) == before
            until = time.monotonic() + 30
            # the processes above the agents have the agent's path in their arguments
            while running(own) and time.monotonic() < until:
                time.sleep(0.05)
            assert running(own) == []
            assert running(f"sleep {mark}") == []
        assert clean()
        assert mine.fork(mine.root).path.is_dir()
    assert clean() == []
    assert [path.name for path in (tmp_path / "cache" / "tts" / "workspaces").iterdir()] == ["lock"]


# Agents that harm ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill -9 $PPID", "kill -9 $PPID; echo x; sleep 0.1; kill -9 $$"])
def test_an_agent_that_kills_its_supervisor_fails_and_is_ended(repo, tmp_path, end):
    mark = "86413"
    agent = script(tmp_path / "own", f"echo a > a; (setsid sh -c 'sleep {mark}; true' &); {end}; sleep {mark}")
    with pytest.raises(tts.EngineError, match=r"report.*supervisor"):
        solve_by(repo, agent)
    assert running(f"sleep {mark}") == []


def test_an_agent_that_halts_its_supervisor_ends(repo, tmp_path):
    agent = script(tmp_path / "own", "echo a > a; kill -STOP $PPID")
    assert "+a" in str(solve_by(repo, agent).answer)


def test_a_forged_report_of_a_killed_supervisor_does_not_count(repo, tmp_path):
    report = """'{"code": 0, "told": false}'"""
    forge = f"for fd in /proc/$PPID/fd/*; do echo {report} > $fd; done 2> /dev/null; kill -9 $PPID"
    try:
        found = solve_by(repo, script(tmp_path / "own", f"echo a > a; {forge}"))
    except tts.EngineError as failure:
        assert "without a report of its supervisor" in str(failure)  # noqa: PT017 - one of two right ends
    else:  # what it wrote has told the supervisor to stop it
        assert all(candidate.truncated for candidate in found.candidates)


@pytest.mark.slow
def test_an_agent_with_a_large_report_or_session_fills_no_memory(repo, tmp_path):
    large = 'truncate -s 200G "$TTS_REPORT_FILE"; truncate -s 200G "$TTS_SESSION_FILE"; echo a > a'
    assert "+a" in str(solve_by(repo, script(tmp_path / "own", large)).answer)
    assert "+a" in str(solve_by(repo, script(tmp_path / "own", 'mkfifo "$TTS_REPORT_FILE"; echo a > a')).answer)


@pytest.mark.parametrize("failure", [RecursionError("too deep"), MemoryError(), ValueError("odd"), KeyError("x")])
@pytest.mark.parametrize("place", ["store.commit", "store.release", "_row"])
def test_no_exception_leaves_a_search_waiting(repo, tmp_path, monkeypatch, failure, place):
    def fail(*_: object) -> None:
        raise failure

    async def fail_later(*_: object) -> None:
        raise failure

    with tts.Workspace(repo, agent=script(tmp_path / "own", "echo a > a")) as workspace:
        owner, name = (workspace.store, place[6:]) if place.startswith("store.") else (workspace, place)
        with monkeypatch.context() as patches:
            patches.setattr(owner, name, fail_later if name == "_row" else fail)
            with pytest.raises(tts.TTSError, match=type(failure).__name__):
                search(workspace)


@pytest.mark.slow
def test_folders_nested_deeper_than_the_stack_end_a_row(repo, tmp_path):
    code = "import os\nopen('a', 'w').write('a')\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')"
    agent = write_program(tmp_path / "deep", code, f"{sys.executable} -IS")
    assert "+a" in str(solve_by(repo, f"command:{agent}").answer)


@pytest.mark.slow
def test_an_agent_starts_in_the_folder_that_was_named(repo, tmp_path):
    make_repository(repo, {"pkgs/a/m.py": "x = 1\n"})
    found = solve_by(repo / "pkgs" / "a", script(tmp_path / "own", "echo 'x = 2' > m.py; echo new > ../b"))
    assert "+++ b/pkgs/a/m.py" in str(found.answer)
    assert "+++ b/pkgs/b" in str(found.answer)
    found.apply()
    assert (repo / "pkgs" / "a" / "m.py").read_text() == "x = 2\n"
