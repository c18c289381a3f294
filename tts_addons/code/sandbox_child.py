"""The sandbox process: it isolates itself, then runs an untrusted program and its tests.

It is run by its path (`python -I sandbox_child.py REPORT CONTROL`) and imports only the standard library, so that it
starts fast. The program's process reports on the pipe REPORT; CONTROL is closed there, and gets the exit status of that
process. The parent (`tts_addons.code.sandbox`) enforces the limits on time, processes, memory and output.

There are three processes. This one creates the namespaces and waits. Its child is the first process of the new process
namespace, whose end kills all others in it. The child of that process runs the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import resource
import signal
import stat
import struct
import sys
from typing import Any, Final, NoReturn

_NEW_USER, _NEW_NET, _NEW_PID, _NEW_IPC, _NEW_MOUNT = 0x10000000, 0x40000000, 0x20000000, 0x08000000, 0x00020000
_BIND, _RECURSIVE, _PRIVATE, _NO_DEVICES, _DETACH = 4096, 16384, 1 << 18, 6, 2
_DEVICES, _WRITABLE, _MOST_FILES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"), ("/dev/shm",), 1000
# numbers of system calls, equal on all 64-bit architectures
_MOUNT_SETATTR, _CREATE, _ADD_RULE, _RESTRICT = 442, 444, 445, 446
_READ_ONLY, _AT_RECURSIVE, _AT_FDCWD = 1, 0x8000, -100
NOBODY: Final = 65534
_DEATH_SIGNAL, _NO_NEW_PRIVILEGES, _SUBREAPER, _DROP_BOUND, _CAPABILITY_VERSION = 1, 38, 36, 24, 0x20080522
# rights of Landlock: all on files, by version; those that a file that is no folder can have; those to read and execute
_FILES: Final = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
_OF_A_FILE, _TO_READ, _TO_READ_AND_WRITE = 0x1 | 0x2 | 0x4 | 0x4000 | 0x8000, 0x1 | 0x4 | 0x8, 0x2 | 0x4

_libc = ctypes.CDLL(None, use_errno=True)


class RefusedError(Exception):
    """A part of the sandbox is not available on this machine."""


def _call(what: str, result: int) -> int:
    """Return the result of a system call.

    Raises:
        RefusedError: the call failed.
    """
    if result < 0:
        raise RefusedError(f"{what} failed: {os.strerror(ctypes.get_errno())}")
    return result


def landlock_version() -> int:
    """Return the kernel's version of Landlock.

    Raises:
        RefusedError: the kernel has no Landlock, or it is disabled.
    """
    return _call("Landlock (create_ruleset)", _libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def isolate(config: dict[str, Any]) -> bool:
    """Enter new namespaces with a root of their own.

    The namespaces are of users, network, processes, System V IPC and mounts.

    The root has the folder, shared memory, plain devices, and read-only what a Python program reads. All else is out of
    view: files, and sockets by their path. The folder and shared memory lie in memory and hold `limits["file"]` bytes
    each, with unlinked files.

    Returns:
        Whether the user `NOBODY`, who has no rights, is mapped beside this one.

    Raises:
        RefusedError: the kernel denies a part of the isolation.
    """
    map_users = _map_from_outside() if config["drop"] else None
    user, group = os.getuid(), os.getgid()
    _call(
        "a user and network namespace (unshare)", _libc.unshare(_NEW_USER | _NEW_NET | _NEW_PID | _NEW_IPC | _NEW_MOUNT)
    )
    is_mapped = map_users is not None and map_users()
    if not is_mapped:
        try:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{user} {user} 1")
            _write("/proc/self/gid_map", f"{group} {group} 1")
        except OSError as failure:
            raise RefusedError(f"a user namespace (its map of users) failed: {failure}") from failure
    _call("a private mount", _libc.mount(b"none", b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None))
    _new_root(config["folder"], config["view"], config["limits"]["file"])
    return is_mapped


def _new_root(folder: str, view: dict[str, Any], size: int) -> None:
    """Make a root in memory at the folder's place, and enter it.

    Args:
        folder: The folder that becomes the root.
        view: "paths": the files and folders that the root shows; "links": symbolic links, each with its target.
        size: The size of each writable folder, in bytes.
    """
    sources = {path: os.open(path, os.O_PATH) for path in (*view["paths"], *_DEVICES) if os.path.exists(path)}  # noqa: PTH110
    _mount_memory(folder, "mode=755,size=1m")
    for path, source in sources.items():
        _bind(source, folder + path)
    for path, target in view["links"].items():
        os.makedirs(os.path.dirname(folder + path), exist_ok=True)  # noqa: PTH103, PTH120 - no more imports than it takes
        os.symlink(target, folder + path)  # noqa: PTH211
    os.chdir(folder)
    _call("a root of its own (pivot_root)", _libc.pivot_root(b".", b"."))
    _call("a root of its own (umount)", _libc.umount2(b".", _DETACH))
    os.chdir("/")
    for writable_folder in _WRITABLE:
        os.makedirs(writable_folder, exist_ok=True)  # noqa: PTH103
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    _set_mount("a read-only root", b"/", _AT_RECURSIVE, on=_READ_ONLY)
    for writable_folder in (*_WRITABLE, folder):
        _mount_memory(writable_folder, f"mode=1777,size={size},nr_inodes={_MOST_FILES}")


def _mount_memory(place: str, options: str) -> None:
    _call(
        f"memory at {place}",
        _libc.mount(b"none", os.fsencode(place), b"tmpfs", ctypes.c_ulong(_NO_DEVICES), options.encode()),
    )


def _bind(source: int, place: str) -> None:
    """Bind an open file or folder at a place, which is made."""
    if stat.S_ISDIR(os.fstat(source).st_mode):
        os.makedirs(place, exist_ok=True)  # noqa: PTH103 - no more imports than it takes
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
    path = f"/proc/self/fd/{source}".encode()
    _call(
        "a mount of what is needed",
        _libc.mount(path, os.fsencode(place), None, ctypes.c_ulong(_BIND | _RECURSIVE), None),
    )
    os.close(source)


def _map_from_outside() -> Any:
    """Start a process outside of the namespace that can map two users.

    Return a function that lets the process do so, and returns whether it succeeded.
    """
    read_end, write_end = os.pipe()
    helper_pid = os.fork()
    if not helper_pid:
        try:
            os.close(write_end)
            os.read(read_end, 1)  # waits until this process is in its new namespace
            for name in ("uid_map", "gid_map"):
                _write(f"/proc/{os.getppid()}/{name}", f"0 0 1\n{NOBODY} {NOBODY} 1")
        except OSError:
            os._exit(1)
        os._exit(0)

    def map_users() -> bool:
        os.close(read_end)
        os.write(write_end, b"x")
        os.close(write_end)
        _pid, status = os.waitpid(helper_pid, 0)
        return status == 0

    return map_users


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - a kernel's file, written at once
        file.write(text)


def drop_rights() -> None:
    """Become `NOBODY`: the kernel does not enforce a limit on processes for root."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)  # a change of users clears it


def processes_of(user: int) -> int:
    """Return the number of processes and threads of a user, as the kernel counts them for its limit."""
    count = 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == user:  # noqa: PTH116
                count += len(os.listdir(f"/proc/{name}/task"))  # noqa: PTH208
    return count


def _set_mount(what: str, path: bytes, flags: int, *, on: int = 0, off: int = 0) -> None:
    attributes = struct.pack("QQQQ", on, off, 0, 0)
    arguments = (ctypes.c_int(_AT_FDCWD), path, ctypes.c_uint(flags), attributes, ctypes.c_size_t(len(attributes)))
    _call(what, _libc.syscall(_MOUNT_SETATTR, *arguments))


def restrict(folder: str, readable: list[str]) -> None:
    """Give up all rights on files except those that a program needs.

    The process may read and execute `readable` paths, use plain devices, and do all in the folder.

    Raises:
        RefusedError: Landlock is not available.
    """
    version = landlock_version()
    all_rights = _FILES[min(version, max(_FILES))]
    network_rights = 3 if version >= 4 else 0
    scopes = 3 if version >= 6 else 0
    attributes = struct.pack("QQQ", all_rights, network_rights, scopes)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = _call(
        "Landlock (create_ruleset)", _libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint32(0))
    )
    devices = [(path, _TO_READ_AND_WRITE) for path in _DEVICES]
    writable = [(path, all_rights) for path in (folder, *_WRITABLE)]
    read_only = [(path, _TO_READ) for path in readable]
    for path, rights in [*writable, *read_only, *devices]:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # the path does not exist here
        allowed = rights & all_rights
        if not os.path.isdir(path):  # noqa: PTH112 - no more imports than it takes
            allowed &= _OF_A_FILE
        rule = struct.pack("=Qi", allowed, descriptor)
        _call(
            "Landlock (add_rule)",
            _libc.syscall(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(1), rule, ctypes.c_uint32(0)),
        )
        os.close(descriptor)
    _call("Landlock (restrict_self)", _libc.syscall(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0)))
    os.close(rules)


def limit(limits: dict[str, int], others: int) -> None:
    """Set limits on memory, processor time, open files and their size, and on processes.

    The limit on processes is beyond the `others` of the same user.
    """
    kinds = {
        # twice, so that the parent sees that the limit is passed
        resource.RLIMIT_NPROC: 2 * limits["processes"] + others + 2,
        resource.RLIMIT_AS: limits["memory"],
        resource.RLIMIT_CPU: limits["seconds"] + 1,
        resource.RLIMIT_FSIZE: limits["file"],
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in kinds.items():
        # the processor time has a second more, so that the signal at the soft limit can name the reason
        soft_limit = value
        hard_limit = value + 1 if kind == resource.RLIMIT_CPU else value
        _old_soft, old_hard = resource.getrlimit(kind)
        if old_hard != resource.RLIM_INFINITY:
            soft_limit, hard_limit = min(soft_limit, old_hard), min(hard_limit, old_hard)
        resource.setrlimit(kind, (soft_limit, hard_limit))


def _module(path: str) -> Any:
    """Import a module by its path: the package is not in this process."""
    spec = importlib.util.spec_from_file_location("tts_" + os.path.basename(path)[:-3], path)  # noqa: PTH119
    assert spec is not None, "a Python file"
    assert spec.loader is not None, "a Python file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drop_capabilities() -> None:
    """Give up all rights over the namespaces, also those that the execution of a program would give back."""
    capability = 0
    while _libc.prctl(_DROP_BOUND, capability, 0, 0, 0) == 0:
        capability += 1
    header, no_capabilities = struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)
    _call("dropping capabilities (capset)", _libc.capset(header, no_capabilities))


def _run(config: dict[str, Any], ends: tuple[int, int], runner: Any, refuse_calls: Any) -> NoReturn:
    """Run the program in this process and report the outcome."""
    report, control = ends
    try:
        user = NOBODY if config["drop"] else os.getuid()
        # in a new namespace only the sandbox has two processes of its own
        num_others = 2 if config["isolated"] else processes_of(user)
        if config["drop"]:
            drop_rights()
        limit(config["limits"], num_others)
        if config["isolated"]:
            drop_capabilities()
        _call("no new privileges (prctl)", _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        if config["isolated"]:
            restrict(config["folder"], config["view"]["paths"])
        with contextlib.nullcontext() if config["isolated"] else contextlib.suppress(OSError):
            refuse_calls()
    except (RefusedError, OSError, ValueError) as failure:
        runner.send({"refused": str(failure), "mark": config["mark"]}, control)
        os._exit(3)
    os.close(control)
    report_values = runner.run_program(
        config["program"], config["steps"], config["room"], config["folder"], config["seconds"]
    )
    try:
        runner.send({**report_values, "mark": config["mark"]}, report)
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        os._exit(1)
    os._exit(0)


def _call_in_child(work: Any) -> int:
    """Call `work` in a child process that dies with this one; return the child's exit status."""
    child = os.fork()
    if not child:
        _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        work()
        os._exit(0)
    while True:
        ended_pid, status = os.wait()
        if ended_pid == child:
            return status


def _sweep() -> None:
    """Kill the processes that the program left running: this process is their subreaper."""
    while True:
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123 - a kernel's file
                children = [int(child) for child in file.read().split()]
            for child in children:
                os.kill(child, signal.SIGKILL)
            os.wait()
        except (ChildProcessError, OSError):
            return


def main() -> int:
    """Isolate this process and run the program that is configured; return the exit code.

    The configuration is read from standard input.
    """
    report, control = map(int, sys.argv[1:])
    config = json.loads(sys.stdin.buffer.read())
    _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    runner, seccomp = _module(config["runner"]), _module(config["filter"])
    if config["isolated"]:
        try:
            landlock_version()
            config["drop"] = isolate(config)
            os.chdir(config["folder"])
        except (RefusedError, OSError) as failure:
            os.write(control, json.dumps({"refused": str(failure), "mark": config["mark"]}).encode() + b"\n")
            return 3

    def run_as_first() -> None:
        """Be the first process of the namespace: run the program in a child, and report its exit status."""
        status = _call_in_child(lambda: _run(config, (report, control), runner, seccomp.refuse_calls))
        os.write(control, json.dumps({"status": status, "mark": config["mark"]}).encode() + b"\n")

    _call_in_child(run_as_first)
    _sweep()
    return 0


if __name__ == "__main__":
    sys.exit(main())
