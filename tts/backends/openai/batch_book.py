"""Requests for batches and their replies, as files in a folder.

Batch APIs and `vllm run-batch` share the format of the files. A backend with a book calls no server. It looks up the
reply to each request, and notes the requests without a reply. The command is run again when their replies have come.
Bodies and replies are the same as in live calls.

`NAME.requests.jsonl` is sent. `NAME.output.jsonl` and `NAME.errors.jsonl` come back. A reply is found by its
`custom_id` alone.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tts.backends.openai.errors import Key, ServerError, event_error, status_error
from tts.backends.openai.http import HttpClient, Take, Timeouts, encode_body, event_of
from tts.errors import ConfigError, TTSError

MOST_REQUESTS: Final = 50_000  # requests of a file, as the API allows
MOST_BYTES: Final = 200_000_000
_FINAL: Final = (400, 413, 422)  # statuses of requests that the server would refuse again
_ENDED: Final[Mapping[str, str]] = {"batch_expired": "Expired", "batch_cancelled": "Cancelled"}


class Unanswered(TTSError):
    """A request has no reply yet; a batch must bring the reply."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request as a line of a file.

    Args:
        key: The request's `custom_id`: a hash of server, endpoint, body, and the address of its random draws. So two
            draws with equal bodies are two requests.
        endpoint: The path of the API, such as "/v1/chat/completions".
        model: The model's name on the server.
        line: The line, without its end.
    """

    key: str
    endpoint: str
    model: str
    line: bytes

    @classmethod
    def of(cls, root: str, path: str, body: Mapping[str, Any], stream: int, position: int) -> BatchRequest:
        """Return the request of a call.

        Args:
            root: The base url of the API.
            path: The endpoint below the base url.
            body: The body of the live call.
            stream: The stream of the call's first row.
            position: The position of the first row's first token.
        """
        endpoint = f"/v1{path}"
        canonical_body = _canonical(json.loads(encode_body(body)))
        hashed_text = json.dumps([root, endpoint, stream, position, canonical_body], sort_keys=True)
        key = hashlib.sha256(hashed_text.encode()).hexdigest()[:32]
        entry = {"custom_id": key, "method": "POST", "url": endpoint, "body": canonical_body}
        return cls(
            key=key,
            endpoint=endpoint,
            model=str(body.get("model", "")),
            line=json.dumps(entry, separators=(",", ":")).encode("ascii"),
        )


@dataclass(frozen=True, slots=True)
class BatchReply:
    """A reply that will not change.

    Args:
        status: The status of the reply: 200, or the status of a refusal.
        content: The body of the reply, as JSON.
    """

    status: int
    content: bytes


class BatchBook:
    """The requests that calls have made, and the replies in a folder.

    Args:
        folder: The folder of the files, which may be missing.

    Attributes:
        wanted: The requests without a reply that calls have asked for, by key.
        lost: The kind of failure of each request that ended without a reply, by key.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wanted: dict[str, BatchRequest] = {}
        self.lost: dict[str, str] = {}
        self._places: dict[str, tuple[Path, int]] = {}  # by key: the file of a reply, and the offset of its line
        self._sizes: dict[Path, int] = {}  # sizes of the files that were read
        self.refresh()

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def take_requests(self) -> dict[str, BatchRequest]:
        """Return the wanted requests that still have no reply, and forget them."""
        wanted, self.wanted = self.wanted, {}
        return {key: request for key, request in wanted.items() if key not in self}

    def refresh(self) -> None:
        """Read the replies in files that are new or longer than before.

        Lines that are no replies are skipped.
        """
        for path in sorted([*self.folder.glob("*.output.jsonl"), *self.folder.glob("*.errors.jsonl")]):
            size = path.stat().st_size
            if self._sizes.get(path) == size:
                continue
            self._sizes[path] = size
            for offset, line in _lines(path):
                key, reply, error = parse_reply(line)
                if reply is not None:
                    self._places.setdefault(key, (path, offset))
                elif error is not None and key:
                    self.lost[key] = error.kind

    def reply(self, request: BatchRequest) -> BatchReply | None:
        """Return the reply to a request.

        If there is no reply yet, the request is noted as wanted, and None is returned.

        Raises:
            TTSError: The file of the reply has changed.
        """
        place = self._places.get(request.key)
        if place is None:
            self.wanted[request.key] = request
            return None
        path, offset = place
        with path.open("rb") as file:
            file.seek(offset)
            _key, reply, _error = parse_reply(file.readline())
        if reply is None:
            raise TTSError(f"{path} has changed while it was read", hint="run the same command again")
        return reply

    def write_requests(self) -> list[tuple[Path, str]]:
        """Write the wanted requests as files, and return the path and the model of each.

        The files keep the limits of the API.
        """
        parts = split_requests(self.take_requests().values())
        return [(self.write_file(part, digest_of(part)[:16]), part[0].model) for part in parts]

    def write_file(self, requests: Iterable[BatchRequest], name: str) -> Path:
        """Write one file of requests, and return its path.

        Args:
            requests: The requests.
            name: The name of the file, without its ending.

        Raises:
            ConfigError: The file cannot be written.
        """
        content = b"".join(request.line + b"\n" for request in requests)
        path = self.folder / f"{name}.requests.jsonl"
        unfinished_path = path.with_name(f"{path.name}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            unfinished_path.write_bytes(content)
            unfinished_path.replace(path)
        except OSError as failure:
            raise ConfigError(
                f"{path} cannot be written: {failure.strerror or failure}", hint="name another folder, or make room"
            ) from None
        return path


class BatchClient(HttpClient):
    """Answers calls from a book; no server is called.

    Args:
        root: The base url of the API.
        key: The key, which replies do not show.
        timeouts: The timeouts and the number of tries of the backend.
        book: The book of replies.
    """

    def __init__(self, root: str, key: Key, timeouts: Timeouts, book: BatchBook) -> None:
        super().__init__(root, key, timeouts)
        self._book, self.is_book = book, True

    async def post(
        self, path: str, body: Mapping[str, Any] | None, take: Take, stream: int, position: int, tokens: int = 0
    ) -> str:
        """Pass the recorded reply to `take`.

        The method never waits, so that all rows of a request have asked the book before the first row fails.

        Args:
            path: The endpoint below the root.
            body: The body of the request.
            take: Called with the reply.
            stream: The stream of the request's first row.
            position: The position of the first row's first token.
            tokens: Not used.

        Returns:
            An empty text, since no try was refused.

        Raises:
            Unanswered: There is no reply yet.
            ServerError: The server refused the request, or its reply is not valid.
        """
        del tokens
        reply = self._book.reply(BatchRequest.of(self.root, path, body or {}, stream, position))
        if reply is None:
            raise Unanswered("a request has no reply yet", hint="run the same command again: a batch brings it")
        if reply.status != 200:
            error = status_error(reply.status, reply.content, 0.0, self.key)
            self.errors[error.kind] += 1
            raise error
        take(event_of(reply.content, 0.0, self.key, began=False))
        return ""


def digest_of(requests: Iterable[BatchRequest]) -> str:
    """Return the hash of a file with these requests."""
    return hashlib.sha256(b"".join(request.line + b"\n" for request in requests)).hexdigest()


def split_requests(
    requests: Iterable[BatchRequest], most_requests: int = MOST_REQUESTS, most_bytes: int = MOST_BYTES
) -> Iterator[list[BatchRequest]]:
    """Yield requests in parts, each of one endpoint and model and within the limits of a file.

    Args:
        requests: The requests.
        most_requests: The most requests of a file.
        most_bytes: The most bytes of a file. A larger request has a file of its own.
    """
    by_model: dict[tuple[str, str], list[BatchRequest]] = {}  # by endpoint and model
    for request in requests:
        by_model.setdefault((request.endpoint, request.model), []).append(request)
    for model_requests in by_model.values():
        part: list[BatchRequest] = []
        part_size = 0
        for request in model_requests:
            line_size = len(request.line) + 1
            if part and (len(part) == most_requests or part_size + line_size > most_bytes):
                yield part
                part, part_size = [], 0
            part.append(request)
            part_size += line_size
        yield part


def parse_reply(line: bytes) -> tuple[str, BatchReply | None, ServerError | None]:
    """Return the key of a line of replies, and its reply or its error.

    A request with an error may be sent again.

    Args:
        line: The line.

    Returns:
        The key, the reply or None, and the error or None. If the line is no reply, the key is "".
    """
    try:
        entry: Any = json.loads(line)
        key = entry["custom_id"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return "", None, ServerError("BadReply", "a line that is no reply")
    if not isinstance(key, str):
        return "", None, ServerError("BadReply", "a reply without a custom_id")
    response: Any = entry.get("response")
    if not isinstance(response, dict):
        response = {}
    status, body, failure = response.get("status_code"), response.get("body"), entry.get("error")
    if status == 200 and isinstance(body, dict) and not failure:
        return key, BatchReply(200, json.dumps(body).encode()), None
    content = body
    if body is None:
        content = failure if isinstance(failure, dict) and "error" in failure else {"error": failure}
    error = _error_of(status, content, failure)
    if error.kind == "Refused" and error.status in _FINAL:
        return key, BatchReply(error.status, json.dumps(content).encode()), None
    return key, None, error


def count_lost(book: BatchBook, keys: Iterable[str], otherwise: str) -> Counter[str]:
    """Return the number of requests that ended without a reply, by kind of failure.

    Args:
        book: The book.
        keys: The keys of the requests.
        otherwise: The kind of failure of requests that no file mentions.
    """
    return Counter(book.lost.get(key, otherwise) for key in keys if key not in book)


def keys_of(path: Path) -> Iterator[str]:
    """Yield the keys of a file of requests or replies."""
    for _offset, line in _lines(path):
        try:
            key: Any = json.loads(line)["custom_id"]
        except (ValueError, RecursionError, LookupError, TypeError):
            continue
        if isinstance(key, str):
            yield key


def count_lines(path: Path) -> int:
    """Return the number of lines of a file of replies, without a last line that was cut."""
    num_lines, last_line = 0, b"\n"
    for _offset, line in _lines(path):
        num_lines, last_line = num_lines + 1, line
    if last_line.endswith(b"\n"):
        return num_lines
    try:
        json.loads(last_line)
    except (ValueError, RecursionError):
        return num_lines - 1
    return num_lines


def _error_of(status: Any, content: Any, failure: Any) -> ServerError:
    """Return the error of a request without a valid reply.

    Args:
        status: The status of the response, if there is one.
        content: The body of the response, or the failure as an object with the member "error".
        failure: The member "error" of the line.
    """
    code = failure.get("code") if isinstance(failure, dict) else None
    if isinstance(code, str) and code in _ENDED:
        return ServerError(_ENDED[code], str(failure.get("message") or code))
    if type(status) is int and status != 200:
        return status_error(status, json.dumps(content).encode(), 0.0, Key())
    error = event_error(content, 0.0, Key(), began=False) if failure else None
    return error or ServerError("BadReply", "a reply without a body")


def _canonical(value: Any) -> Any:
    """Return a JSON value in which equal numbers are written alike: 0.0 is 0."""
    if isinstance(value, dict):
        return {name: _canonical(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each line of a file, without empty lines."""
    offset = 0
    with path.open("rb") as file:
        for line in file:
            if line.strip():
                yield offset, line
            offset += len(line)
