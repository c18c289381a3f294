"""The page of the gateway: what is served, and in a real browser what it draws, runs and keeps to itself."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.addons.gateway import parts
from tests.addons.gateway.asking import function_models, refused, serving, url_of, write_keys
from tests.support.browser import CHROMIUM
from tests.support.devtools import Tab, tab

browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
ATTACK = parts.MARKUP


# ---- what is served ----


def test_the_page_needs_no_key_and_names_no_other_place(client, tmp_path):
    gateway = client(keys=write_keys(tmp_path, "anna", "bert"))
    reply = gateway.get("/")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert "{{" not in reply.text
    assert not re.search(
        r"https?:|//[a-z]|url\(|@import|<[^>]* on[a-z]+=|style=\"|innerHTML|localStorage|sessionStorage|cookie",
        reply.text,
    )
    refused(gateway.get("/v1/models"), 401, None, "invalid_api_key")


def test_the_policy_allows_the_pages_own_script_and_style_alone(client):
    reply = client().get("/")
    rules = {rule.split()[0]: rule.split()[1:] for rule in reply.headers["content-security-policy"].split("; ")}
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["frame-ancestors"] == ["'none'"]
    assert rules["connect-src"] == ["'self'"]
    for kind, source in (("script", rules["script-src"]), ("style", rules["style-src"])):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", reply.text, re.DOTALL)
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in source
        assert all(one.startswith("'sha256-") for one in source)


def test_the_page_is_there_for_get_at_its_own_path_and_host_alone(client):
    gateway = client()
    assert gateway.post("/", json={}).status_code == 405
    assert gateway.get("/index.html").status_code == 404
    refused(gateway.get("/", headers={"host": "evil.example"}), 403, None, "foreign_host")
    refused(gateway.get("/", headers={"origin": "https://evil.example"}), 403, None, "foreign_origin")


def test_models_have_the_most_tokens_and_their_price(client):
    gateway = client(limits={"tokens": 5000})
    one = gateway.get("/v1/models/toy").json()
    assert (one["most_tokens"], one["price"]) == (5000, None)
    priced = client(models={"toy": {"settings": {"usd_in": "0.15/M", "usd_out": "0.60/M"}}})
    assert priced.get("/v1/models/toy").json()["price"] == {
        "usd_in": 0.15,
        "usd_reused": None,
        "usd_out": 0.6,
        "usd_cache_write": None,
    }


# ---- in a browser ----


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture
def page(chromium: Tab) -> Iterator[Tab]:
    """The tab; at the end its console must have said nothing."""
    chromium.log.clear()
    chromium.urls.clear()
    yield chromium
    assert chromium.log == []


def home(server: Any) -> str:
    return url_of(server).removesuffix("/v1") + "/"


def fill(page: Tab, question: str, **fields: str) -> None:
    for name, value in {"question": question, **fields}.items():
        page.run(
            f"(() => {{ const it = document.getElementById('{name}'); it.value = {json.dumps(value)};"
            " it.dispatchEvent(new Event('change')); })()"
        )


def ask(page: Tab, question: str, **fields: str) -> None:
    fill(page, question, **fields)
    page.run("document.getElementById('go').click()")


def ended(page: Tab) -> str:
    page.wait_for(
        "document.getElementById('stop').disabled && "
        "!/^(Searching|Stopping)/.test(document.getElementById('status').textContent)"
    )
    page.wait_for("document.querySelector('#list button:not([disabled])') !== null")
    return page.text("status")


@pytest.fixture
def searched(page: Tab) -> Iterator[Any]:
    """The server of the page, on which a search has ended."""
    with serving() as server:
        page.open(home(server))
        ask(page, "3 + 4 - 2", seed="7")
        ended(page)
        yield server


@browser
def test_the_tree_grows_before_the_answer_is_there(page, tmp_path: Path):
    parts.GATE.clear()
    models = function_models("gated", strategy="sequential_revision(length=3)", budget=2000)
    with serving(models=models) as server:
        page.open(home(server))
        page.run("""(() => { window.seen = []; const look = () => seen.push([document.querySelectorAll('#tree [role=treeitem]').length,
            document.getElementById('outcome').hidden, document.getElementById('facts').textContent]);
            new MutationObserver(look).observe(document.getElementById('tree'), {childList: true}); })()""")  # noqa: E501
        ask(page, "3 + 4 - 2")
        page.wait_for("document.getElementById('status').textContent.startsWith('Searching')")
        assert page.run("document.getElementById('outcome').hidden")
        assert not page.run("document.getElementById('stop').disabled")
        parts.GATE.set()
        assert ended(page).startswith("Done. The answer is ")
        seen = page.run("seen")
        assert any(count >= 1 and hidden for count, hidden, _ in seen), seen
        number = page.run("document.querySelector('#list button').dataset.search")
        trace = httpx.get(f"{url_of(server)}/searches/{number}/trace").json()
        drawn = page.run("[...document.querySelectorAll('#tree [data-node]')].map((row) => Number(row.dataset.node))")
        assert sorted(drawn) == [node["node"] for node in trace["trace"]["nodes"]]
        starred = page.run("[...document.querySelectorAll('#tree .winner')].map((row) => Number(row.dataset.node))")
        above = {node["node"]: node["parent"] for node in trace["trace"]["nodes"]}
        path, at = list[int](), trace["winner"]
        while at is not None:
            path, at = [at, *path], above[at]
        assert starred == path


@browser
def test_the_answer_is_that_of_the_api_with_the_same_seed(page, searched):
    body = {"model": "toy", "messages": [{"role": "user", "content": "3 + 4 - 2"}], "seed": 7}
    reply = httpx.post(f"{url_of(searched)}/chat/completions", json=body).json()
    assert page.text("answer") == reply["tts"]["answer"]
    assert page.text("text") == reply["choices"][0]["message"]["content"]
    assert f"{reply['tts']['usage']['generated_tokens']} of 2,000" in page.text("facts")
    asked = [httpx.URL(url) for url in page.urls if not url.startswith("data:")]
    assert {url.host for url in asked} == {"127.0.0.1"}
    known = r"/(v1/(models|searches|chat/completions|searches/[\w-]+/(events|trace)))?"
    assert all(re.fullmatch(known, url.path) for url in asked)
    assert not [url for url in asked if url.query]


@browser
def test_markup_in_question_and_answer_runs_nothing(page):
    with serving(models=function_models("markup")) as server:
        page.open(home(server))
        ask(page, ATTACK)
        ended(page)
        assert page.text("asked") == ATTACK
        assert ATTACK in page.text("text")
        page.run("document.querySelector('#tree [role=treeitem]:last-child').click()")
        assert ATTACK in page.text("own")
        page.run("document.getElementById('more').click()")
        page.wait_for("document.querySelector('#full iframe') !== null && !document.getElementById('full').hidden")
        assert page.run("document.querySelector('iframe').getAttribute('sandbox')") == "allow-scripts"
        assert page.run("document.body.dataset.pwned === undefined && document.querySelector('img, b') === null")
        assert ATTACK in page.frame(
            "document.body.dataset.ready === 'true' && document.getElementById('problem').textContent"
        )
        assert page.frame("document.body.dataset.ready === 'true' && document.body.dataset.pwned === undefined")


@browser
@pytest.mark.usefixtures("searched")
def test_the_full_trace_draws_in_its_frame(page):
    page.run("document.getElementById('more').click()")
    page.wait_for("document.querySelector('#full iframe') !== null")
    # of another origin, without the key
    assert page.run("document.querySelector('iframe').contentDocument") is None
    text = page.frame("document.body.dataset.ready === 'true' && document.body.innerText")
    assert "Ledger" in text
    assert "3 + 4 - 2" in text


@browser
def test_an_old_search_is_opened_again(page):
    with serving() as server:
        replies = [
            httpx.post(
                f"{url_of(server)}/chat/completions",
                json={"model": "toy", "messages": [{"role": "user", "content": text}]},
            ).json()
            for text in ("3 + 4 - 2", "1 + 1")
        ]
        page.open(home(server))
        assert page.run(
            "[...document.querySelectorAll('#list button span:first-child')].map((one) => one.textContent)"
        ) == [
            "1 + 1",
            "3 + 4 - 2",
        ]
        page.run("document.querySelectorAll('#list button')[1].click()")
        page.wait_for("document.getElementById('status').textContent === 'The search is shown.'")
        assert page.text("asked") == "3 + 4 - 2"
        assert page.text("answer") == replies[0]["tts"]["answer"]
        assert page.run("document.activeElement.id") == "heading"
        assert page.run("document.querySelectorAll('#tree .winner').length") >= 2


@browser
def test_stop_cancels_the_search(page):
    with serving(models=function_models("forever")) as server:
        page.open(home(server))
        ask(page, "3 + 4 - 2")
        page.wait_for("!document.getElementById('stop').disabled")
        page.run("document.getElementById('stop').focus()")
        page.press("Enter")
        page.wait_for("document.getElementById('status').textContent === 'Stopped.'")
        page.wait_for("document.getElementById('stop').disabled")
        assert page.run("document.activeElement.id") == "go"
        assert page.run("document.getElementById('alert').hidden")
        gateway = server.config.app.state.gateway
        assert not gateway.running
        assert not gateway.books.held


@browser
def test_the_keyboard_alone_asks_and_reads_the_tree(page):
    with serving() as server:
        page.open(home(server))
        for _ in range(20):
            page.press("Tab")
            if page.run("document.activeElement.id") == "question":
                break
        page.type("3 + 4 - 2")
        page.press("Tab", "Tab")
        assert page.run("document.activeElement.id") == "preset"
        page.press("ArrowDown")
        page.press("Tab")
        assert page.run("document.activeElement.id") == "slider"
        before = page.run("Number(document.getElementById('tokens').value)")
        page.press("ArrowRight")  # the model's budget is the end, although the server allows more
        assert page.run("Number(document.getElementById('tokens').value)") == before
        page.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
        assert page.run("Number(document.getElementById('tokens').value)") < before
        page.press("Tab", "Tab", "Tab", "Tab")
        assert page.run("document.activeElement.id") == "go"
        page.press("Enter")
        ended(page)
        assert "single" in page.text("facts")
        for _ in range(20):
            page.press("Tab")
            if page.run("document.activeElement.getAttribute('role')") == "treeitem":
                break
        page.press("ArrowDown", "Enter")
        row = page.run("[document.activeElement.dataset.node, document.activeElement.getAttribute('aria-selected')]")
        assert row[1] == "true"
        assert page.text("about").startswith(f"Node {row[0]} ")
        page.press("ArrowLeft")
        assert page.run("document.activeElement.getAttribute('aria-level')") == "1"


@browser
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_a_phone(page, dark):
    page.send(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    )
    with serving() as server:
        page.open(home(server), width=360, height=740)
        wide = "document.documentElement.scrollWidth - window.innerWidth"
        assert page.run(wide) <= 0
        ask(page, "3 + 4 - 2 " + "9" * 300)
        ended(page)
        page.run("document.querySelector('#tree [role=treeitem]:last-child').click()")
        assert page.run(wide) <= 0
        page.run("document.getElementById('more').click()")
        page.wait_for("document.querySelector('iframe') !== null")
        assert page.frame(f"document.body.dataset.ready === 'true' && [{wide}]")[0] <= 0
        assert page.run(wide) <= 0
        light = page.run(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)"
        )
        assert (light < 300) == dark
    page.send("Emulation.setEmulatedMedia", features=[])


@browser
@pytest.mark.usefixtures("searched")
def test_every_control_has_a_name_and_states_are_told(page):
    tree = page.send("Accessibility.getFullAXTree")["nodes"]
    roles = [(one["role"]["value"], one.get("name", {}).get("value", "")) for one in tree if not one["ignored"]]
    controls = {"button", "textbox", "combobox", "slider", "spinbutton", "treeitem", "tree", "progressbar"}
    assert [role for role, name in roles if role in controls and not name] == []
    assert {"main", "status", "tree", "treeitem", "progressbar", "heading"} <= {role for role, _ in roles}
    assert page.run("document.getElementById('status').getAttribute('role')") == "status"


@browser
def test_an_error_is_the_gateways_own_line(page):
    with serving() as server:
        page.open(home(server))
        ask(page, "3 + 4 - 2", seed="12345678901234567890")
        assert page.text("alert").startswith("the seed is no whole number that a browser holds exactly")
        ask(page, "", seed="")
        assert page.text("alert") == "the question is empty; write one"
        ask(page, "3 + 4 - 2", tokens="200000")
        page.wait_for("!document.getElementById('alert').hidden && document.getElementById('stop').disabled")
        assert "this server allows 100000" in page.text("alert")
        page.wait_for("document.getElementById('status').textContent === 'The search ended without an answer.'")
    page.log[:] = [line for line in page.log if "400 (Bad Request)" not in line]  # the browser notes it


@browser
def test_another_key_sees_no_search(page, tmp_path: Path):
    with serving(keys=write_keys(tmp_path, "anna", "bert")) as server:
        page.open(home(server))
        assert page.text("status").startswith("This gateway asks for a key")
        assert page.run("document.activeElement.id === 'key' && document.getElementById('alert').hidden")
        fill(page, "3 + 4 - 2", key="key-of-nobody-0123456789")
        page.wait_for("document.getElementById('alert').textContent.includes('the key is missing or unknown')")
        fill(page, "3 + 4 - 2", key="key-of-anna-0123456789")
        page.wait_for("document.getElementById('preset').options.length === 2")
        page.run("document.getElementById('go').click()")
        ended(page)
        assert page.run("document.querySelectorAll('#list button').length") == 1
        fill(page, "3 + 4 - 2", key="key-of-bert-0123456789")
        page.wait_for("document.querySelectorAll('#list button').length === 0")
        page.wait_for("!document.getElementById('none').hidden")
        assert page.run("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
        assert not [url for url in page.urls if "key-of" in url]
        assert page.run("document.getElementById('shown').hidden")
        assert page.text("answer") == page.text("tree") == ""
    page.log[:] = [line for line in page.log if "401 (Unauthorized)" not in line]  # the browser notes it


@browser
def test_a_tree_that_cannot_be_watched_is_shown_at_the_end(page):
    with serving() as server:
        page.open(home(server))
        page.run("""(() => { const own = window.fetch; window.fetch = (path, options) =>
            path.endsWith("/events") ? Promise.resolve(new Response("{}", {status: 404})) : own(path, options); })()""")
        ask(page, "3 + 4 - 2")
        assert ended(page).startswith("Done. The answer is ")
        assert page.run("document.getElementById('alert').hidden")
        assert page.run("document.querySelectorAll('#tree .winner').length") == 2


@browser
def test_a_tree_of_many_nodes_is_drawn_in_part(page):
    with serving(models={"toy": {"strategy": "best_of_n(n=1000) | majority", "budget": 90000}}) as server:
        page.open(home(server))
        ask(page, "3 + 4 - 2")
        ended(page)
        assert page.text("count") == "Tree, 1,001 nodes; 601 are in the full trace alone"
        assert page.run("document.querySelectorAll('#tree .winner').length") == 2


@browser
def test_nodes_show_their_last_score(page):
    with serving(
        models={"toy": {"strategy": "best_of_n(n=8) | weighted", "verifiers": {"main": "toy(error=0.1)"}}}
    ) as server:
        page.open(home(server))
        ask(page, "3 + 4 - 2 + 5", seed="1")
        ended(page)
        number = page.run("document.querySelector('#list button').dataset.search")
        nodes = httpx.get(f"{url_of(server)}/searches/{number}/trace").json()["trace"]["nodes"]
        scores = {str(node["node"]): node["scores"]["main"][-1] for node in nodes if node["scores"].get("main")}
        assert len(set(scores.values())) > 1
        drawn = page.run("""[...document.querySelectorAll('#tree [data-node]')].filter((row) => row.querySelector('.chip.scored'))
            .map((row) => [row.dataset.node, Number(row.querySelector('.chip').textContent)])""")  # noqa: E501
        assert dict(drawn) == pytest.approx(scores, rel=0.01)
        assert page.run(
            "document.querySelector('#tree .chip.scored').parentElement.getAttribute('aria-label').includes(', score "
            "0.')"
        )
