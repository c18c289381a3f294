"""Run tests in processes that fork once all tests are collected.

    python -m pytest -p tests.support.forks --forks 2

So imports and the collection are paid once. Each process takes one file of tests after the other, and reports to the
first process, which prints. If a process dies, the test that it ran has failed, and a new process runs the other tests
that it had taken. Without `--forks`, pytest runs its own loop.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

# bytes of a number in the queue, which is a pipe: whichever process reads so many has the next number to itself
WIDTH = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forks", type=int, default=0, metavar="N", help="run the tests in N processes that fork after the collection"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("forks") or 0
    if count < 1 or session.config.option.collectonly or session.testsfailed:
        return None
    assert threading.active_count() == 1, f"forked processes would lack the threads {threading.enumerate()}"
    Processes(session, count).run()
    return True


class Processes:
    """The forked processes, as the first process sees them."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self.session, self.hook = session, session.config.hook
        files: dict[Path, list[int]] = {}
        for index, item in enumerate(session.items):
            files.setdefault(item.path, []).append(index)
        # large ones first, so that all processes end at about the same time
        self.groups = sorted(files.values(), key=len, reverse=True)
        self.queue, end = os.pipe()
        os.write(end, b"".join(number.to_bytes(WIDTH, "big") for number in range(len(self.groups))))
        os.close(end)
        self.made = self.over = 0
        self.running: dict[Connection, Process] = {}
        for _ in range(count):
            self.start([])

    def run(self) -> None:
        """Wait until all tests have ended.

        Raises:
            Failed, Interrupted: by one of pytest's own options, such as `-x`.
        """
        try:
            while self.running:
                for told in wait(list(self.running)):
                    self.hear(self.running[told])  # type: ignore[index]
                    if self.session.shouldfail:
                        raise self.session.Failed(self.session.shouldfail)
                    if self.session.shouldstop:
                        raise self.session.Interrupted(self.session.shouldstop)
        finally:
            for process in self.running.values():
                os.kill(process.pid, signal.SIGKILL)
                os.waitpid(process.pid, 0)
            os.close(self.queue)
        assert self.over == len(self.session.items), f"{self.over} of {len(self.session.items)} tests were run"

    def start(self, first: Sequence[int]) -> None:
        """Fork a process that runs some tests, then those of the queue."""
        receiver, tell = Pipe(duplex=False)
        folder = self.session.config._tmp_path_factory.getbasetemp() / f"fork-{self.made}"  # type: ignore[attr-defined]
        self.made += 1
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            receiver.close()
            Inside(self.session, self.groups, self.queue, tell).run(first, folder)
        tell.close()
        self.running[receiver] = Process(pid, receiver, list(first))

    def hear(self, process: Process) -> None:
        """Act on what a process tells, or on its end."""
        try:
            what, value, *reports = process.told.recv()
        except EOFError:
            what, value, reports = "end", os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1]), []
        if what == "end":  # beyond the handler, lest errors of what is started here have one more cause
            del self.running[process.told]
            self.note_end(process, value)
        elif what == "took":
            process.taken += self.groups[value]
        elif what == "start":
            process.at, item = value, self.session.items[value]
            self.hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        else:
            for data in reports:
                report = self.hook.pytest_report_from_serializable(config=self.session.config, data=data)
                self.hook.pytest_runtest_logreport(report=report)
            self.finish(process, self.session.items[value])

    def finish(self, process: Process, item: pytest.Item) -> None:
        assert process.at is not None
        process.taken.remove(process.at)
        process.at, self.over = None, self.over + 1
        self.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def note_end(self, process: Process, code: int) -> None:
        if process.at is not None:
            item, why = self.session.items[process.at], f"the process ended with {code} while it ran this test"
            self.hook.pytest_runtest_logreport(
                report=pytest.TestReport(item.nodeid, item.location, {}, outcome="failed", longrepr=why, when="call")
            )
            self.finish(process, item)
        if process.taken:
            self.start(process.taken)


class Process:
    """One forked process.

    Args:
        pid: The number of the process.
        told: The connection on which the process reports.
        taken: The places of tests that it has taken and not ended.

    Attributes:
        at: The place of the test that it runs; None: it runs none.
    """

    def __init__(self, pid: int, told: Connection, taken: list[int]) -> None:
        self.pid, self.told, self.taken = pid, told, taken
        self.at: int | None = None


class Inside:
    """What a forked process does; also a plugin there, which tells what happens."""

    def __init__(self, session: pytest.Session, groups: Sequence[Sequence[int]], queue: int, tell: Connection) -> None:
        self.session, self.groups, self.queue, self.tell = session, groups, queue, tell
        self.at = 0
        self.reports: list[Any] = []

    def run(self, first: Sequence[int], folder: Path) -> NoReturn:
        code = 1
        try:
            self.settle(folder)
            tests = self.tests(first)
            following = next(tests, None)
            while following is not None:
                self.at, following = following, next(tests, None)
                after = None if following is None else self.session.items[following]
                item = self.session.items[self.at]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            code = 0
        except BaseException:  # noqa: BLE001 - a fork must not go on as the first process
            traceback.print_exc()
        finally:
            with suppress(BaseException):
                atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - servers and threads that tests have left
            os._exit(code)

    def settle(self, folder: Path) -> None:
        """Take nothing from the first process that other processes have too.

        These are its files, its terminal, and the output that it captured.
        """
        config = self.session.config
        folder.mkdir()
        config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        config.get_terminal_writer()._file = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 # pyright: ignore[reportPrivateUsage]
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        config.pluginmanager.register(self, "forked")
        threads = sys.modules.get("tts._core.threads")
        if threads is not None:
            # nothing has used torch yet, so that this process may do so as one that was not forked
            threads._FORKED.clear()

    def tests(self, first: Sequence[int]) -> Iterator[int]:
        yield from first
        while number := os.read(self.queue, WIDTH):
            group = int.from_bytes(number, "big")
            self.tell.send(("took", group))
            yield from self.groups[group]

    def pytest_runtest_logstart(self) -> None:
        self.tell.send(("start", self.at))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        self.reports.append(config.hook.pytest_report_to_serializable(config=config, report=report))

    def pytest_runtest_logfinish(self) -> None:
        self.tell.send(("finish", self.at, *self.reports))
        self.reports.clear()
