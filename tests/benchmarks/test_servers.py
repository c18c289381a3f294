"""The benchmarks of the HTTP backend at their smallest sizes, on the servers of the tests."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("benchmarks.servers", reason="the benchmarks are no part of the wheel")

from benchmarks.servers.throughput import BLOCK, Job, prompts
from tests.backends.openai.server import ToyServer, serving
from tests.benchmarks.commands import its_hub, printed, started

DOUBLE = str(Path(__file__).parent / "vllm_double")
RATES = r"[\d.]+ \[[\d.]+, [\d.]+\] \| [\d.]+% \| [\d,]+ \| \d+% \|$"


def test_requests_in_flight_are_all_in_flight_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed("benchmarks.servers", "flight", "--smoke", monkeypatch=monkeypatch, capsys=capsys)
    assert out.startswith("8 requests of 3 tokens, one each 0.05 s: most in flight at once 8; ")
    assert re.search(
        r"where the server's pace alone takes 0\.\d s; .* us a token; others took \d+% of the machine\.$", out
    )


def test_a_faulty_server_is_reported_in_five_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, given, typed, tokens, candidates = printed(
        "benchmarks.servers", "faults", "--smoke", monkeypatch=monkeypatch, capsys=capsys
    ).splitlines()
    assert re.match(r"\d+ calls, [1-9]\d* of them faulty", calls)
    assert (given.split()[0], typed.split()[0]) == ("given:", "typed:")
    assert re.match(r"tokens: ([\d,]+) written, [\d,]+ booked; ", tokens)
    assert candidates.endswith(" at most)")


def test_capabilities_of_several_servers_stand_side_by_side(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(ToyServer()) as one, serving(ToyServer(completions=False)) as other:
        out = printed("benchmarks.servers", "capabilities", one, other, monkeypatch=monkeypatch, capsys=capsys)
    head, rule, *rows = out.splitlines()
    assert head == f"| | {one} | {other} |"
    assert {row.count(" | ") for row in rows} == {2}
    assert rule.count(":--") == 3
    assert any(row.startswith("| strategies |") for row in rows)


def test_a_server_that_is_not_reached_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^error: http://127\.0\.0\.1:9 cannot be reached"):
        printed("benchmarks.servers", "capabilities", "http://127.0.0.1:9", monkeypatch=monkeypatch, capsys=capsys)


def test_throughput_without_vllm_ends_in_one_line(tmp_path: Path) -> None:
    done = started(
        "benchmarks.servers", "throughput", "--smoke", "--vllm", str(tmp_path / "python"), "--model", str(tmp_path)
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"--vllm {tmp_path / 'python'} does not start: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("peer", ["", "without its library", "its_hub"])
def test_throughput_has_a_row_for_each_that_starts(tmp_path: Path, peer: str) -> None:
    options = ["--smoke", "--vllm", sys.executable, "--model", str(tmp_path)]
    options += ["--its-hub", its_hub() if peer == "its_hub" else sys.executable] if peer else []
    done = started("benchmarks.servers", "throughput", *options, PYTHONPATH=DOUBLE)
    assert done.returncode == 0, done.stderr
    assert "vLLM double, " in done.stdout
    absent = re.search(r"^absent: its_hub: (.*)$", done.stdout, re.MULTILINE)
    rivals = ["offline", "ours", *([] if absent else ["its_hub"])]
    for title in ("best-of-n: 2 rows of 4 tokens", "beam: 2 rows of 4 tokens, 2 levels, 1 kept"):
        part = done.stdout.partition(f"### {title}\n")[2].partition("###")[0]
        assert [row.split()[1] for row in part.splitlines() if re.search(RATES, row)] == rivals
        assert re.search(r"^Input tokens: [\d,]+, of which cached [\d,]+ ", part, re.MULTILINE)
    if not peer:
        assert absent
        assert absent[1] == "no --its-hub PYTHON"
    elif absent:
        assert absent[1].startswith("ModuleNotFoundError: No module named ")


def test_prompts_are_long_enough_to_share_a_block() -> None:
    assert len(set(prompts(64))) == 64
    assert min(len(one.split()) for one in prompts(64)) > BLOCK
    job = Job(prompts=prompts(1), n=2, kept=1, levels=1, tokens=3)
    assert job.message([[1, 2]]) == {"prompts": [[1, 2]], "n": 2, "kept": 1, "levels": 1, "tokens": 3}
