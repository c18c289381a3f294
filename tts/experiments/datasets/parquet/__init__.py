"""The rows of a Parquet file, read in a process of its own.

Idea: pyarrow trusts a file's numbers. A damaged or hostile file takes gigabytes, or ends the process by a fault of
    memory. Therefore a process with limited memory reads the file (`rows.py`), and sends plain values.
"""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from tts.errors import ConfigError, missing_extra
from tts.experiments.datasets.rows import BadRow, PlacedRow
from tts.tasks.worker import python_command

LENGTH_BYTES: Final = 8  # bytes of the length before each message
# The classes that a message may have beside numbers, texts, lists and mappings. Another process wrote the message.
PLAIN: Final = frozenset(
    {
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
        ("decimal", "Decimal"),
    }
)


def read_parquet(file: Path) -> Iterator[PlacedRow]:
    """Yield the rows of a Parquet file. Values of types other than Python's own become texts.

    Raises:
        MissingDependency: pyarrow is not installed.
        ConfigError: the file is no Parquet file, is damaged, or becomes too large.
        OSError: the file cannot be read.
    """
    if not _has_pyarrow():
        raise missing_extra("pyarrow", "experiments", "reading a Parquet file")
    command = [*python_command("tts.experiments.datasets.parquet.rows"), str(file)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    reader = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    assert reader.stdout is not None, "opened as a pipe"
    try:
        while True:
            kind, *fields = _receive(file, reader.stdout)
            if kind == "end":
                return
            if kind == "refused":
                cause, hint = fields
                raise ConfigError(cause, hint=hint)
            if kind == "unreadable":
                errno, message = fields
                raise OSError(errno, message)
            place, row = fields
            yield place, BadRow(row) if kind == "bad" else row
    finally:
        reader.stdout.close()
        reader.kill()
        reader.wait()


def _has_pyarrow() -> bool:
    try:
        return importlib.util.find_spec("pyarrow") is not None
    except ValueError:  # the module is marked as absent
        return False


def _receive(file: Path, stream: IO[bytes]) -> tuple[Any, ...]:
    """Return the next message of the process: its kind, and its fields.

    Raises:
        ConfigError: the process ended without a last message.
    """
    size = int.from_bytes(stream.read(LENGTH_BYTES), "little")
    body = stream.read(size)
    if not body or len(body) < size:
        raise ConfigError(
            f"{file.name} is no Parquet file that can be read: pyarrow ended the process that read it, or took too "
            "much memory",
            hint="write it anew, or as .jsonl",
        )
    return _Plain(io.BytesIO(body)).load()


class _Plain(pickle.Unpickler):
    """An unpickler of plain values, which refuses all other classes."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in PLAIN:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is no plain value")
        return super().find_class(module_name, global_name)
