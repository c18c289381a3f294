"""The commands of research/ at their smallest sizes: every page and row that they promise is written, and only where
they are told to.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("research", reason="research is no part of the wheel")

from research.methods.thresholds import THRESHOLDS
from research.pocket import card

ROOT = Path(__file__).parents[2]


def started(module: str, *arguments: str) -> str:
    """Return what a command prints, run in a process of its own in the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False, cwd=ROOT, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def main_of(module: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command in this process."""
    import importlib

    monkeypatch.setattr(sys, "argv", [module, *arguments])
    importlib.import_module(module).main()


@pytest.fixture
def chosen(tmp_path: Path) -> Path:
    """A folder with what the validation split chose."""
    shutil.copy(ROOT / "docs/results/methods_choices.json", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_searches_over_turns_of_an_agent_have_a_row_for_each_size(tmp_path: Path) -> None:
    small = ("--runs", "2", "--seeds", "1", "--sizes", "4", "8", "--limit", "2")
    started("research.patches", *small, "--store", str(tmp_path / "store.sqlite"), "--out", str(tmp_path / "pages"))
    page = (tmp_path / "pages" / "patches.md").read_text(encoding="utf-8")
    assert "Made by `python -m research.patches --runs 2 --seeds 1 --sizes 4 8 --limit 2`" in page
    assert [size for size in ("4", "8") if f"| `beam(n={size}) \\| best` |" in page] == ["4", "8"]
    assert "| 2 | " in page.partition("Independent runs:")[2]


@pytest.mark.slow
def test_the_allocator_on_the_pair_has_its_page_and_figures(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    small = (
        "--limit",
        "3",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--store",
        str(tmp_path / "s.sqlite"),
        "--out",
        str(tmp_path),
    )
    started("research.allocation.pair", *small)
    page = (tmp_path / "allocator.md").read_text()
    assert "Made by `python -m research.allocation.pair`" in page
    for title in (
        "What is asked of it",
        "Against others at the same tokens",
        "Which resource binds",
    ):
        assert f"## {title}" in page
    assert page.count("| `auto` | ") == 5
    assert len(re.findall(r"^\| \d{3} tokens, seed 0 \|", page, re.MULTILINE)) == 5
    for figure in re.findall(r"!\[\]\((.*)\)", page):
        assert (tmp_path / figure).stat().st_size > 10_000


@pytest.mark.slow
def test_the_performance_model_is_fitted_and_written_where_models_ship(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from research.allocation.pair import fitting
    from tts.allocator import shipped
    from tts.allocator.performance import PerformanceModel

    assert (shipped_before := shipped.FOLDER) == ROOT / "tts/models/pocket/performance"
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    fitting.fit(tmp_path / "s.sqlite", 1, 20)
    for name in fitting.KINDS:
        found = PerformanceModel.load(str(tmp_path / f"{name}.json"))
        assert found.problems == 20
        assert not found.fits(
            found.model, found.task, PerformanceModel.load(str(shipped_before / f"{name}.json")).verifiers
        )


@pytest.mark.slow
def test_the_range_of_the_methods_is_chosen_by_levels(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    small = (
        "--choose-range",
        "--limit",
        "10",
        "--jobs",
        "1",
        "--store",
        str(tmp_path / "s.sqlite"),
        "--out",
        str(tmp_path),
    )
    started("research.methods", *small)
    assert len(json.loads((tmp_path / "methods_choices.json").read_text())["levels"]) == 10


@pytest.mark.slow
def test_the_reasons_have_a_row_for_each_search_and_charge(chosen: Path) -> None:
    pytest.importorskip("torch")
    small = (
        "--reasons",
        "--limit",
        "1",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--store",
        str(chosen / "s.sqlite"),
        "--out",
        str(chosen),
    )
    started("research.methods", *small)
    page = (chosen / "methods_by_verifier.md").read_text()
    from research.methods import reasons

    each = len(reasons.SEARCHES) + len(reasons.GAINS)
    assert len(re.findall(r"\n\| \d+% \| `", page)) == len(reasons.ERRORS) * each
    assert len(re.findall(r"^\| (?:REBASE|ETS, charge .*?) \|", page, re.MULTILINE)) == 1 + len(reasons.CHARGES) + 2


@pytest.mark.slow
def test_every_guide_has_its_rows(chosen: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    small = (
        "--compare",
        "--limit",
        "1",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "--store",
        str(chosen / "s.sqlite"),
        "--out",
        str(chosen),
    )
    started("research.methods.verifiers", *small, "--choices", str(chosen))
    page = (chosen / "verifiers.md").read_text()
    from research.methods import guides

    for guide in guides.GUIDES:
        rows = re.findall(rf"^\| .* \| {guide} \| \d+ \| ", page, re.MULTILINE)
        assert len(rows) == (len(guides.SAMPLED) + len(guides.SEARCHED)) * len(guides.SIZES)
        assert re.search(rf"\b{guide} [\d.]+\d[,.]", page)


def test_the_cheap_verifiers_have_a_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from research.methods import verifiers

    monkeypatch.setattr(sys, "argv", ["verifiers", "--candidates", "8"])
    monkeypatch.setattr(verifiers, "LIMIT_S", float("inf"))
    verifiers.main()
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"8 candidates of \d+ tokens$", lines[0])
    assert [re.split(r"  +", line)[1] for line in lines[1:]] == [*verifiers.CHEAP, "together"]


def test_the_tables_of_the_card_are_written_between_their_marks(tmp_path: Path) -> None:
    name = "tts/models/pocket/README.md"
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(
        re.sub(r"(<!-- tables -->\n).*?(<!-- end)", r"\1old\n\2", (ROOT / name).read_text(), flags=re.DOTALL)
    )
    measured = ROOT / "tts/models/pocket/evaluation.json"
    card.fill(measured, tmp_path)
    for written in (name, "tts/models/pocket/evaluation.json"):
        assert (tmp_path / written).read_text() == (ROOT / written).read_text()
    (tmp_path / name).write_text("no marks")
    with pytest.raises(SystemExit, match=r"README\.md.*0.*tables"):
        card.fill(measured, tmp_path)
    with pytest.raises(SystemExit, match=r"README\.md.*output.*research\.pocket\.evaluate"):
        card.fill(tmp_path / name, tmp_path)


def test_methods_without_choices_end_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    with pytest.raises(SystemExit, match=r"methods_choices\.json.*read \(hint"):
        main_of(
            "research.methods.__main__",
            "--out",
            str(tmp_path),
            "--store",
            str(tmp_path / "s.sqlite"),
            monkeypatch=monkeypatch,
        )


@pytest.mark.parametrize(
    "module", ["pocket.train", "pocket.evaluate", "pocket.card", "methods", "methods.verifiers", "allocation.pair"]
)
def test_a_command_says_what_it_takes(
    module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    name = (
        f"research.{module}"
        if "." in module and module.split(".")[1] in ("card", "verifiers")
        else f"research.{module}.__main__"
    )
    with pytest.raises(SystemExit) as ended:
        main_of(name, "--help", monkeypatch=monkeypatch)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


@pytest.mark.slow
def test_selections_by_score_have_a_row_each_and_a_difference_to_the_vote(tmp_path: Path, chosen: Path) -> None:
    pytest.importorskip("torch")
    options = ["--limit", "6", "--samples", "8", "--draws", "2", "--store", str(tmp_path / "store.sqlite")]
    started("research.methods.selections", *options, "--out", str(tmp_path), "--choices", str(chosen))
    page = (tmp_path / "selections.md").read_text()
    assert page.partition("## Accuracy")[2].partition("\n## ")[0].count("| best of majority, alpha ") == len(THRESHOLDS)
    for row in ("majority", "best, log-probability plus log-odds", "rpc, inverse perplexity"):
        assert f"\n| {row} | " in page


@pytest.mark.slow
def test_confidences_have_an_auc_and_a_row_for_each_selection_and_plan(tmp_path: Path, chosen: Path) -> None:
    pytest.importorskip("torch")
    from research.methods.confidences import CHOOSERS, LIVE_PLANS, ROLES

    options = [
        "--limit",
        "6",
        "--samples",
        "4",
        "--draws",
        "2",
        "--online",
        "2",
        "--store",
        str(tmp_path / "store.sqlite"),
    ]
    started("research.methods.confidences", *options, "--out", str(tmp_path), "--choices", str(chosen))
    page = (tmp_path / "confidences.md").read_text()
    scores, selections, live = page.split("\n## ")[1:]
    assert scores.count("| `confidence") == len(ROLES)
    assert selections.count("\n| ") == 2 + 3 + len(CHOOSERS) * len(ROLES)
    assert all(f"\n| {plan} | " in live for plan in LIVE_PLANS)


def test_the_second_wave_has_a_row_for_each_plan_and_budget(
    tmp_path: Path, chosen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from research.methods.second_wave import PLANS

    arguments = (
        "--limit",
        "2",
        "--seeds",
        "1",
        "--budgets",
        "40",
        "80",
        "--store",
        str(tmp_path / "s.sqlite"),
        "--out",
        str(tmp_path),
    )
    main_of("research.methods.second_wave", *arguments, "--choices", str(chosen), monkeypatch=monkeypatch)
    page = (tmp_path / "second_wave.md").read_text()
    assert page.count(" | `") == 2 * sum(map(len, PLANS.values()))
    assert page.count("| – | – | – |") == 2 * len(PLANS), "the first plan of a group is held against nothing"


def test_samplers_of_a_power_have_a_row_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from research.methods.power_rounds import PLANS

    main_of(
        "research.methods.power_rounds", "--limit", "1", "--n", "2", "--out", str(tmp_path), monkeypatch=monkeypatch
    )
    rows = [line for line in (tmp_path / "power_rounds.md").read_text().splitlines() if line.startswith("| `")]
    assert len(rows) == len(PLANS)
    rounds = [float(row.split(" | ")[1].split()[0]) for row in rows]
    assert rounds[0] == 1.0
    assert rounds[1] < rounds[3] < rounds[4]


def test_labels_by_rollouts_are_compared_with_exact_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ("--problems", "4", "--samples", "2", "--k", "2", "--out", str(tmp_path / "pages"))
    main_of("research.methods.step_labels", *sizes, monkeypatch=monkeypatch)
    rows = [line for line in (tmp_path / "pages" / "step_labels.md").read_text().splitlines() if ", k = 2 |" in line]
    assert [row.split(",")[0] for row in rows] == ["| each", "| first_error"]
