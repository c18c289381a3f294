"""What the model wrote, in a study as a user runs it: exported as rows, and as one page in a real browser."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import tts
from tests.support.browser import CHROMIUM, add_script, colours, open_page
from tests.trace.test_html import ATTACK, ODD, ODD_SHOWN
from tts.backends.function import FunctionBackend
from tts.errors import ConfigError
from tts.experiments.output.logs import Sampled
from tts.experiments.output.samples import samples_page
from tts.experiments.store.store import Store

in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
THOUGHT = "Let me add these."
PROMPTS = {"one": "What is 3 + 4?", "two": "What is 5 + 5?"}


class Thinker(FunctionBackend):
    """A model that thinks, and says 7 to everything."""

    @classmethod
    def from_record(cls, record: Any) -> Thinker:
        return cls(lambda ask: tts.Answer(f"<think>{THOUGHT}</think>\nThe answer is \\boxed{{7}}.", tokens=12))


@pytest.fixture
def study(tmp_path: Path) -> tts.Study:
    """A study of a model that thinks, on a file, in which only texts are recorded."""
    rows = [{"id": name, "problem": PROMPTS[name], "answer": answer} for name, answer in (("one", "7"), ("two", "10"))]
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = tts.Study(
        name="written",
        models={"mine": {"backend": f"{__name__}:Thinker"}},
        task="math",
        problems={"dataset": str(tmp_path / "problems.jsonl")},
        strategies=["best_of_n | majority", "single"],
        budgets=[{"samples": 2}],
        seeds=2,
    )
    made.run(tmp_path / "store.sqlite", progress=False)
    return made


def test_a_study_without_samples_is_named_and_told_how_they_are_kept(tmp_path: Path) -> None:
    made = tts.Study(
        name="bare",
        models="toy",
        problems={"dataset": "arithmetic", "limit": 1},
        strategies="single",
        budgets=[100],
        record={"candidates": False, "texts": False},
    )
    made.run(tmp_path / "store.sqlite", progress=False)
    with Store.existing(tmp_path / "store.sqlite") as store:
        assert not any(store.source(result.cell.key) for result in store.results(store.find().id))
    with pytest.raises(ConfigError, match=r"result.*'bare'"):
        made.export(tmp_path / "samples.jsonl", "samples")
    with pytest.raises(ConfigError, match="no result has samples") as refused:
        made.samples(tmp_path / "page.html")
    assert "record: {texts: true}" in refused.value.hint


def test_rows_have_all_that_was_written_and_all_that_says_by_whom(study: tts.Study, tmp_path: Path) -> None:
    assert study.export(tmp_path / "samples.jsonl", "samples") == 8
    rows = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert {(row["strategy"], row["seed"], row["model"]) for row in rows} == {
        (strategy, seed, "mine") for strategy in ("best_of_n | majority", "single | majority") for seed in (0, 1)
    }
    for row in rows:
        count = 2 if row["strategy"].startswith("best") else 1
        assert row["budget"] == {"samples": 2}
        assert row["prompt"] in PROMPTS.values()
        assert row["text"] == ["The answer is \\boxed{7}."] * count
        assert row["thought"] == [THOUGHT] * count
        assert row["answer"] == ["7"] * count
        assert row["correct"] == [row["prompt"] == PROMPTS["one"]] * count
        assert row["tokens"] == [12] * count


def test_texts_go_with_failed_results_that_run_again(study: tts.Study) -> None:
    """What a cell wrote the last time is what its page shows."""
    with Store.existing(study.store) as store:
        found = store.find()
        result = next(iter(store.results(found.id)))
        assert store.source(result.cell.key) is not None
        with store._writing() as db:
            db.execute(
                "UPDATE results SET failed = 1 WHERE cell = (SELECT id FROM cells WHERE key = ?)", (result.cell.key,)
            )
        assert store.forget_failures(found.id) == 1
        assert store.source(result.cell.key) is None


@pytest.mark.slow
def test_the_command_writes_the_page(study: tts.Study, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from tts.cli.app import app

    done = CliRunner().invoke(
        app, ["show", "written", "--samples", str(tmp_path / "page.html"), "--store", str(study.store)]
    )
    assert done.stdout == f"12 samples in {tmp_path / 'page.html'}\n"
    page = (tmp_path / "page.html").read_text()
    assert "default-src 'none'" in page
    assert "{{" not in page.partition('<script type="application/json"')[0]
    refused = CliRunner().invoke(app, ["show", "written", "--samples", "page.txt", "--store", str(study.store)])
    assert refused.exit_code == 2
    assert "must end in .html" in refused.stderr


DRIVER = """
const $ = (id) => document.getElementById(id);
const log = {};
const rows = () => document.querySelectorAll("#rows [data-sample]").length;
const filter = (name, word) => {
  const select = document.querySelector(`[data-filter="${name}"]`);
  select.value = [...select.options].find((option) => option.textContent === word).value;
  select.dispatchEvent(new Event("change"));
};
const type = (text) => { $("search").value = text; $("search").dispatchEvent(new Event("input")); };
log.filters = [...document.querySelectorAll("[data-filter]")].map((select) => select.dataset.filter);
log.all = [rows(), $("count").textContent];
filter("outcome", "wrong");
log.wrong = rows();
filter("strategy", "single | majority");
log.both = rows();
filter("outcome", "all");
filter("strategy", "all");
type("these 3 +");
log.sought = [rows(), [...document.querySelectorAll("mark")].map((mark) => mark.textContent)];
log.thought = $("thought").textContent;
log.text = $("text").textContent;
document.querySelectorAll("#rows [data-sample]")[1].click();
log.pressed = [...document.querySelectorAll("#rows [data-sample]")].map((row) => row.getAttribute("aria-pressed")).indexOf("true");
document.dispatchEvent(new KeyboardEvent("keydown", {key: "j", bubbles: true}));
log.moved = [...document.querySelectorAll("#rows [data-sample]")].map((row) => row.getAttribute("aria-pressed")).indexOf("true");
type("nowhere");
log.none = [rows(), $("detail").textContent];
type("");
log.wide = document.documentElement.scrollWidth - window.innerWidth;
document.body.dataset.log = JSON.stringify(log);
"""  # noqa: E501


@pytest.mark.slow
@in_browser
def test_the_page_is_searched_and_filtered(study: tts.Study, tmp_path: Path) -> None:
    study.samples(tmp_path / "samples.html")
    page = open_page(add_script((tmp_path / "samples.html").read_text(), DRIVER), tmp_path, size="1400,900")
    assert page.log == []
    assert page.body.get("data-ready") == "true"
    log = json.loads(page.body["data-log"])
    assert log["filters"] == ["outcome", "of the run", "strategy", "seed", "problem"]
    assert log["all"] == [12, "12 samples of 12"]
    assert (log["wrong"], log["both"]) == (6, 2)
    assert log["sought"][0] == 6
    assert {"these", "3"} <= set(log["sought"][1])
    assert log["thought"] == THOUGHT
    assert "The answer is \\boxed{7}." in log["text"]
    assert (log["pressed"], log["moved"]) == (1, 2)
    assert log["none"] == [0, "No sample fits."]
    assert log["wide"] <= 0
    size, count = colours(tmp_path / "page.png")
    assert size == (1400, 900)
    assert count > 64


@pytest.mark.slow
@in_browser
def test_texts_of_others_stay_texts(study: tts.Study, tmp_path: Path) -> None:
    from tts.experiments.store.rows import with_texts

    def hostile(result: Any, body: bytes | None) -> Sampled:
        found, source = with_texts(result, body)
        texts = [ATTACK + ODD] * len(source["texts"])
        cell = dataclasses.replace(found.cell, strategy=ATTACK, problem=ATTACK)
        return dataclasses.replace(found, cell=cell, answer=ATTACK), source | {
            "texts": texts,
            "prompt": ATTACK,
            "thoughts": texts,
        }

    with Store.existing(study.store) as store:
        pool = [hostile(result, store.source(result.cell.key)) for result in store.results(store.find().id)]
    made, count = samples_page(ATTACK, pool)
    page = open_page(made, tmp_path, size="1000,800")
    assert count == 12
    assert page.log == []
    assert "data-pwned" not in page.body
    assert page.find_id("text").text == ATTACK + ODD_SHOWN
    assert page.find_id("prompt").text == ATTACK
    assert len([element for element in page.elements if element.tag == "script"]) == 2


@pytest.mark.slow
@in_browser
def test_long_lists_are_drawn_in_pieces(study: tts.Study, tmp_path: Path) -> None:
    from tts.experiments.store.rows import with_texts

    with Store.existing(study.store) as store:
        pool = [with_texts(result, store.source(result.cell.key)) for result in store.results(store.find().id)]
    made, count = samples_page("long", pool * 30)
    script = (
        "document.getElementById('more').click(); document.body.dataset.log = "
        "document.querySelectorAll('[data-sample]').length"
    )
    page = open_page(add_script(made, script), tmp_path, size="1000,800")
    assert count == 360
    assert page.body["data-log"] == "200"
