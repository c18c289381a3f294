"""`tests/support/compare.py`: equal code records equal outcomes, and what differs is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import compare
from tts.search.parts import SELECTIONS, STOP_RULES, STRATEGIES


@pytest.mark.slow
def test_equal_code_records_equal_outcomes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for out in (a, b):
        compare.record(out, range(20), seed=0)
    assert a.read_bytes() == b.read_bytes()
    assert compare.diff(a, b, show=3) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "20 programs in both, 0 of them unequal; 0 in one record alone"
    outcomes = [line["outcomes"] for line in compare.read(a).values()]
    assert len(outcomes[7]) == len(compare.draw(0, 7).problems), "solve_many has an outcome for each problem"
    assert sum(outcome.get("usage.generated_tokens", 0) > 0 for (outcome, *_) in outcomes) > 5


def test_a_difference_is_named_by_field_and_strategy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    compare.record(a, [1, 11], seed=0)
    lines = [json.loads(line) for line in a.read_text().splitlines()]
    assert "usage.samples" in lines[1]["outcomes"][0], lines[1]
    lines[1]["outcomes"][0]["usage.samples"] += 1
    lines[1]["outcomes"][0]["nodes"][0][4] += 5
    b.write_text("".join(json.dumps(line) + "\n" for line in lines))
    capsys.readouterr()
    assert compare.diff(a, b, show=3) == 1
    head, *rest = capsys.readouterr().out.splitlines()
    assert head == "2 programs in both, 1 of them unequal; 0 in one record alone"
    strategy = lines[1]["program"]["strategy"]
    assert {f"usage.samples: 1 ({strategy} 1)", f"nodes: 1 ({strategy} 1)"} < set(rest)
    b.write_text(json.dumps(lines[0]) + "\n")
    assert compare.diff(a, b, show=3) == 1
    assert capsys.readouterr().out == "1 programs in both, 0 of them unequal; 1 in one record alone\n"


def test_every_part_has_programs() -> None:
    def names(*texts: str) -> set[str]:
        return {text.partition("(")[0] for text in texts}

    assert compare.STRATEGIES.keys() == set(STRATEGIES.names())
    assert all(names(*texts) == {name} for name, texts in compare.STRATEGIES.items())
    assert names(*compare.STOP_RULES, *compare.STOP_RULES_BY_SCORE) == set(STOP_RULES.names())
    assert names(*compare.SELECTIONS, *compare.SELECTIONS_BY_SCORE, *compare.SELECTIONS_BY_PAIRS) == set(
        SELECTIONS.names()
    )
    programs = [compare.draw(0, number) for number in range(2000)]
    assert {program.strategy for program in programs} == {*compare.STRATEGIES, compare.OWN}
    assert {unit for program in programs for unit in program.budget} == compare.SIZES.keys()
    assert {program.model for program in programs} == {*compare.TOYS, *compare.FUNCTIONS, "pocket"}
    assert {program.verifier for program in programs} == compare.VERIFIERS.keys()
    assert sum(program.many for program in programs) == 40


@pytest.mark.slow
def test_it_runs_by_its_path_from_anywhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, compare.__file__, "record", "out.jsonl", "--only", "1"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 programs of 1 strategies in ")
    compare.record(tmp_path / "here.jsonl", [1], seed=0)
    assert (tmp_path / "here.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
