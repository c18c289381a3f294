"""The recorded pools: figures computed from the files another way, programs in the sandbox, and the command at its
smallest size.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("research", reason="research is no part of the wheel")

import tts
from research.recorded import __main__ as command
from research.recorded import page, pools, programs
from tts_addons.code.sandbox import SandboxLimits, why_not

has_pools = pytest.mark.skipif(
    not (Path(os.environ.get("TTS_DATA_DIR", "none")) / "pools").is_dir(), reason="TTS_DATA_DIR has no recorded pools"
)
has_sandbox = pytest.mark.skipif(bool(why_not()), reason="programs cannot be isolated here")


@has_pools
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen25math", {"sample": 0.910, "any": 0.96, "majority": 0.93, "best": 0.94}),
        ("game24_cot", {"sample": 0.040, "any": 0.49, "majority": 0.08}),
        ("game24_io", {"sample": 0.073, "any": 0.33}),
        ("game24_tot", {"any": 0.69}),
        ("dates", {"sample": 0.951, "majority": 0.961}),
        ("crucible", {"first": 0.383, "sample": 0.382, "any": 0.700, "majority": 0.533, "best": 0.558}),
        ("bestofn", {"sample": 0.362, "any": 0.745, "majority": 0.545}),
    ],
)
def test_the_figures_of_a_pool_are_those_of_its_files(name: str, expected: dict[str, float]) -> None:
    found = pools.figures(pools.pool(name))
    assert {what: round(found[what], 3) for what in expected} == expected


@has_pools
def test_the_published_figures_of_the_process_model_are_met_the_source_s_way() -> None:
    """There the best of eight may be a text without a box, and texts without one vote as one answer; ties go to the
    first.
    """
    best, votes = list[bool](), list[bool]()
    for one in pools.pool("crucible").problems:
        best.append(
            max(((drawn.scores["main"], -i, drawn) for i, drawn in enumerate(one.drawn)), key=lambda of: of[:2])[
                2
            ].right
            is True
        )
        answers = [drawn.answer or "" for drawn in one.drawn]
        votes.append(one.drawn[answers.index(max(answers, key=answers.count))].right is True)
    assert (round(sum(best) / 120, 3), round(sum(votes) / 120, 3)) == (0.550, 0.525)


@has_pools
def test_auto_draws_the_recorded_samples_and_reaches_what_the_vote_reaches() -> None:
    pool = pools.pool("qwen25math")
    (alone, _), (total, mean) = page.replay_auto(pool, 8, 2), page.replay_auto(pool, 2, 16, shared=True)
    # as through a function model that hands out the samples
    assert (alone.accuracy.value, alone.samples) == (0.93, 4.4)
    assert (total.accuracy.value, total.samples) == (0.93, 2.0)
    assert mean.accuracy.value == pytest.approx(0.91, abs=0.02)  # two votes are one sample: a tie goes to the first


PROBLEM = programs.ProgramProblem(
    "sum",
    "def add(a, b):\n",
    "def check(f):\n    assert f(2, 3) == 5\ncheck(add)\n",
    ("    return a + b\n", "    return a * b\n", "    return b + a\n", "    while True: pass\n", "    return (\n"),
    {"assert add(2, 2) == 4": 3, "assert add(1, 2) == 3": 1, "assert add(1, 1) == 1": 2},
)


@has_sandbox
def test_programs_are_run_once_and_told_apart_by_the_tests_that_they_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_LIMITS", SandboxLimits(seconds=20))  # the endless program takes all of it
    told = programs.verdicts(PROBLEM, tmp_path / "kept.jsonl")
    assert [one.right for one in told] == [True, False, True, False, False]
    # an endless test ends; what is no program passes nothing
    assert [one.passed for one in told] == ["110", "101", "110", "000", ""]
    monkeypatch.setattr(programs, "run", None)  # from the file alone
    assert programs.verdicts(PROBLEM, tmp_path / "kept.jsonl") == told


def test_agreement_is_the_plain_way() -> None:
    told = [
        programs.Verdict(True, "110"),
        programs.Verdict(False, "101"),
        programs.Verdict(False, "110"),
        programs.Verdict(False, "000"),
    ]
    found = programs.agreement([3, 1, 2], told, range(4))
    # groups: 110 of two programs and weight 4, 101 of one and weight 5, 000 of one and 0; sqrt(2) * 4 > 5
    assert found == {"CodeT": 0.5, "most tests": 0.0, "largest group": 0.5}
    assert programs.agreement([3, 1, 2], told, [0])["CodeT"] == 1.0
    (alone,) = programs.mean_agreement([3, 1, 2], told, [1], 4000, np.random.default_rng(0))
    assert alone["CodeT"] == pytest.approx(0.25, abs=0.03)


def test_the_replayed_selection_is_the_agreement_of_the_page() -> None:
    rng = np.random.default_rng(5)
    kinds = rng.integers(0, 2, (4, 3))  # programs of four kinds
    passed, right = kinds[rng.integers(0, 4, 12)], rng.random(12) < 0.5
    weights, sizes = [3, 1, 2], [1, 2, 4, 8, 12]
    told = [programs.Verdict(bool(r), "".join(map(str, row))) for r, row in zip(right, passed, strict=True)]
    expected = [one["CodeT"] for one in programs.mean_agreement(weights, told, sizes, 4000, rng)]
    outcomes = np.repeat(passed, weights, axis=1).tolist()  # a test as often as it was written
    row = {
        "problem": "p",
        "answer": [str(i) for i in range(12)],
        "correct": right.tolist(),
        "steps": {"tests": outcomes},
    }
    (curve,) = tts.Pool.from_rows([row], task="text").replay(["best_of_n | codet(verifier='tests')"], sizes, draws=4000)
    assert [one.value for one in curve.curve.accuracy] == pytest.approx(expected, abs=0.03)


def test_written_tests_are_taken_as_the_authors_take_them() -> None:
    written = "add(1, 2) == 3, 'three'\nassert add(2, 2) == 4\n\ndef other(): pass\nassert nothing\nassert add(1 == 2"
    assert programs.written_tests(written, "add") == ["assert add(1, 2) == 3, 'three'", "assert add(2, 2) == 4"]


@has_pools
@has_sandbox
def test_the_command_writes_its_page_at_the_smallest_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["--draws", "2", "--every", "164", "--only", "qwen25math", "game24_tot", "humaneval"]
    monkeypatch.setattr(
        "sys.argv", ["recorded", *arguments, "--kept", str(tmp_path / "kept.jsonl"), "--out", str(tmp_path)]
    )
    command.main()
    assert capsys.readouterr().out.strip() == str(tmp_path / "recorded.md")
    text = (tmp_path / "recorded.md").read_text()
    assert text.count("\n- `") == 3 + 3
    for row in ("`pass@k`", "`posterior`", "`sprt`", "`reasc(", "`auto, at most 8 each`", "`CodeT`"):
        assert f"| {row}" in text
    assert all((tmp_path / f"recorded_{name}.svg").stat().st_size > 5_000 for name in ("qwen25math", "humaneval"))


def test_without_pools_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTS_DATA_DIR", raising=False)
    monkeypatch.setattr("sys.argv", ["recorded", "--only", "dates"])
    with pytest.raises(SystemExit, match="TTS_DATA_DIR"):
        command.main()


@has_pools
def test_the_later_methods_have_a_row_for_each_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from research.methods import new_methods

    monkeypatch.setattr(new_methods, "CHANCES", (0.75,))
    monkeypatch.setattr("sys.argv", ["new_methods", "--problems", "2", "--draws", "2", "--out", str(tmp_path)])
    new_methods.main()
    page = (tmp_path / "new_methods.md").read_text(encoding="utf-8")
    for plan in ("random choice", *new_methods.SELECTIONS, *new_methods.STOPS, *new_methods.JUDGED):
        assert f"| `{plan}` |" in page
    for plans in new_methods.TOY.values():
        assert all(f"`{plan.replace('|', chr(92) + '|')}`" in page for plan in plans)
    assert "| `random choice` | 38.2 " in page  # the mean of all samples of MATH-500, as the files have it


def test_a_judge_of_a_known_law_is_right_as_often_as_it_says() -> None:
    """Of two samples that differ a judge with the chance 1 always finds the right one; one with 1/2 is a coin."""
    from research.methods.new_methods import judged_accuracy

    sure, _ = judged_accuracy("knockout", 1 - 1e-9, 30)
    coin, _ = judged_accuracy("knockout", 0.5, 30)
    assert np.mean(sure) > np.mean(coin)
    assert np.mean(sure) > 0.8  # any of eight, of chances from .1 to .6
