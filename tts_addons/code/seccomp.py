"""A filter of system calls: what would hold memory or rights beyond the other limits is refused.

It imports only the standard library: the sandbox process loads it by its path. Refused are memory files; System V
memory, queues and semaphores; POSIX queues; kernel keys; larger pipes; new namespaces and mounts; tracing of processes;
and interfaces that bypass the filter.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from typing import Final

_NO_NEW_PRIVILEGES, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
# offsets of the call's number, the machine, the lower words of arguments
_NUMBER, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24
_FOREIGN = 0x40000000  # numbers from here on are those of another interface of x86-64
_NAMESPACES, _PIPE_SIZE = 0x7E020000, 1031  # flags of clone for new namespaces; fcntl's F_SETPIPE_SZ
_FAMILIES = (1, 2, 10, 16)  # sockets: UNIX, IPv4, IPv6, netlink
# machine -> its number, the numbers of clone, fcntl and socket, and the calls refused in the order of REFUSED
MACHINES: Final = {
    "x86_64": (0xC000003E, 56, 72, 41, (
        319, 29, 68, 64, 240, 250, 248, 249, 165, 166, 155, 272, 308, 101, 310, 311, 321, 298, 323, 304, 246, 175, 313,
        300,
    )),
    "aarch64": (0xC00000B7, 220, 25, 198, (
        279, 194, 186, 190, 180, 219, 217, 218, 40, 39, 41, 97, 268, 117, 270, 271, 280, 241, 282, 265, 104, 105, 273,
        262,
    )),
}  # fmt: skip
REFUSED: Final = (
    "memfd_create", "shmget", "msgget", "semget", "mq_open", "keyctl", "add_key", "request_key", "mount", "umount2",
    "pivot_root", "unshare", "setns", "ptrace", "process_vm_readv", "process_vm_writev", "bpf", "perf_event_open",
    "userfaultfd", "open_by_handle_at", "kexec_load", "init_module", "finit_module", "fanotify_init",
)  # fmt: skip
# memfd_secret, io_uring_setup, open_tree, move_mount, fsopen, fsmount, mount_setattr, pidfd_getfd: equal on both
_REFUSED_EVERYWHERE: Final = (447, 425, 428, 429, 430, 432, 442, 438)
_CLONE3 = 435  # its flags lie in memory: the C library uses clone where it is missing


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def filter_of(machine: str) -> bytes:
    """Return the filter as a program of the kernel's packet filters, for a machine of `MACHINES`.

    A jump skips as many steps as its last two numbers say: the first if the test holds, else the second.
    """
    machine_number, clone, fcntl, socket, refused = MACHINES[machine]
    deny = [_step(_RETURN, _ERROR | errno.EPERM)]
    missing = [_step(_RETURN, _ERROR | errno.ENOSYS)]
    steps = [_step(_LOAD, _MACHINE), _step(_JUMP_EQUAL, machine_number, 1, 0), *deny, _step(_LOAD, _NUMBER)]
    steps += [_step(_JUMP_ABOVE, _FOREIGN, 0, 1), *missing, _step(_JUMP_EQUAL, _CLONE3, 0, 1), *missing]
    steps += [step for call in (*refused, *_REFUSED_EVERYWHERE) for step in (_step(_JUMP_EQUAL, call, 0, 1), *deny)]
    steps += [
        _step(_JUMP_EQUAL, clone, 0, 4),
        _step(_LOAD, _FIRST),
        _step(_JUMP_ANY_BIT, _NAMESPACES, 0, 1),
        *deny,
        _step(_RETURN, _ALLOW),
    ]
    steps += [
        _step(_JUMP_EQUAL, fcntl, 0, 4),
        _step(_LOAD, _SECOND),
        _step(_JUMP_EQUAL, _PIPE_SIZE, 0, 1),
        *deny,
        _step(_RETURN, _ALLOW),
    ]
    # each of the allowed families jumps over the others and the refusal
    allow_families = [_step(_JUMP_EQUAL, family, len(_FAMILIES) - i, 0) for i, family in enumerate(_FAMILIES)]
    steps += [
        _step(_JUMP_EQUAL, socket, 0, 2 + len(allow_families)),
        _step(_LOAD, _FIRST),
        *allow_families,
        *deny,
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(steps)


def missing_reason() -> str:
    """Return the reason that no filter is known for this machine; "" if a filter is known."""
    machine = platform.machine()
    if platform.system() != "Linux":
        return f"seccomp takes Linux, and this is {platform.system()}"
    return "" if machine in MACHINES else f"no filter of system calls is written for {machine}"


def refuse_calls() -> None:
    """Refuse the calls to this process and all that it starts, for good.

    Raises:
        OSError: no filter is known for this machine, or its kernel has no seccomp.
    """
    reason = missing_reason()
    if reason:
        raise OSError(errno.ENOSYS, reason)
    code = ctypes.create_string_buffer(filter_of(platform.machine()))
    program = struct.pack("HxxxxxxP", (len(code) - 1) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _MODE_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "a filter of system calls (seccomp) failed")


if __name__ == "__main__":
    refuse_calls()
