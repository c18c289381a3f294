"""Batches of the OpenAI API.

Files of requests are sent, and files of replies are fetched, which a book reads. Nothing is paid twice. A file of each
batch is written before the batch is created, with a key that stands in the batch's `metadata`. After a kill between
creation and record, the list of batches has the key. Requests of a batch that has not ended are not sent again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib import parse

import httpx

from tts.backends.openai.batch_book import (
    MOST_BYTES,
    MOST_REQUESTS,
    BatchBook,
    BatchRequest,
    count_lost,
    digest_of,
    keys_of,
    split_requests,
)
from tts.backends.openai.errors import Key, ServerError, call_error, decode_json, retry_after, status_error
from tts.backends.openai.http import checks
from tts.backends.openai.reaching import refusal
from tts.errors import ConfigError, EngineError, TTSError, quote
from tts.files import replace_file
from tts.models.user_files import write_whole

KEY: Final = "tts_key"  # names in the metadata of a batch
STUDY: Final = "tts_study"
WINDOW: Final = "24h"  # the only one that the API has
ENDS: Final[Mapping[str, str]] = {
    "completed": "NoReply",
    "failed": "BatchFailed",
    "expired": "Expired",
    "cancelled": "Cancelled",
}
_GONE: Final = "gone"  # the status here of a batch that the server does not know any more
_TRIES, _WAIT_S, _LONGEST_WAIT_S = 6, 0.5, 60.0
_FIRST_POLL_S, _LONGEST_POLL_S = 1.0, 60.0
_MOST_FAILED_POLLS: Final = 60  # in a row: about an hour
_REPLY_S, _FILE_S = 60.0, 600.0
_MOST_NAME = 512  # characters of a value of metadata
_MOST_AGE_S = 30 * 86400.0  # of a batch in the list
_PAGE = 100

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """What is kept of a batch, as a file beside that of its requests.

    Args:
        key: Its key, which stands in the batch's metadata and names its files.
        root: The base url of the API.
        study: The study that it was created for.
        endpoint: The endpoint of its requests.
        requests: How many there are.
        digest: The hash of the file of requests.
        id: The server's id; "": it is not known to exist.
        status: The last status that the server has stated.
        done: The requests that have ended.
        fetched: Whether it has ended, and its replies are in the folder.
    """

    key: str
    root: str
    study: str
    endpoint: str
    requests: int
    digest: str
    id: str = ""
    status: str = "planned"
    done: int = 0
    fetched: bool = False


@dataclass(slots=True)
class BatchEnds:
    """How the batches of some requests ended.

    Attributes:
        answered: The requests that have a reply.
        lost: The requests that have none, by kind.
        notes: One line for each thing that was not as expected.
    """

    answered: int = 0
    lost: Counter[str] = field(default_factory=Counter[str])
    notes: list[str] = field(default_factory=list[str])

    def add(self, other: BatchEnds) -> None:
        """Add how other batches ended."""
        self.answered += other.answered
        self.lost += other.lost
        self.notes += other.notes


class BatchApi:
    """Calls of the API for files and batches. What may be sent again is, a few times.

    Args:
        root: The base url of the API.
        key: The key, sent with each request.
        sleep: Waits for so many seconds.
    """

    def __init__(self, root: str, key: Key, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.root, self._key, self._sleep = root, key, sleep
        self._client = httpx.Client(headers=key.headers, params=key.query, verify=checks(root), timeout=_REPLY_S)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def upload(self, path: Path) -> str:
        """Return the id of a file of requests that is sent.

        Raises:
            TTSError: The server does not take it.
        """

        def send() -> httpx.Response:
            with path.open("rb") as file:
                files = {"file": (path.name, file, "application/jsonl")}
                return self._client.post(f"{self.root}/files", data={"purpose": "batch"}, files=files, timeout=_FILE_S)

        return self._id_in(self._try(send))

    def create(self, file: str, record: BatchRecord) -> dict[str, Any]:
        """Return a batch that is created once.

        Where the reply is lost, the batch is looked for by its key before another try.

        Args:
            file: The id of the file of requests.
            record: The record of the batch.

        Raises:
            TTSError: The server does not create it.
        """
        metadata = {KEY: record.key, STUDY: record.study[:_MOST_NAME]}
        body = {"input_file_id": file, "endpoint": record.endpoint, "completion_window": WINDOW, "metadata": metadata}
        for tried in range(_TRIES):
            try:
                return self._send_once(lambda: self._client.post(f"{self.root}/batches", json=body))
            except ServerError as error:
                self._check_again(error, tried)
            if (found := self.list_batches().get(record.key)) is not None:
                return found
        raise AssertionError("the last try raises")

    def batch(self, batch: str) -> dict[str, Any] | None:
        """Return a batch; None where the server does not know it.

        Raises:
            TTSError: The server does not answer.
        """
        try:
            return self._try(lambda: self._client.get(f"{self.root}/batches/{_quote(batch)}"))
        except _Missing:
            return None

    def cancel(self, batch: str) -> dict[str, Any]:
        """Return a batch that is to end. Requests that have ended are kept, and paid.

        Raises:
            TTSError: The server does not cancel it.
        """
        return self._try(lambda: self._client.post(f"{self.root}/batches/{_quote(batch)}/cancel"))

    def list_batches(self) -> dict[str, dict[str, Any]]:
        """Return the batches of this package on the server, by key, those of the last thirty days.

        Raises:
            TTSError: The server has no batches, or does not answer.
        """
        found: dict[str, dict[str, Any]] = {}
        after, seen = "", set[str]()
        while after not in seen:
            seen.add(after)
            parameters: dict[str, str | int] = {"limit": _PAGE, **({"after": after} if after else {})}
            try:
                told = self._try(lambda given=parameters: self._client.get(f"{self.root}/batches", params=given))
            except _Missing:
                raise ConfigError(
                    f"{self.root} has no batches",
                    hint="leave --batch out, or write files for `vllm run-batch` with --batch-files FOLDER",
                ) from None
            page = [one for one in told.get("data") or () if isinstance(one, dict) and isinstance(one.get("id"), str)]
            for one in page:
                metadata: Any = one.get("metadata")
                if isinstance(metadata, dict) and isinstance(key := metadata.get(KEY), str):
                    found.setdefault(key, one)
            created = page[-1].get("created_at") if page else None
            if (
                not page
                or not told.get("has_more")
                or (isinstance(created, int | float) and created < time.time() - _MOST_AGE_S)
            ):
                break
            after = page[-1]["id"]
        return found

    def fetch(self, file: str, target: Path) -> bool:
        """Write the content of a file of the server; return whether the server has it.

        Args:
            file: Its id.
            target: Where it is written, once it is whole.

        Raises:
            TTSError: The server does not send it, or it cannot be written.
        """

        def receive() -> httpx.Response:
            with self._client.stream("GET", f"{self.root}/files/{_quote(file)}/content", timeout=_FILE_S) as reply:
                if reply.status_code != 200:
                    reply.read()
                    return reply
                with replace_file(target) as part, part.open("wb") as written:
                    for some in reply.iter_bytes():
                        written.write(some)
            return httpx.Response(200, content=b"{}")

        try:
            self._try(receive)
        except _Missing:
            return False
        return True

    def _id_in(self, told: Mapping[str, Any]) -> str:
        if not isinstance(found := told.get("id"), str) or not found:
            raise EngineError(f"{self.root} gave {quote(told)}, which has no id")
        return found

    def _try(self, send: Callable[[], httpx.Response]) -> dict[str, Any]:
        """Return the JSON of the reply to what `send` sends, again where that may help.

        Raises:
            TTSError: There is no valid reply.
        """
        for tried in range(_TRIES):
            try:
                return self._send_once(send)
            except ServerError as error:
                self._check_again(error, tried)
        raise AssertionError("the last try raises")

    def _send_once(self, send: Callable[[], httpx.Response]) -> dict[str, Any]:
        """Return the JSON of a reply.

        Raises:
            ServerError: There is none, or it is no object.
        """
        try:
            reply = send()
            if reply.status_code not in (200, 201):
                raise status_error(reply.status_code, reply.content, retry_after(reply.headers), self._key)
            told = decode_json(reply.content, self._key)
        except (ServerError, httpx.TransportError, httpx.DecodingError) as failure:
            raise call_error(failure, self._key, began=False) from None
        if not isinstance(told, dict):
            raise ServerError("BadReply", f"{quote(told)} where an object must be")
        return told

    def _check_again(self, error: ServerError, tried: int) -> None:
        """Wait before a request is sent again.

        Raises:
            _Missing: The server does not know the address.
            TTSError: It would be refused again, or this was the last try.
        """
        if error.status in (401, 403):
            raise refusal(self.root, error, self._key)
        if not error.again or tried + 1 == _TRIES:
            kind = _Missing if error.status in (404, 405) else EngineError
            raise kind(
                f"{self.root} failed at a batch: {error.kind}: {error.cause}",
                hint="the same command goes on from here; nothing is lost",
            )
        self._sleep(max(error.after_s, min(_LONGEST_WAIT_S, _WAIT_S * 2**tried)))


class _Missing(EngineError):
    """The server does not know an address."""


class Batches:
    """Brings replies to requests by batches, and keeps them in the folder of a book.

    Args:
        api: Calls of the server.
        book: The book, whose folder has the files.
        study: The name of the study, for the metadata of batches.
        report: Takes a line of progress.
        sleep: Waits for so many seconds.
        most_requests: The most requests of a batch.
        most_bytes: The most bytes of its file.
    """

    def __init__(
        self,
        api: BatchApi,
        book: BatchBook,
        study: str,
        *,
        report: Report = lambda _: None,
        sleep: Callable[[float], None] = time.sleep,
        most_requests: int = MOST_REQUESTS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._api, self._book, self._study, self._report, self._sleep = api, book, study, report, sleep
        self._most_requests, self._most_bytes = most_requests, most_bytes
        self._failed_polls = 0

    def send(self, requests: Mapping[str, BatchRequest]) -> list[BatchRecord]:
        """Create batches for requests that are in no batch under way.

        The records of all batches that bring replies to the requests are returned.

        Args:
            requests: The requests, by key.

        Raises:
            TTSError: The server has no batches, refuses one, or does not answer.
        """
        with self._lock_folder():
            under_way = self._find_under_way()
            self._book.refresh()  # behind it: another process may have fetched replies
            covered = {key for _, keys in under_way for key in keys}
            new = [request for key, request in requests.items() if key not in covered and key not in self._book]
            known = self._api.list_batches() if new else {}
            sent = [self._create(part, known) for part in split_requests(new, self._most_requests, self._most_bytes)]
        return [record for record, keys in under_way if keys & requests.keys()] + sent

    def receive(self, records: Sequence[BatchRecord], requests: Mapping[str, BatchRequest]) -> BatchEnds:
        """Wait until batches have ended, fetch their replies, and return how many requests have one.

        Args:
            records: The records that `send` returned.
            requests: The requests, by key.

        Raises:
            TTSError: The server does not answer.
        """
        ends = BatchEnds()
        ended = self._wait(records, ends)
        self._book.refresh()
        ends.answered = sum(key in self._book for key in requests)
        for record in ended:
            keys = requests.keys() & keys_of(self._path(record.key, "requests.jsonl"))
            ends.lost += count_lost(self._book, keys, ENDS.get(record.status, "NoReply"))
        return ends

    def cancel(self) -> list[BatchRecord]:
        """Cancel the batches of this study that have not ended, and return their records.

        `receive` fetches what they have brought.

        Raises:
            TTSError: The server does not answer.
        """
        with self._lock_folder():
            cancelled = [record for record, _ in self._find_under_way() if record.study == self._study]
            for record in cancelled:
                self._api.cancel(record.id)
        return cancelled

    # Records ----------------------------------------------------------------------------------------------------------

    def _find_under_way(self) -> list[tuple[BatchRecord, set[str]]]:
        """Return the batches that have not ended, with the keys of their requests. One that was planned and never
        created is dropped.
        """
        records = [record for record in self._records() if not record.fetched]
        known = self._api.list_batches() if any(not record.id for record in records) else {}
        found: list[tuple[BatchRecord, set[str]]] = []
        for record in records:
            created = record
            if not record.id:
                told = known.get(record.key)
                if told is None:
                    self._path(record.key, "json").unlink()
                    self._path(record.key, "requests.jsonl").unlink(missing_ok=True)
                    continue
                created = self._keep(record, told)
            found.append((created, set(keys_of(self._path(record.key, "requests.jsonl")))))
        return found

    def _create(self, requests: Sequence[BatchRequest], known: Mapping[str, Any]) -> BatchRecord:
        """Create a batch, unless the server has it, and return its record, which is written before and after."""
        digest = digest_of(requests)
        attempt = sum(record.digest == digest for record in self._records())
        key = hashlib.sha256(f"{self._api.root} {digest} {attempt}".encode()).hexdigest()[:32]
        path = self._book.write_file(requests, key)
        record = BatchRecord(
            key=key,
            root=self._api.root,
            study=self._study,
            endpoint=requests[0].endpoint,
            requests=len(requests),
            digest=digest,
        )
        self._write(record)
        told = known.get(key)
        return self._keep(record, self._api.create(self._api.upload(path), record) if told is None else told)

    def _keep(self, record: BatchRecord, told: Mapping[str, Any]) -> BatchRecord:
        """Write a record with what the server states of its batch, and return it."""
        if (
            not isinstance(found := told.get("id"), str)
            or not found
            or not isinstance(status := told.get("status"), str)
        ):
            raise EngineError(f"{self._api.root} gave {quote(told)} where a batch must be")
        counts: Any = told.get("request_counts")
        counts = counts if isinstance(counts, dict) else {}
        done = sum(count for name in ("completed", "failed") if type(count := counts.get(name)) is int)
        record = dataclasses.replace(record, id=found, status=status, done=done)
        self._write(record)
        return record

    def _records(self) -> Iterator[BatchRecord]:
        """Yield the records of this server's batches."""
        for path in sorted(self._book.folder.glob("*.json")):
            record = self._read(path.stem)
            if record.root == self._api.root:
                yield record

    def _read(self, key: str) -> BatchRecord:
        path = self._path(key, "json")
        try:
            return BatchRecord(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as failure:
            raise TTSError(
                f"{path} is no record of a batch: {failure}",
                hint="restore it: a batch that it names would be paid again",
            ) from None

    def _write(self, record: BatchRecord) -> None:
        path = self._path(record.key, "json")
        try:
            write_whole(path, json.dumps(dataclasses.asdict(record), indent=1) + "\n")
        except OSError as failure:
            raise TTSError(f"{path} cannot be written: {failure.strerror or failure}", hint="make room") from None

    def _path(self, key: str, ending: str) -> Path:
        return self._book.folder / f"{key}.{ending}"

    @contextlib.contextmanager
    def _lock_folder(self) -> Generator[None]:
        """Let one process at a time create batches of the folder."""
        try:
            import fcntl
        except ImportError:
            raise ConfigError(
                "batches need file locks of POSIX, which this system lacks", hint="use Linux, macOS or WSL"
            ) from None
        self._book.folder.mkdir(parents=True, exist_ok=True)
        with (self._book.folder / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # Waiting ----------------------------------------------------------------------------------------------------------

    def _wait(self, records: Sequence[BatchRecord], ends: BatchEnds) -> list[BatchRecord]:
        """Return the records of batches once all have ended, and their replies are in the folder."""
        now, wait_s = list(records), _FIRST_POLL_S
        total = sum(record.requests for record in now)
        while True:
            now = [record if record.fetched else self._poll(record, ends) for record in now]
            left = sum(not record.fetched for record in now)
            done = sum(record.requests if record.fetched else record.done for record in now)
            self._report(f"{left:,} of {len(now):,} batches under way, {done:,} of {total:,} requests done")
            if not left:
                return now
            self._sleep(wait_s)
            wait_s = min(_LONGEST_POLL_S, 2 * wait_s)

    def _poll(self, record: BatchRecord, ends: BatchEnds) -> BatchRecord:
        """Return a batch as the server states it now. Once it has ended, its replies are fetched."""
        try:
            told = self._api.batch(record.id)
        except EngineError as failure:  # the batch goes on without us
            self._failed_polls += 1
            if self._failed_polls > _MOST_FAILED_POLLS:
                raise
            self._report(f"{failure.cause}; it is asked again")
            return record
        self._failed_polls = 0
        if told is None:
            ends.notes.append(f"the server does not know the batch {record.id!r} any more")
            return self._close(record, _GONE)
        record = self._keep(record, told)
        if record.status not in ENDS:
            return record
        keys = set(keys_of(self._path(record.key, "requests.jsonl")))
        for name, ending in (("output_file_id", "output.jsonl"), ("error_file_id", "errors.jsonl")):
            file, target = told.get(name), self._path(record.key, ending)
            if not isinstance(file, str) or not file:
                continue
            if not self._api.fetch(file, target):
                ends.notes.append(f"the server has lost the file {file!r} of the batch {record.id!r}")
            elif unknown := sum(key not in keys for key in keys_of(target)):
                ends.notes.append(
                    f"the batch {record.id!r} has {unknown:,} replies to requests that it was not sent; they are left "
                    "out"
                )
        if record.status == "failed":
            ends.notes.append(f"the batch {record.id!r} failed: {_failures(told)}")
        return self._close(record, record.status)

    def _close(self, record: BatchRecord, status: str) -> BatchRecord:
        record = dataclasses.replace(record, status=status, fetched=True)
        self._write(record)
        return record


def _quote(name: str) -> str:
    """Return an id of a server as a part of a path."""
    return parse.quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _failures(told: Mapping[str, Any]) -> str:
    """Return why a batch failed as a whole, in the server's words."""
    errors: Any = told.get("errors")
    listed: Any = errors.get("data") if isinstance(errors, dict) else errors
    first = next((one for one in listed if isinstance(one, dict)), {}) if isinstance(listed, list) else {}
    words = [str(first[name]) for name in ("code", "message", "line") if first.get(name) is not None]
    return " ".join(": ".join(words).split())[:300] or "the server gives no reason"
