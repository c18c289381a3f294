"""Batches of the OpenAI API.

Files of requests are sent. Files of replies are fetched, and a book reads them. Nothing is paid twice: a record with a
key is written before its batch is created, and the batch has the key in its `metadata`. If the process is killed
between creation and the next record, the list of batches has the key. Requests of a batch that has not ended are not
sent again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib import parse

import httpx

from tts._common.files import replace_file
from tts.backends.openai.batch_book import (
    MOST_BYTES,
    MOST_REQUESTS,
    BatchBook,
    BatchRequest,
    count_lines,
    count_lost,
    digest_of,
    keys_of,
    split_requests,
)
from tts.backends.openai.errors import Key, ServerError, call_error, decode_json, retry_after, status_error
from tts.backends.openai.http import Timeouts, checks
from tts.backends.openai.reaching import refusal
from tts.errors import ConfigError, EngineError, TTSError, quote

KEY: Final = "tts_key"  # names in the metadata of a batch
STUDY: Final = "tts_study"
WINDOW: Final = "24h"  # the only window that the API has
ENDS: Final[Mapping[str, str]] = {
    "completed": "NoReply",
    "failed": "BatchFailed",
    "expired": "Expired",
    "cancelled": "Cancelled",
}
_GONE: Final = "gone"  # the status here of a batch that the server does not know any more
_TIMEOUTS: Final = Timeouts()  # of which the tries and the waits count
_FIRST_POLL_S, _LONGEST_POLL_S = 1.0, 60.0
_MOST_CUTS: Final = 5  # downloads in a row that end early
_MOST_FAILED_POLLS: Final = 60  # failed polls in a row, which take about an hour
_REPLY_S, _FILE_S = 60.0, 600.0
_MOST_NAME = 512  # characters of a value in metadata
_MOST_AGE_S = 30 * 86400.0  # the age up to which batches are listed
_PAGE = 100

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """The record of a batch, kept as a file beside the file of its requests.

    Args:
        key: The key of the batch, which is in its metadata and names its files.
        root: The base url of the API.
        study: The study for which the batch was created.
        endpoint: The endpoint of the requests.
        requests: The number of requests.
        digest: The hash of the file of requests.
        id: The server's id of the batch; "": the batch is not known to exist.
        status: The last status that the server has stated.
        done: The number of requests that have ended.
        fetched: Whether the batch has ended and its replies are in the folder.
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
    """The outcome of the batches of some requests.

    Attributes:
        answered: The number of requests that have a reply.
        lost: The number of requests without a reply, by kind of failure.
        notes: One line for each thing that was not as expected.
    """

    answered: int = 0
    lost: Counter[str] = field(default_factory=Counter[str])
    notes: list[str] = field(default_factory=list[str])

    def add(self, other: BatchEnds) -> None:
        """Add the outcome of other batches."""
        self.answered += other.answered
        self.lost += other.lost
        self.notes += other.notes


class BatchApi:
    """Calls of the API for files and batches. Calls that failed are sent again a few times where possible.

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
        """Send a file of requests, and return its id on the server.

        Raises:
            TTSError: The server does not take the file.
        """

        def send() -> httpx.Response:
            with path.open("rb") as file:
                files = {"file": (path.name, file, "application/jsonl")}
                return self._client.post(f"{self.root}/files", data={"purpose": "batch"}, files=files, timeout=_FILE_S)

        reply = self._try(send)
        file_id = reply.get("id")
        if not isinstance(file_id, str) or not file_id:
            raise EngineError(f"{self.root} gave {quote(reply)}, which has no id")
        return file_id

    def create(self, file: str, record: BatchRecord) -> dict[str, Any]:
        """Create a batch once, and return it.

        If the reply is lost, the batch is looked up by its key before another try.

        Args:
            file: The id of the file of requests.
            record: The record of the batch.

        Raises:
            TTSError: The server does not create the batch.
        """
        metadata = {KEY: record.key, STUDY: record.study[:_MOST_NAME]}
        body = {"input_file_id": file, "endpoint": record.endpoint, "completion_window": WINDOW, "metadata": metadata}
        return self._try(
            lambda: self._client.post(f"{self.root}/batches", json=body),
            find=lambda: self.list_batches().get(record.key),
        )

    def batch(self, batch: str) -> dict[str, Any] | None:
        """Return a batch; None where the server does not know the batch.

        Raises:
            TTSError: The server does not answer.
        """
        try:
            return self._try(lambda: self._client.get(f"{self.root}/batches/{_quote(batch)}"))
        except _Missing:
            return None

    def cancel(self, batch: str) -> dict[str, Any]:
        """Cancel a batch, and return it. Requests that have ended keep their replies, and are paid.

        Raises:
            TTSError: The server does not cancel the batch.
        """
        return self._try(lambda: self._client.post(f"{self.root}/batches/{_quote(batch)}/cancel"))

    def list_batches(self) -> dict[str, dict[str, Any]]:
        """Return this package's batches of the last thirty days on the server, by key.

        Raises:
            TTSError: The server has no batches, or does not answer.
        """
        batches: dict[str, dict[str, Any]] = {}
        cursor, past_cursors = "", set[str]()  # the id of the last batch of a page, after which the next page begins
        while cursor not in past_cursors:
            past_cursors.add(cursor)
            parameters: dict[str, str | int] = {"limit": _PAGE}
            if cursor:
                parameters["after"] = cursor
            try:
                reply = self._try(lambda query=parameters: self._client.get(f"{self.root}/batches", params=query))
            except _Missing:
                raise ConfigError(
                    f"{self.root} has no batches",
                    hint="leave --batch out, or write files for `vllm run-batch` with --batch-files FOLDER",
                ) from None
            items: list[Any] = reply.get("data") or []
            page = [item for item in items if isinstance(item, dict) and isinstance(item.get("id"), str)]
            for batch in page:
                metadata: Any = batch.get("metadata")
                key = metadata.get(KEY) if isinstance(metadata, dict) else None
                if isinstance(key, str):
                    batches.setdefault(key, batch)
            if not page or not reply.get("has_more"):
                break
            oldest_created = page[-1].get("created_at")
            if isinstance(oldest_created, int | float) and oldest_created < time.time() - _MOST_AGE_S:
                break
            cursor = page[-1]["id"]
        return batches

    def fetch(self, file: str, target: Path) -> bool:
        """Write the content of a file of the server, and return whether the server has the file.

        Args:
            file: The id of the file.
            target: The path to which the whole content is written.

        Raises:
            TTSError: The server does not send the file, or the target cannot be written.
        """

        def receive() -> httpx.Response:
            """Write the content into the target, and return an empty reply, or the reply of an error."""
            with self._client.stream("GET", f"{self.root}/files/{_quote(file)}/content", timeout=_FILE_S) as reply:
                if reply.status_code != 200:
                    reply.read()
                    return reply
                with replace_file(target) as part, part.open("wb") as output:
                    for piece in reply.iter_bytes():
                        output.write(piece)
            return httpx.Response(200, content=b"{}")

        try:
            self._try(receive)
        except _Missing:
            return False
        return True

    def _try(
        self, send: Callable[[], httpx.Response], find: Callable[[], dict[str, Any] | None] = lambda: None
    ) -> dict[str, Any]:
        """Send a request, again after an error that may pass, and return the JSON of its reply.

        Args:
            send: Sends the request.
            find: Returns the result of a try that failed, though it may have had an effect; None: there is none.

        Raises:
            _Missing: The server does not know the address.
            TTSError: There is no valid reply.
        """
        num_failures, found = 0, None
        while found is None:
            try:
                return self._send_once(send)
            except ServerError as error:
                num_failures += 1
                if error.status in (401, 403):
                    raise refusal(self.root, error, self._key) from None
                if not error.again or num_failures == _TIMEOUTS.tries:
                    kind = _Missing if error.status in (404, 405) else EngineError
                    raise kind(
                        f"{self.root} failed at a batch: {error.kind}: {error.cause}",
                        hint="the same command goes on from here; nothing is lost",
                    ) from None
                self._sleep(_TIMEOUTS.retry_wait_s(error.after_s, num_failures))
            found = find()
        return found

    def _send_once(self, send: Callable[[], httpx.Response]) -> dict[str, Any]:
        """Send a request once, and return the JSON of its reply.

        Raises:
            ServerError: There is no valid reply, or the reply is no object.
        """
        try:
            reply = send()
            if reply.status_code not in (200, 201):
                raise status_error(reply.status_code, reply.content, retry_after(reply.headers), self._key)
            content = decode_json(reply.content, self._key)
        except (ServerError, httpx.TransportError, httpx.DecodingError) as failure:
            raise call_error(failure, self._key, began=False) from None
        if not isinstance(content, dict):
            raise ServerError("BadReply", f"{quote(content)} where an object must be")
        return content


class _Missing(EngineError):
    """The server does not know an address."""


class _Cut(EngineError):
    """A download has fewer replies than the batch counts."""


@dataclass(eq=False)
class Batches:
    """Brings replies to requests by batches, and keeps them in the folder of a book.

    Args:
        api: Calls of the server.
        book: The book of replies, whose folder has the files.
        study: The name of the study, for the metadata of batches.
        report: Takes a line of progress.
        sleep: Waits for so many seconds.
        most_requests: The most requests of a batch.
        most_bytes: The most bytes of a batch's file.
    """

    api: BatchApi
    book: BatchBook
    study: str
    _: KW_ONLY
    report: Report = lambda _: None
    sleep: Callable[[float], None] = time.sleep
    most_requests: int = MOST_REQUESTS
    most_bytes: int = MOST_BYTES
    _failed_polls: int = field(default=0, init=False)

    def send(self, requests: Mapping[str, BatchRequest]) -> list[BatchRecord]:
        """Create batches for requests that have no reply and are in no batch under way.

        Args:
            requests: The requests, by key.

        Returns:
            The records of all batches that bring replies to the requests.

        Raises:
            TTSError: The server has no batches, refuses a batch, or does not answer.
        """
        with self._lock_folder():
            under_way = self._find_under_way()
            self.book.refresh()  # after the records are read: another process may have fetched replies
            sent_keys = {key for _record, keys in under_way for key in keys}
            unsent = [request for key, request in requests.items() if key not in sent_keys and key not in self.book]
            batches = self.api.list_batches() if unsent else {}
            parts = split_requests(unsent, self.most_requests, self.most_bytes)
            created_records = [self._create(part, batches) for part in parts]
        return [record for record, keys in under_way if keys & requests.keys()] + created_records

    def receive(self, records: Sequence[BatchRecord], requests: Mapping[str, BatchRequest]) -> BatchEnds:
        """Wait until batches have ended, fetch their replies, and return the outcome.

        Args:
            records: The records that `send` returned.
            requests: The requests, by key.

        Raises:
            TTSError: The server does not answer.
        """
        ends = BatchEnds()
        ended_records = self._wait(records, ends)
        self.book.refresh()
        ends.answered = sum(key in self.book for key in requests)
        for record in ended_records:
            keys = requests.keys() & keys_of(self._path(record.key, "requests.jsonl"))
            ends.lost += count_lost(self.book, keys, ENDS.get(record.status, "NoReply"))
        return ends

    def cancel(self) -> list[BatchRecord]:
        """Cancel the batches of this study that have not ended, and return their records.

        `receive` fetches the replies of requests that ended before.

        Raises:
            TTSError: The server does not answer.
        """
        with self._lock_folder():
            under_way = [record for record, _keys in self._find_under_way()]
            cancelled_records = [record for record in under_way if record.study == self.study]
            for record in cancelled_records:
                self.api.cancel(record.id)
        return cancelled_records

    # Records ----------------------------------------------------------------------------------------------------------

    def _find_under_way(self) -> list[tuple[BatchRecord, set[str]]]:
        """Return the records of batches that have not ended, with the keys of their requests.

        The files of a batch that was planned but never created are removed.
        """
        records = [record for record in self._records() if not record.fetched]
        batches = self.api.list_batches() if any(not record.id for record in records) else {}
        under_way: list[tuple[BatchRecord, set[str]]] = []
        for record in records:
            requests_path = self._path(record.key, "requests.jsonl")
            new_record = record
            if not record.id:  # the process that planned the batch was killed before or after the creation
                batch = batches.get(record.key)
                if batch is None:
                    self._path(record.key, "json").unlink()
                    requests_path.unlink(missing_ok=True)
                    continue
                new_record = self._keep(record, batch)
            under_way.append((new_record, set(keys_of(requests_path))))
        return under_way

    def _create(self, requests: Sequence[BatchRequest], batches: Mapping[str, Any]) -> BatchRecord:
        """Create a batch, unless the server has the batch, and return its record.

        The record is written before and after the creation.

        Args:
            requests: The requests of the batch.
            batches: The batches on the server, by key.
        """
        digest = digest_of(requests)
        num_earlier = sum(record.digest == digest for record in self._records())  # batches of the same requests
        key = hashlib.sha256(f"{self.api.root} {digest} {num_earlier}".encode()).hexdigest()[:32]
        path = self.book.write_file(requests, key)
        record = BatchRecord(
            key=key,
            root=self.api.root,
            study=self.study,
            endpoint=requests[0].endpoint,
            requests=len(requests),
            digest=digest,
        )
        self._write(record)
        batch = batches.get(key)
        if batch is None:
            batch = self.api.create(self.api.upload(path), record)
        return self._keep(record, batch)

    def _keep(self, record: BatchRecord, batch: Mapping[str, Any]) -> BatchRecord:
        """Update a record with the id, status and counts of its batch, write the record, and return it.

        Args:
            record: The record.
            batch: The batch, as the server states it.

        Raises:
            EngineError: The server's batch is not valid.
        """
        batch_id, status = batch.get("id"), batch.get("status")
        if not isinstance(batch_id, str) or not batch_id or not isinstance(status, str):
            raise EngineError(f"{self.api.root} gave {quote(batch)} where a batch must be")
        counts: Any = batch.get("request_counts")
        num_done = 0
        if isinstance(counts, dict):
            done_counts: list[Any] = [counts.get("completed"), counts.get("failed")]
            num_done = sum(count for count in done_counts if type(count) is int)
        record = dataclasses.replace(record, id=batch_id, status=status, done=num_done)
        self._write(record)
        return record

    def _records(self) -> Iterator[BatchRecord]:
        """Yield the records of this server's batches."""
        for path in sorted(self.book.folder.glob("*.json")):
            record = self._read(path.stem)
            if record.root == self.api.root:
                yield record

    def _read(self, key: str) -> BatchRecord:
        """Return the record of a batch from its file.

        Raises:
            TTSError: The file is no record.
        """
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
        with replace_file(path, "make room") as partial_file:
            partial_file.write_text(json.dumps(dataclasses.asdict(record), indent=1) + "\n")

    def _path(self, key: str, ending: str) -> Path:
        return self.book.folder / f"{key}.{ending}"

    @contextlib.contextmanager
    def _lock_folder(self) -> Generator[None]:
        """Let one process at a time create batches of the folder."""
        try:
            import fcntl
        except ImportError:
            raise ConfigError(
                "batches need file locks of POSIX, which this system lacks", hint="use Linux, macOS or WSL"
            ) from None
        self.book.folder.mkdir(parents=True, exist_ok=True)
        with (self.book.folder / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    # Waiting ----------------------------------------------------------------------------------------------------------

    def _wait(self, records: Sequence[BatchRecord], ends: BatchEnds) -> list[BatchRecord]:
        """Wait until all batches have ended and are fetched, and return the updated records.

        Args:
            records: The records of the batches.
            ends: The outcome, whose notes are added to.
        """
        new_records, wait_s = list(records), _FIRST_POLL_S
        num_requests = sum(record.requests for record in new_records)
        while True:
            new_records = [record if record.fetched else self._poll(record, ends) for record in new_records]
            num_open = sum(not record.fetched for record in new_records)
            num_done = sum(record.requests if record.fetched else record.done for record in new_records)
            self.report(
                f"{num_open:,} of {len(new_records):,} batches under way, "
                f"{num_done:,} of {num_requests:,} requests done"
            )
            if not num_open:
                return new_records
            self.sleep(wait_s)
            wait_s = min(_LONGEST_POLL_S, 2 * wait_s)

    def _poll(self, record: BatchRecord, ends: BatchEnds) -> BatchRecord:
        """Return the updated record of a batch. If the batch has ended, fetch its replies.

        Replies are fetched once there are as many as the batch counts. A download may end early without an error.
        """
        try:
            updated = self._poll_once(record, ends)
        except EngineError as failure:  # the server still works on the batch, or the download was cut
            self._failed_polls += 1
            if self._failed_polls > (_MOST_CUTS if isinstance(failure, _Cut) else _MOST_FAILED_POLLS):
                raise
            self.report(f"{failure.cause}; it is asked again")
            return record
        self._failed_polls = 0
        return updated

    def _poll_once(self, record: BatchRecord, ends: BatchEnds) -> BatchRecord:
        """See `_poll`; raise EngineError where the server does not answer, or fewer replies came than it counts."""
        batch = self.api.batch(record.id)
        if batch is None:
            ends.notes.append(f"the server does not know the batch {record.id!r} any more")
            return self._close(record, _GONE)
        record = self._keep(record, batch)
        if record.status not in ENDS:
            return record
        keys = set(keys_of(self._path(record.key, "requests.jsonl")))
        notes, num_unknown, num_lines, is_lost = list[str](), 0, 0, False
        for name, ending in (("output_file_id", "output.jsonl"), ("error_file_id", "errors.jsonl")):
            file_id, target = batch.get(name), self._path(record.key, ending)
            if not isinstance(file_id, str) or not file_id:
                continue
            if not self.api.fetch(file_id, target):
                is_lost = True
                notes.append(f"the server has lost the file {file_id!r} of the batch {record.id!r}")
                continue
            num_lines += count_lines(target)
            num_unknown += sum(key not in keys for key in keys_of(target))
        if num_lines < record.done and not is_lost:
            raise _Cut(
                f"{self.api.root} sent {num_lines:,} of {record.done:,} replies of the batch {record.id!r}",
                hint="the same command fetches them again; nothing is paid twice",
            )
        if num_unknown:
            unknown = f"{num_unknown:,} replies to requests that it was not sent"
            notes.append(f"the batch {record.id!r} has {unknown}; they are left out")
        ends.notes += notes
        if record.status == "failed":
            ends.notes.append(f"the batch {record.id!r} failed: {_failures(batch)}")
        return self._close(record, record.status)

    def _close(self, record: BatchRecord, status: str) -> BatchRecord:
        """Write and return a record of a batch that has ended and is fetched."""
        record = dataclasses.replace(record, status=status, fetched=True)
        self._write(record)
        return record


def _quote(name: str) -> str:
    """Return a server's id, quoted as a part of a url's path."""
    return parse.quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _failures(batch: Mapping[str, Any]) -> str:
    """Return the reason, in the server's words, why a batch failed as a whole."""
    errors: Any = batch.get("errors")
    if isinstance(errors, dict):
        errors = errors.get("data")
    items: list[Any] = errors if isinstance(errors, list) else []
    first_error: Mapping[str, Any] = next((item for item in items if isinstance(item, dict)), {})
    words = [str(first_error[name]) for name in ("code", "message", "line") if first_error.get(name) is not None]
    return " ".join(": ".join(words).split())[:300] or "the server gives no reason"
