"""Pools and studies that batches answer: the same table as a live run's, whatever breaks on the way, and each request
paid once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.backends.openai.server import ToyServer, serving
from tests.experiments.studies import final
from tests.support.batches import BatchServer, serving_batches
from tests.support.guard import LIMIT_S
from tts.backends.openai import batches
from tts.backends.openai.batch_book import BatchRequest
from tts.backends.openai.errors import Key
from tts.cli.app import app
from tts.experiments.store.store import Store

pytest.importorskip("yaml")
STUDY = """
name: sums
models: {{srv: {{model: toy, url: "{url}", options: {{mode: chat}}}}}}
problems: {{dataset: arithmetic, limit: {limit}, operations: [2, 3], operators: +-, parentheses: false}}
strategies: [best_of_n | majority]
budgets: {{samples: [1, 4]}}
"""


@dataclass
class Place:
    """A folder with a study, its servers, and the commands there."""

    toy: ToyServer
    server: BatchServer
    url: str
    folder: Path

    def tts(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    def sample(self, *more: str, n: int = 4, code: int | None = None) -> Result:
        """Draw a pool, which ends with an exit code, if one is given."""
        ran = self.tts("sample", "study.yaml", "--n", str(n), *more)
        assert code in (None, ran.exit_code), ran.stderr
        return ran

    def batch(self, *more: str, n: int = 4, code: int = 0) -> Result:
        """Draw a pool by batches."""
        return self.sample("--batch", *more, n=n, code=code)

    def study(self, text: str = STUDY, limit: int = 6, **changes: Any) -> None:
        (self.folder / "study.yaml").write_text(text.format(url=self.url, limit=limit, **changes))

    def final(self, file: str = ".tts/store.sqlite") -> list[dict[str, Any]]:
        with Store(self.folder / file) as store:
            return final(store.results(store.studies()[-1].id))

    def check_like_live(self) -> None:
        """Check that the last table is that of a live run."""
        found = self.final()
        self.sample("--store", "live.sqlite", code=0)
        assert found == self.final("live.sqlite")

    def paid_once(self, count: int) -> None:
        assert len(self.server.paid) == count
        assert set(self.server.paid.values()) == {1}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(batches, "_FIRST_POLL_S", 0.01)
    monkeypatch.setattr(batches, "_TIMEOUTS", batches.Timeouts(wait_s=0.01))
    toy = ToyServer()
    with serving(toy) as live, serving_batches(server := BatchServer(live=live)) as url:
        made = Place(toy, server, url, tmp_path)
        made.study()
        yield made


def interrupt_once(place: Place) -> Callable[[str], None]:
    """Return an event that interrupts the run at its first poll. A second one would reach what runs after it."""

    def stop(name: str) -> None:
        if name == "polled":
            place.server.event = lambda _name: None
            os.kill(os.getpid(), signal.SIGINT)

    return stop


def lines(place: Place) -> list[dict[str, Any]]:
    return [line for batch in place.server.batches for line in batch.lines]


def asked(body: Any) -> Any:
    """Return what a live request and the line of a batch have in common: all but that live replies stream. 1.0 is 1."""
    if isinstance(body, dict):
        return {name: asked(value) for name, value in body.items() if name not in ("stream", "stream_options")}
    return int(body) if isinstance(body, float) and body.is_integer() else body


@pytest.mark.slow
def test_a_pool_of_a_batch_is_that_of_live_calls_with_the_same_bodies(place: Place) -> None:
    assert place.sample("--store", "live.sqlite").exit_code == 0
    live = [asked(body) for body in place.toy.bodies[-24:]]  # behind those of the probe
    place.batch()
    sent = [line["body"] for line in lines(place)]
    assert not any("stream" in body for body in sent)
    assert sorted(map(json.dumps, sent)) == sorted(map(json.dumps, live))
    assert place.final() == place.final("live.sqlite")
    place.paid_once(24)
    [batch] = place.server.batches
    assert batch.metadata["tts_study"] == "sums-pool"
    assert len(batch.metadata["tts_key"]) == 32
    place.batch()
    assert len(place.server.batches) == 1


@pytest.mark.slow
def test_a_study_draws_what_its_cells_need_and_shares_it_with_the_pool(place: Place) -> None:
    place.batch(n=4)
    ran = place.tts("run", "study.yaml", "--batch")
    assert ran.exit_code == 0, ran.stderr
    place.paid_once(24)  # a study of one and of four samples needs those of the pool
    assert place.tts("run", "study.yaml", "--store", "live.sqlite").exit_code == 0
    assert place.final() == place.final("live.sqlite")
    place.batch(n=6)
    place.paid_once(36)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 1, 300, -1, -30])
def test_a_download_that_was_cut_is_fetched_again_and_paid_once(place: Place, kept: int) -> None:
    place.server.download = lambda content, number: content if number > 2 else content[:kept]
    place.batch()
    place.batch()
    place.paid_once(24)
    place.check_like_live()


@pytest.mark.slow
def test_a_download_that_is_always_cut_is_an_error_and_nothing_is_paid_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_LONGEST_POLL_S", 0.01)
    place.server.download = lambda content, _number: b"".join(content.splitlines(keepends=True)[:3])
    ran = place.sample("--batch")
    assert ran.exit_code != 0
    assert "3 of 24 replies" in ran.stderr
    place.server.download = lambda content, _number: content
    place.batch()
    place.paid_once(24)


@pytest.mark.slow
def test_a_batch_is_divided_and_several_are_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults: Any = batches.Batches.__init__
    monkeypatch.setattr(defaults, "__kwdefaults__", {**defaults.__kwdefaults__, "most_requests": 10})
    place.server.at_once = 4
    place.batch()
    assert [len(batch.lines) for batch in place.server.batches] == [10, 10, 4]
    place.paid_once(24)


@pytest.mark.slow
def test_requests_without_a_reply_are_told_by_kind_and_asked_again(place: Place) -> None:
    place.server.fault = lambda number: {3: 429, 4: 429, 7: 500}.get(number, 0)
    ran = place.batch(code=1)
    assert (
        "3 requests ended without a reply (2 RateLimited, 1 ServerError); the same command asks for them again"
        in ran.stderr
    )
    place.batch()
    assert len(place.server.batches) == 2
    assert len(place.server.batches[1].lines) == 3
    place.paid_once(24)
    place.check_like_live()


@pytest.mark.slow
def test_a_request_that_the_server_refuses_for_good_is_a_failed_row(place: Place) -> None:
    place.server.fault = lambda number: 400 if number == 5 else 0
    place.batch()
    with Store(place.folder / ".tts/store.sqlite") as store:
        failures = sum((Counter(one.failures) for one in store.results(store.studies()[-1].id)), Counter[str]())
    assert failures == {"Refused": 1}
    assert set(place.server.paid.values()) == {1}


@pytest.mark.slow
def test_a_batch_that_expires_keeps_what_it_has(place: Place) -> None:
    place.server.at_once, place.server.expires = 5, 2
    ran = place.batch(code=1)
    assert "14 requests ended without a reply (14 Expired)" in ran.stderr
    place.server.expires = None
    place.batch()
    place.paid_once(24)


@pytest.mark.slow
def test_a_batch_that_fails_as_a_whole_says_why_and_may_be_sent_again(place: Place) -> None:
    place.server.fails = {
        "data": [{"code": "token_limit_exceeded", "message": "Enqueued token limit reached", "line": None}]
    }
    for number in (1, 2):
        ran = place.batch(code=1)
        assert "failed: token_limit_exceeded: Enqueued token limit reached" in ran.stderr
        assert "24 requests ended without a reply (24 BatchFailed)" in ran.stderr
        assert len(place.server.batches) == number
    place.server.fails = None
    place.batch()
    place.paid_once(24)


@pytest.mark.slow
def test_strange_lines_in_a_file_of_errors_are_left_out(place: Place) -> None:
    unknown = {
        "id": "x",
        "custom_id": "nobody's",
        "response": None,
        "error": {"code": "batch_expired", "message": "late"},
    }
    place.server.strange = [unknown, unknown, b"no JSON\n", {"custom_id": 7}]
    ran = place.batch()
    assert "has 2 replies to requests that it was not sent; they are left out" in ran.stderr
    place.paid_once(24)


@pytest.mark.slow
def test_a_batch_whose_creation_was_not_answered_is_found_by_its_key(place: Place) -> None:
    for _ in range(3):  # other batches, so that the list has several pages
        place.server.reply_batches("POST", ["files"], {}, {"Content-Type": "x; boundary=b"}, _OTHER)
        body = {
            "input_file_id": list(place.server.files)[-1],
            "endpoint": "/v1/x",
            "completion_window": "24h",
            "metadata": None,
        }
        place.server.reply_batches("POST", ["batches"], {}, {}, json.dumps(body).encode())

    def lose(name: str) -> None:
        if name == "created" and place.server.events["created"] == 4:
            raise ConnectionAbortedError

    place.server.event = lose
    place.batch()
    assert len(place.server.batches) == 4
    place.paid_once(24)


_OTHER = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\nname="file"\r\n\r\n\r\n--b--'


@pytest.mark.slow
def test_a_batch_that_the_server_lost_is_sent_again(place: Place) -> None:
    place.server.event, place.server.at_once = interrupt_once(place), 5
    place.batch(code=130)
    place.server.event = lambda _name: None
    place.server.batches.clear()
    place.server.paid.clear()
    ran = place.batch(code=1)
    assert "the server does not know the batch 'batch/2?a#b' any more" in ran.stderr
    assert "24 requests ended without a reply (24 NoReply)" in ran.stderr
    place.batch()
    place.paid_once(24)


@pytest.mark.slow
def test_batches_have_prices_of_their_own(place: Place) -> None:
    prices = ("--model-option", "usd_in=1/M", "--model-option", "usd_out=4/M")
    ran = place.batch(*prices, code=2)
    assert "usd_in of model 'toy' is 1, but usd_batch_in, the price of batches, is not given" in ran.stderr
    assert "half of 1/M on most servers" in ran.stderr
    assert not place.server.batches
    halves = [
        f"--model-option=usd_batch_{name}={price}/M"
        for name, price in (("in", "0.5"), ("reused", "0.25"), ("out", "2"))
    ]
    place.batch(*prices, *halves)
    with Store(place.folder / ".tts/store.sqlite") as store:
        for result in store.results(store.studies()[-1].id):
            used = result.usage
            dollars = (0.5 * used.prompt_tokens + 0.25 * (used.reused_tokens or 0) + 2 * used.generated_tokens) / 1e6
            assert used.usd == pytest.approx(dollars)
            assert used.usd
    place.batch(*prices, *halves, "--dry-run")


@pytest.mark.slow
def test_a_key_is_sent_and_one_that_is_refused_is_no_loss(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTS_API_KEY", "a-secret-of-a-server")
    place.batch()
    assert set(place.server.keys) == {"Bearer a-secret-of-a-server"}
    assert not any(b"a-secret" in path.read_bytes() for path in (place.folder / ".tts").rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_study_is_cancelled_and_resumed(place: Place) -> None:
    place.server.event, place.server.at_once = interrupt_once(place), 5
    stopped = place.batch(code=130)
    assert "batches that were sent go on at the server; --cancel-batches cancels them" in stopped.stderr
    told = place.sample("--cancel-batches")
    assert told.exit_code == 0, told.stderr
    assert told.stdout.endswith("1 batch cancelled\n")
    ran = place.sample("--batch")
    assert "19 requests ended without a reply (19 Cancelled)" in ran.stderr
    place.batch()
    place.paid_once(24)
    assert place.sample("--cancel-batches").stdout == "0 batches cancelled\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("strategies=adaptive", "the strategy adaptive"),
        ("strategies=sequential_revision", "the strategy sequential_revision"),
        ("strategies=best_of_n | unanimous(window=2) | majority", "the stop rule unanimous(window=2)"),
        ("budgets={tokens: 400}", "the budget is tokens=400"),
        ("strategies=auto", "the strategy auto"),
    ],
)
def test_what_decides_by_earlier_replies_is_refused_by_name_before_anything_is_spent(
    place: Place, change: str, said: str
) -> None:
    ran = place.tts("run", "study.yaml", "--batch", "--set", change)
    assert ran.exit_code == 2
    assert said in ran.stderr
    assert not place.server.batches
    assert not (place.folder / ".tts").exists()


@pytest.mark.slow
def test_models_without_a_server_and_servers_without_batches_are_refused(place: Place) -> None:
    ran = place.batch("--set", "models=toy", code=2)
    assert "runs on the backend 'toy', but batches are of servers" in ran.stderr
    place.server.has_batches = False
    ran = place.batch(code=2)
    assert "has no batches" in ran.stderr
    assert "--batch-files FOLDER" in ran.stderr
    ran = place.tts("run", "study.yaml", "--model-option", "batch=true")
    assert "is answered by batches, which only tts sample and tts run send" in ran.stderr


@pytest.mark.slow
def test_files_without_a_server_are_answered_by_another_program(place: Place) -> None:
    written = place.sample("--batch-files", "files")
    assert written.exit_code == 0, written.stderr
    [file] = (place.folder / "files").glob("*.requests.jsonl")
    assert written.stdout.startswith(
        f"vllm run-batch -i files/{file.name} -o files/{file.name.replace('requests', 'output')} --served-model-name "
        "toy"
    )
    again = place.sample("--batch-files", "files")
    assert again.stdout == written.stdout
    with file.with_name(file.name.replace("requests", "output")).open("w") as output:
        for line in file.read_text().splitlines():
            asked_for = json.loads(line)
            told = place.server.client.post(place.url + asked_for["url"], json=asked_for["body"]).json()
            reply = {"id": "vllm-1", "custom_id": asked_for["custom_id"], "error": None}
            output.write(
                json.dumps({**reply, "response": {"status_code": 200, "request_id": "vllm-2", "body": told}}) + "\n"
            )
    read = place.sample("--batch-files", "files")
    assert read.exit_code == 0, read.stderr
    assert not place.server.batches
    place.check_like_live()


@contextmanager
def started(folder: Path, *arguments: str) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tts", *arguments]
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        yield process
        process.kill()


# a hundred, or a thousand requests
@pytest.mark.slow
@pytest.mark.parametrize("problems", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_a_batch_that_is_killed_five_times_ends_in_the_same_table_and_is_paid_once(place: Place, problems: int) -> None:
    place.study(limit=problems)
    command = ("sample", "study.yaml", "--n", "10", "--batch")
    for point in ("uploaded", "created", "polled", "fetched", "stored"):
        with started(place.folder, *command) as process:

            def kill(name: str, point: str = point, process: subprocess.Popen[str] = process) -> None:
                if name == point:
                    process.kill()
                    raise ConnectionAbortedError

            place.server.event = kill
            while point == "stored" and process.poll() is None and not _done(place):
                time.sleep(0.01)
            if point == "stored":
                process.kill()
            process.communicate(timeout=LIMIT_S)
            assert process.returncode == -signal.SIGKILL, point
    place.server.event = lambda _name: None
    place.batch(n=10)
    assert len(place.server.batches) == 1
    place.paid_once(10 * problems)
    broken = place.final()
    place.server.batches.clear()
    place.batch("--store", "unbroken/store.sqlite", n=10)
    assert broken == place.final("unbroken/store.sqlite")


def _done(place: Place) -> int:
    file = place.folder / ".tts" / "store.sqlite"
    if not file.exists() or not place.server.events["fetched"]:
        return 0
    with Store(file) as store:
        return sum(study.done for study in store.studies())


@pytest.mark.slow
def test_a_server_that_is_away_for_a_while_is_polled_again(place: Place) -> None:
    def away(name: str) -> None:
        if name == "polled" and place.server.events[name] <= 20:  # more than the tries of one poll
            raise ConnectionAbortedError

    place.server.event = away
    ran = place.batch()
    assert "failed at a batch: ConnectionLost" in ran.stderr
    assert "it is asked again" in ran.stderr
    place.paid_once(24)


def test_replies_that_another_process_has_fetched_are_not_asked_for_again(place: Place) -> None:
    root, book = f"{place.url}/v1", batches.BatchBook(place.folder / "files")
    asked_for = [BatchRequest.of(root, "/chat/completions", BODY, 1, position) for position in range(3)]
    requests = {request.key: request for request in asked_for}
    with closing(batches.BatchApi(root, Key())) as api:
        late = batches.Batches(api, batches.BatchBook(book.folder), "study")  # which has read the folder before
        first = batches.Batches(api, book, "study")
        assert first.receive(first.send(requests), requests).answered == 3
        assert late.send(requests) == []
        assert late.receive([], requests).answered == 3
    assert len(place.server.batches) == 1
    place.paid_once(3)


BODY = {"model": "toy", "messages": [{"role": "user", "content": "3 + 4 - 2"}]}


@pytest.mark.slow
def test_two_commands_at_once_pay_once(place: Place) -> None:
    place.server.at_once = 12
    command = ("sample", "study.yaml", "--n", "4", "--batch")
    with started(place.folder, *command) as first, started(place.folder, *command) as second:
        for process in (first, second):
            _, told = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, told
    place.paid_once(len(lines(place)))
    assert len(place.server.batches) == 1
