"""A study as one page, in a real browser: what it says, that it runs no text of others, and that its controls work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.experiments import made as makes
from tests.support.browser import CHROMIUM, add_script, colours, open_page
from tests.trace.test_html import ATTACK, ODD, ODD_SHOWN, hostile_beams
from tts.errors import ConfigError
from tts.experiments.output.report import report
from tts.experiments.run.runner import PreparedStudy, run
from tts.experiments.store.store import Store
from tts.experiments.study.config import study_config as configured
from tts.experiments.study.record import Result, StoredStudy
from tts.trace.trace import Trace

pytest.importorskip("matplotlib", reason="figures need the extra experiments")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
VOTE, ONE = "best_of_n | majority", "single | majority"


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A study that was run on the toy."""
    config = configured(
        {
            "name": "toy sums",
            "models": "toy",
            "problems": {
                "dataset": "arithmetic",
                "limit": 4,
                "group_by": "operations",
                "operators": "+-",
                "parentheses": False,
            },
            "strategies": [VOTE, ONE],
            "budgets": [{"samples": [1, 8]}],
            "record": {"traces": 2},
        }
    )
    with PreparedStudy(config) as prepared, Store(tmp_path_factory.mktemp("study") / "store.sqlite") as store:
        run(prepared, store)
        yield store


def page_of(store: Store, **options) -> str:
    return report(store, store.find(), rng=np.random.default_rng(0), **options)


@pytest.fixture(scope="module")
def html(opened: Store) -> str:
    return page_of(opened)


def data_of(page: str) -> list[dict]:
    text = page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    return json.loads(text)["searches"]


DRIVER = """
const $ = (id) => document.getElementById(id);
const log = {};
const frames = () => [...document.querySelectorAll("iframe")];
const ready = (frame) => { const body = frame.contentDocument?.body; return body?.dataset.ready === "true" && !body.dataset.old; };
const drawn = async () => { while (!frames().every(ready)) await new Promise((done) => setTimeout(done, 20)); };
const shown = () => [...document.querySelectorAll("figure")].filter((one) => one.getBoundingClientRect().height > 100).map((one) => one.id);
const inside = (place, selector) => frames()[place].contentDocument.querySelectorAll(selector);
const change = async (select, value) => {
  for (const frame of frames()) frame.contentDocument.body.dataset.old = "1";
  select.value = value;
  select.dispatchEvent(new Event("change"));
};
(async () => {
  log.axes = [...$("axes").children].map((button) => button.textContent);
  log.first = shown();
  $("axes").children[1].click();
  log.second = shown();
  await drawn();
  log.nodes = [0, 1].map((place) => inside(place, ".node").length);
  log.titles = [0, 1].map((place) => inside(place, "#facts")[0].textContent);
  const node = inside(0, '.node[data-node="1"]')[0];
  log.hover = node.title;
  node.click();
  log.selected = inside(0, "#side h2")[0].textContent;
  inside(0, '.node[data-node="0"] .knob')[0].click();
  log.closed = inside(0, ".node").length;
  inside(0, '.node[data-node="0"] .knob')[0].click();
  log.opened = inside(0, ".node").length;
  const select = $("left").querySelector("select");
  for (const option of select.options) if (option.textContent.includes("samples=1")) {
    frames()[0].contentDocument.body.dataset.old = "1";
    select.value = option.value;
    break;
  }
  select.dispatchEvent(new Event("change"));
  await drawn();
  log.changed = inside(0, ".node").length;
  await change($("problem"), $("problem").options[1].value);
  await drawn();
  log.other = [0, 1].map((place) => inside(place, "#problem")[0].textContent);
  $("both").click();
  log.alone = [$("right").hidden, $("left").getBoundingClientRect().width > 1000];
  $("both").click();
  log.pair = [$("right").hidden, $("left").getBoundingClientRect().width > 1000];
  log.wide = document.documentElement.scrollWidth - window.innerWidth;
  document.body.dataset.log = JSON.stringify(log);
})();
"""  # noqa: E501


@in_browser
def test_figures_trees_and_their_controls_work(html: str, tmp_path: Path) -> None:
    page = open_page(add_script(html, DRIVER), tmp_path, size="1400,2400")
    assert page.log == []
    assert page.body.get("data-ready") == "true"
    log = json.loads(page.body["data-log"])
    assert log["axes"] == [
        "tokens",
        "samples",
        "requests",
        "generated tokens",
        "FLOPs",
        "seconds",
        "KV bytes",
        "by group",
    ]
    assert log["first"] == ["figure-tokens"]
    assert log["second"] == ["figure-samples"]
    assert log["titles"][0] != log["titles"][1]
    assert VOTE in log["titles"][0]
    assert ONE in log["titles"][1]
    assert log["nodes"][1] == 2
    assert log["hover"].startswith("#1 · ")
    assert "tokens" in log["hover"]
    assert log["selected"].startswith("Node 1")
    assert log["closed"] == 1
    assert log["opened"] == log["nodes"][0]
    assert log["changed"] == 2
    assert log["other"][0] == log["other"][1]
    assert log["other"][0] != json.loads(data_of(html)[0]["trace"])["trace"]["problem"]
    assert log["alone"] == [True, True]
    assert log["pair"] == [False, False]
    assert log["wide"] <= 0
    for words in (
        "toy sums",
        "16 of 16 done",
        "Compared with",
        VOTE,
        "accuracy [95 %]",
        "arithmetic: 4 problems · 1 seed · model: toy",
    ):
        assert words in page.text
    size, count = colours(tmp_path / "page.png")
    assert size == (1400, 2400)
    assert count > 64


def test_it_loads_nothing(html: str) -> None:
    assert "default-src 'none'" in html
    for scheme in ('src="http', "url(http", "@import", "<link"):
        assert scheme not in html
    assert "{{" not in html.replace("{{TRACE}}", "")


def test_the_same_study_gives_the_same_page(opened: Store, html: str) -> None:
    assert page_of(opened) == html


def test_every_drawing_has_ids_of_its_own(html: str) -> None:
    ids = [part.partition('"')[0] for part in html.partition('<script type="application/json"')[0].split(' id="')[1:]]
    assert len(ids) == len(set(ids)) > 100


def test_searches_of_a_few_problems_are_shown_and_only_they_are_read(
    opened: Store, html: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study may have kept more than fits into memory."""
    searches = data_of(html)
    problems = list(dict.fromkeys(search["problem"] for search in searches))
    assert len(problems) == 2
    assert [search["label"].partition(" · ")[0] for search in searches] == [VOTE, VOTE, ONE, ONE] * 2
    read: list[str] = []
    trace_of = Store.trace
    with monkeypatch.context() as patched:
        patched.setattr("tts.experiments.output.report._figures", lambda *_: "")
        patched.setattr(Store, "trace", lambda self, key: (read.append(key), trace_of(self, key))[1])
        patched.setattr("tts.experiments.output.report._MOST_PROBLEMS", 1)
        one = data_of(page_of(opened))
    assert len({search["problem"] for search in one}) == 1
    assert len(one) == len(set(read)) == len(read) == 4
    recorded = {trace for result in opened.results(opened.find().id) if (trace := opened.trace(result.cell.key))}
    trees = [Trace.from_json(trace.decode()).to_dict()["nodes"] for trace in recorded]
    assert json.loads(searches[0]["trace"])["trace"]["nodes"] in trees


def test_a_baseline_or_axis_that_is_not_there_is_refused(opened: Store) -> None:
    with pytest.raises(ConfigError, match="baseline is 'bon'"):
        page_of(opened, baseline="bon")
    with pytest.raises(ConfigError, match="did you mean tokens"):
        page_of(opened, x="token")


# ---- pages of studies that are made up ----


def made(path: Path, *results: Result, name: str = "made up", trace: Trace | None = None) -> tuple[Store, StoredStudy]:
    store = Store(path / "store.sqlite")
    number = store.begin(name, {"commit": None, "versions": {"python": ATTACK}})
    store.add(number, [result.cell for result in results])
    store.lease(number, "worker", len(results))
    for result in results:
        assert store.finish("worker", result, None if trace is None else trace.to_json().encode())
    return store, store.find()


def result(problem: str, **changes) -> Result:
    of = makes.cell(problem, problem=problem, model=changes.pop("model", "toy"), strategy=VOTE)
    return makes.result(of, 5, **changes)


def test_the_page_says_where_problems_are_from(html: str) -> None:
    assert "<dt>data set arithmetic</dt><dd>4 problems; generated here, without end; licence: Apache-2.0</dd>" in html


LOOK_INSIDE = """
setTimeout(() => {
  const inner = document.querySelector("iframe").contentDocument;
  document.body.dataset.inner = `${inner.querySelectorAll(".node").length} ${inner.body.dataset.pwned}`;
}, 1500);
"""


@in_browser
def test_what_others_wrote_is_text(tmp_path: Path) -> None:
    answer = ATTACK + " and so on" * 1000
    hostile = result(ATTACK + "\n" + ODD.replace("\ud800", ""), answer=answer, model=ATTACK, stopped_by=ATTACK)
    store, study = made(tmp_path, hostile, name=ATTACK, trace=hostile_beams())
    with store:
        html = report(store, study, rng=np.random.default_rng(0))
    page = open_page(add_script(html, LOOK_INSIDE), tmp_path, size="1200,1600")
    assert page.log == []
    assert "data-pwned" not in page.body
    assert page.body["data-inner"] == f"{len(hostile_beams().nodes)} undefined"
    assert not [element for element in page.elements if element.tag == "img"]
    assert next(element.text for element in page.elements if element.tag == "h1") == ATTACK
    assert ATTACK in page.text
    assert ODD_SHOWN.split("c")[0] in page.text
    assert data_of(html)[0]["answer"] == answer
    (outcome, _) = page.find_class("outcome")
    assert outcome.text.startswith(f"✓ right · answer {ATTACK}")
    assert f" … ({len(answer):,} characters) · 5 tokens" in outcome.text
    assert len(outcome.text) < 300


def test_without_reference_answers_it_has_the_table_and_says_why_there_is_no_figure(tmp_path: Path) -> None:
    store, study = made(tmp_path, result("p", right=None))
    with store:
        page = report(store, study, rng=np.random.default_rng(0))
    assert "No figure: results without a reference answer: 1 of data set &#x27;sums&#x27;" in page
    assert "1 of 1 problems have no reference answer" in page
    assert "<svg" not in page


def test_a_study_that_has_only_begun_has_a_page(tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        store.begin("made up", {})
        page = report(store, store.find(), rng=np.random.default_rng(0))
    assert "No figure: there is nothing to draw: no run is finished." in page
    assert "No run is finished yet." in page
