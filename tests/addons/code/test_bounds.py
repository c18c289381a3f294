"""The bounds of programs: memory in every form, files without a name, sockets and rights; and what is told of them."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.addons.code.test_code import MODES, SHUT_IN
from tts.errors import CapabilityError
from tts_addons.code import bounds, cgroup, sandbox, seccomp
from tts_addons.code.process_tree import descendants, folder_bytes, memory_of
from tts_addons.code.sandbox import ProgramOutcome, ProgramResult, SandboxLimits, run
from tts_addons.code.view import may_enter

FILTERED = pytest.mark.skipif(bool(bounds.no_filter()), reason=f"no filter of system calls here: {bounds.no_filter()}")
MIB = 1 << 20
LIBC = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"


def ran(program: str, tests: str = "assert True", *, isolated: bool = True, **limits: Any) -> ProgramResult:
    return run(program, tests, SandboxLimits(seconds=30.0, **limits), isolated=isolated)


@FILTERED
@pytest.mark.parametrize("isolated", MODES)
@pytest.mark.parametrize(
    "attempt",
    [
        "import os\nfor i in range(30):\n    end = os.memfd_create('m')\n    os.ftruncate(end, 63 << 20)\n    "
        "os.pwrite(end, b'x', 0)",
        LIBC + "if libc.shmget(0, 1 << 26, 0o1600) < 0: raise PermissionError",
        LIBC + "if libc.msgget(0, 0o1600) < 0: raise PermissionError",
        LIBC + "if libc.semget(0, 100, 0o1600) < 0: raise PermissionError",
        LIBC + "if libc.unshare(0x10000000) < 0: raise PermissionError",
        LIBC + "if libc.mount(b'none', b'.', b'tmpfs', 0, None) < 0: raise PermissionError",
        LIBC + "if libc.ptrace(16, os.getppid(), 0, 0) < 0: raise PermissionError",
        "import fcntl, os\nfcntl.fcntl(os.pipe()[1], 1031, 1 << 20)",
        "import socket\nsocket.socket(38, socket.SOCK_SEQPACKET)",
    ],
    ids=["memfd", "shmget", "msgget", "semget", "unshare", "mount", "ptrace", "pipe size", "other sockets"],
)
def test_what_holds_memory_or_rights_beyond_the_limits_is_refused(attempt: str, isolated: bool) -> None:
    result = ran(attempt, isolated=isolated)
    assert result.outcome is ProgramOutcome.ERROR
    assert result.detail.startswith("PermissionError")


@pytest.mark.parametrize("isolated", MODES)
def test_files_without_a_name_count(isolated: bool) -> None:
    kept = "import os, time\nends = []\nfor i in range(6):\n"
    kept += "    ends.append(open('f', 'wb', 0))\n    os.remove('f')\n    ends[-1].write(bytes(4 << 20))\n"
    result = ran(kept + "time.sleep(20)", isolated=isolated, disk=16 * MIB)
    assert result.outcome is ProgramOutcome.DISK, result


@pytest.mark.slow
@SHUT_IN
@pytest.mark.parametrize("place", [".", "/dev/shm"])
def test_memory_that_looks_like_a_disk_is_bounded(place: str) -> None:
    many = f"for i in range(40):\n    open('{place}/%d' % i, 'wb').write(bytes(1 << 20))"
    assert ran(many, disk=16 * MIB).outcome is ProgramOutcome.DISK
    assert ran(many.replace("40", "8"), disk=16 * MIB).outcome is ProgramOutcome.PASSED


@pytest.mark.slow
@pytest.mark.parametrize("isolated", MODES)
def test_memory_that_forked_processes_share_counts_once(isolated: bool) -> None:
    forks = "import os, time\nx = bytearray(b'x' * (100 << 20))\n"
    forks += "for _ in range(8):\n    if not os.fork():\n        time.sleep(600)\ntime.sleep(1.5)\n"
    result = ran(forks, isolated=isolated, memory=512 * MIB)
    assert result.outcome is ProgramOutcome.PASSED, result
    own = forks.replace("time.sleep(600)", "x[::4096] = bytes(len(x[::4096])); time.sleep(600)").replace(
        "sleep(1.5)", "sleep(20)"
    )
    assert ran(own, isolated=isolated, memory=512 * MIB).outcome is ProgramOutcome.MEMORY


def test_memory_of_processes_counts_shared_pages_once() -> None:
    source = (
        "import os, sys, time\nx = b'x' * (64 << 20)\nfor _ in range(3):\n    if not os.fork():\n        "
        "time.sleep(60)\n"
    )
    source += "print(1, flush=True)\ntime.sleep(60)"
    command = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {source!r}])"
    with subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE) as outer:
        assert outer.stdout is not None
        outer.stdout.read(1)
        processes = list(descendants(outer.pid))
        resident, held = sum(size for _, size in processes), memory_of(processes)
        for pid, _ in processes:
            subprocess.run(["kill", "-9", str(pid)], check=False)
    assert len(processes) == 4
    assert resident > 4 * 64 * MIB
    assert 64 * MIB < held < 2 * 64 * MIB


def test_a_process_that_has_ended_since_it_was_listed_holds_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert memory_of([(process.pid, 1 << 40)]) == 0  # ended, and not waited for
    assert memory_of([(process.pid, 1 << 40)]) == 0
    assert memory_of([(os.getpid(), 1 << 40)]) < 1 << 40


@pytest.mark.slow
@SHUT_IN
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_sockets_outside_are_out_of_reach(kind: str, tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o777)
    with (
        socket.socket(socket.AF_UNIX, socket.SocketKind[kind]) as server,
        socket.socket(socket.AF_UNIX, socket.SocketKind[kind]) as hidden,
    ):
        server.bind(str(tmp_path / "s"))
        (tmp_path / "s").chmod(0o777)
        hidden.bind(f"\0{tmp_path}")
        if kind == "SOCK_STREAM":
            server.listen()
            hidden.listen()
        for address, error in ((str(tmp_path / "s"), "FileNotFoundError"), (f"\0{tmp_path}", "ConnectionRefusedError")):
            attempt = f"import socket\nsocket.socket(socket.AF_UNIX, socket.{kind}).connect({address!r})"
            result = ran(attempt)
            assert result.outcome is ProgramOutcome.ERROR
            assert result.detail.startswith((error, "PermissionError"))
        inside = (
            "import socket\nl = "
            "socket.socket(socket.AF_UNIX)\nl.bind('own')\nl.listen()\nsocket.socket(socket.AF_UNIX).connect('own')"
        )
        assert ran(inside).outcome is ProgramOutcome.PASSED


@pytest.mark.slow
@SHUT_IN
def test_the_view_has_the_interpreter_and_no_more() -> None:
    here = str(Path(__file__).parent)
    program = (
        "import os\ndef seen(path): return os.path.exists(path)\ndef root(): return "
        f"sorted(os.listdir('/'))\nHERE = {here!r}"
    )
    tests = (
        f"assert not seen('/etc/passwd')\nassert not seen('/proc/self')\nassert not seen({here!r})\nassert "
        f"seen({sys.prefix!r})\n"
        "assert not seen('/run')\nassert not seen('/sys')\nassert seen('/usr/lib')\nassert seen('/dev/null')\nassert "
        "not seen('/dev/kvm')\n"
    )
    result = ran(program, tests)
    assert result.outcome is ProgramOutcome.PASSED, result
    for place in ("/new", "/usr/new", "/dev/new", sys.prefix + "/new"):
        assert ran(f"open({place!r}, 'w')").outcome is ProgramOutcome.ERROR


@SHUT_IN
def test_it_has_no_capability_also_after_an_execution() -> None:
    source = (
        "import ctypes, struct\nlibc = ctypes.CDLL(None)\n"
        "header, sets = struct.pack('Ii', 0x20080522, 0), ctypes.create_string_buffer(24)\n"
        "assert libc.capget(header, sets) == 0\nprint(sets.raw.hex())\n"
    )
    program = f"import subprocess, sys\nsource = {source!r}\n"
    program += "def held(): return subprocess.check_output([sys.executable, '-c', source], text=True)"
    result = ran(program, f"assert held().strip() == {'0' * 48!r}")
    assert result.outcome is ProgramOutcome.PASSED, result


class TestControlGroups:
    def test_the_kernel_ends_what_holds_more(self) -> None:
        group = cgroup.make("test", 64 * MIB)
        if group is None:
            pytest.skip("no control group can be made here")
        try:
            wait = (
                "import os, sys\nsys.stdin.read()\nend = os.memfd_create('m')\nfor _ in range(200):\n    "
                "os.write(end, bytes(1 << 20))\n"
            )
            with subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.PIPE) as process:
                assert group.add(process.pid)
                assert not group.has_killed()
                process.communicate(b"")
            assert process.returncode == -9
            assert group.has_killed()
        finally:
            group.remove()
        assert not group.path.exists()

    def test_a_program_leaves_none(self) -> None:
        ran("x = 1", isolated=False)
        place = cgroup.place()
        assert place is None or not list(place[0].glob(f"tts-code-{os.getpid()}-*"))

    def test_where_they_may_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "user").mkdir()
        (tmp_path / "user" / "cgroup.subtree_control").write_text("cpu memory pids\n")
        own = "1:cpu:/a\n4:memory:/b/c\n0::/user/own\n"
        mounts = (
            f"cgroup /sys/m cgroup rw,memory 0 0\ncgroup /sys/c cgroup rw,cpu 0 0\nnone {tmp_path} cgroup2 rw 0 0\n"
        )
        assert cgroup.candidates(own, mounts) == [(Path("/sys/m/b/c"), 1), (tmp_path / "user", 2)]
        (tmp_path / "user" / "cgroup.subtree_control").write_text("cpu\n")
        assert cgroup.candidates(own, mounts) == [(Path("/sys/m/b/c"), 1)]

    def test_version_two_is_bounded_by_its_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cgroup, "place", lambda: (tmp_path, 2))
        group = cgroup.make("x", 5)
        assert group is not None
        assert (group.path / "memory.max").read_text() == "5"
        assert group.add(7)
        assert (group.path / "cgroup.procs").read_text() == "7"
        assert not group.has_killed(), "where the kernel tells nothing"
        (group.path / "memory.events").write_text("low 0\noom 1\noom_kill 0\n")
        assert not group.has_killed()
        (group.path / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
        assert group.has_killed()

    def test_version_one_is_bounded_by_its_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cgroup, "place", lambda: (tmp_path, 1))
        group = cgroup.make("x", 5)
        assert group is not None
        assert (group.path / "memory.limit_in_bytes").read_text() == "5"
        (group.path / "memory.oom_control").write_text("under_oom 0\noom_kill 1\n")
        assert group.has_killed()

    def test_where_none_can_be_made_there_is_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cgroup, "place", lambda: None)
        assert cgroup.make("x", 5) is None
        monkeypatch.setattr(cgroup, "place", lambda: (tmp_path / "nowhere", 2))
        assert cgroup.make("x", 5) is None
        assert not cgroup.ControlGroup(tmp_path / "nowhere", 2).add(7)

    def test_a_place_without_the_controller_or_the_right_to_write_is_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert cgroup.candidates("0::/a/b\n", f"none {tmp_path} cgroup2 rw 0 0\n") == []
        monkeypatch.setattr(cgroup, "candidates", lambda own, mounts: [(tmp_path / "nowhere", 2), (tmp_path, 2)])
        (tmp_path / f"tts-code-{os.getpid()}-x").mkdir()
        (tmp_path / "tts-code-0-x").mkdir()  # no process has this number
        assert cgroup.place.__wrapped__() == (tmp_path, 2)
        assert [left.name for left in tmp_path.iterdir()] == [f"tts-code-{os.getpid()}-x"]
        monkeypatch.setattr(cgroup, "candidates", lambda own, mounts: [])
        assert cgroup.place.__wrapped__() is None


def test_files_of_a_folder_count_with_those_below_it(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_bytes(b"x" * 10_000)
    assert 10_000 <= (folder_bytes(str(tmp_path)) or 0) < MIB
    assert folder_bytes(str(tmp_path / "nowhere")) == 0
    tmp_path.joinpath(*"d" * 50).mkdir(parents=True)
    assert folder_bytes(str(tmp_path)) is None, "folders are nested too deeply"


def test_every_folder_above_must_let_a_user_without_rights_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", "/usr")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert may_enter("/usr/lib")
    (tmp_path / "shut").mkdir(mode=0o700)
    assert not may_enter(str(tmp_path / "shut" / "folder"))


class TestWhatIsTold:
    def test_each_bound_names_its_mechanism(self) -> None:
        told = bounds.bounds()
        assert len({bound.name for bound in told}) == len(told) == 8
        assert all(bound.mechanism or bound.absent for bound in told)
        assert all(bound.text.startswith(("holds: ", "absent: ")) for bound in told)

    def test_what_is_absent_is_told_and_refused_where_it_is_required(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bounds, "why_not", lambda: "Landlock failed")
        monkeypatch.setattr(bounds, "no_filter", lambda: "no seccomp")
        monkeypatch.setattr(bounds.cgroup, "make", lambda *given: None)
        told = {bound.name: bound.text for bound in bounds.bounds()}
        assert told["files"] == "absent: Landlock failed; sandbox='landlock' is refused"
        assert told["memory files, System V"] == "absent: no seccomp; sandbox='landlock' is refused"
        assert told["all memory"] == "absent: no control group can be made; counted every 20 ms, shared pages once"

    def test_what_keeps_programs_from_being_shut_in_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuses(*given: Any) -> None:
            raise CapabilityError("a user namespace (unshare) failed")

        monkeypatch.setattr(sandbox, "run", refuses)
        assert sandbox.why_not.__wrapped__() == "a user namespace (unshare) failed"
        monkeypatch.setattr(sys, "platform", "darwin")
        assert sandbox.why_not.__wrapped__() == "it takes Linux, and this is darwin"

    def test_a_machine_without_a_filter_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(platform, "machine", lambda: "sparc")
        assert (
            seccomp.missing_reason()
            == bounds.no_filter.__wrapped__()
            == "no filter of system calls is written for sparc"
        )
        with pytest.raises(OSError, match=r"calls.*sparc"):
            seccomp.refuse_calls()
        monkeypatch.setattr(platform, "system", lambda: "Darwin")
        assert seccomp.missing_reason() == "seccomp takes Linux, and this is Darwin"

    @pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
    def test_a_filter_is_whole(self, machine: str) -> None:
        code = seccomp.filter_of(machine)
        assert len(code) % 8 == 0
        assert len(seccomp.MACHINES[machine][4]) == len(seccomp.REFUSED)
        steps = [(int.from_bytes(code[i : i + 2], "little"), code[i + 2], code[i + 3]) for i in range(0, len(code), 8)]
        for i, (kind, if_true, if_false) in enumerate(steps):
            if kind & 7 == 5:
                assert i + 1 + max(if_true, if_false) < len(steps)
        assert steps[-1][0] == 6
