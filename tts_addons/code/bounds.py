"""The bounds of the sandbox, each with its mechanism, and whether it holds on this machine."""

from __future__ import annotations

import secrets
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

from tts_addons.code import cgroup, seccomp
from tts_addons.code.sandbox import why_not


@dataclass(frozen=True, slots=True)
class SandboxBound:
    """A bound of programs.

    Args:
        name: What is bounded.
        mechanism: The mechanism of the bound.
        absent: Why the bound does not hold here; "" where it holds.
        required: Whether `code(sandbox="landlock")` refuses to run without it.
        bare: Whether it holds with `sandbox="none"` as well.
    """

    name: str
    mechanism: str
    absent: str = ""
    required: bool = True
    bare: bool = False

    @property
    def text(self) -> str:
        """The mechanism and whether it holds, in one line."""
        if not self.absent:
            return f"holds: {self.mechanism}" + (", also with sandbox='none'" if self.bare else "")
        return f"absent: {self.absent}" + ("; sandbox='landlock' is refused" if self.required else "")


def bounds() -> list[SandboxBound]:
    """Return the bounds of programs on this machine."""
    isolation, filtered = why_not(), no_filter()
    polled = "counted every 20 ms, shared pages once"
    group = cgroup.make(secrets.token_hex(4), 1 << 26)  # a trial
    if group is None:
        kernel = ""
        missing = f"no control group can be made; {polled}"
    else:
        group.remove()
        kernel = f"a control group (version {group.version}), and {polled}"
        missing = ""
    return [
        SandboxBound("files", "Landlock; a root of its own, read-only but for one folder", isolation),
        SandboxBound("network", "a network namespace; no socket outside is in its root", isolation),
        SandboxBound("processes", "RLIMIT_NPROC; a process namespace; counted every 20 ms", isolation),
        SandboxBound("one process's memory", "RLIMIT_AS", _off_linux(), bare=True),
        SandboxBound("all memory", kernel, missing, required=False, bare=True),
        SandboxBound("memory files, System V", "seccomp", filtered, bare=True),
        SandboxBound("disk, unlinked files", "a folder in memory of the given size", isolation),
        SandboxBound("time, output", "this process's clock and count; RLIMIT_CPU", _off_linux(), bare=True),
    ]


def _off_linux() -> str:
    return "" if sys.platform.startswith("linux") else f"it takes Linux, and this is {sys.platform}"


@cache
def no_filter() -> str:
    """Return why there is no filter of system calls here; "" if there is."""
    if reason := seccomp.missing_reason():
        return reason
    attempt = subprocess.run([sys.executable, "-I", seccomp.__file__], capture_output=True, check=False, timeout=60)
    return "" if attempt.returncode == 0 else "the kernel has no seccomp"
