"""Run the commands of documents as they are written.

    python scripts/document_commands.py [--slow] [DOCUMENT ...]

The documents are the README, of which the shell blocks run, and the pages of docs/ but results and decisions. Blocks
run one after another, in a new folder with `examples` and a `problem.txt`, with a new home. The Python blocks of a page
share their names, as in one session.

- A block with a title (```yaml title="study.yaml") is written to that file.
- A block ```text title="Output" must be what the block before it printed, where … stands for any text.
- A line that ends in & runs on until the page ends. The next line begins once the command answers at its port.
- Requests to any server reach the tests' own one, by the variable HTTP_PROXY, on pages that name a server; there
  `https` is written `http`.
- What is not run stands in `LEFT_OUT` with its reason, or below a comment: <!-- not run: REASON -->.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
KEY = "sk-of-nobody-0123456789"
_LEFT = ("docs/results/", "docs/decisions/")  # records, which are not done again
# beginnings of commands that are not run here, and why
LEFT_OUT: Mapping[str, str] = {
    "make": "CI runs it",
    "pip install": "installs; CI installs the wheel, and environments of their own test the rest",
    "vllm serve": "a server: tests/backends/openai/test_servers.py starts it where vLLM is installed",
    "python -m llama_cpp.server": "a server: tests/backends/openai/test_servers.py starts it where llama.cpp is "
    "installed",
    "llama-server": "a server that is not installed; the page says so",
    "python -m sglang": "a server that needs a GPU; the page says so",
    "OLLAMA_": "a server that is not installed; the page says so",
    'tts solve "What is 12 + 7 * 3?" --backend vllm': "needs vLLM: tests/backends/vllm runs it there",
    "import tts\n\nif __name__": "needs vLLM: tests/backends/vllm runs it there",
}
# beginnings of commands that take minutes on the embedded models, which --slow runs
SLOW = ("tts sample examples/selections.yaml", "tts verifiers report", "tts calibrate", "tts fit")
_BLOCK = re.compile(
    r'(?:^<!-- (not run|needs): (.+?) -->\n)?^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE
)
_COMMENT = re.compile(r"\s{2,}#.*$|^#.*$")
_SERVER = re.compile(r"--url https?://|url: \[?https?://|\burl=\"http")  # of pages whose commands ask a model's server
_SECONDS = 900
_PORT = "8400"  # the gateway's, in documents; here a free one stands for it
_SESSION = """
import contextlib, io, json, sys, traceback
told, names = sys.stdout, {"__name__": "__session__"}
for line in sys.stdin:
    out, wrong = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(json.loads(line), "block", "exec"), names)
    except BaseException:
        wrong = traceback.format_exc()
    told.write(json.dumps([out.getvalue(), wrong]) + "\\n")
    told.flush()
"""


@dataclass(frozen=True)
class Command:
    """A command of a document.

    Args:
        document: The document.
        code: The code, of Python or of a shell.
        python: Whether the code is Python.
        file: The file that the code is written to, without running it; "": the code is run.
        reason: The reason why it is not run; "": it is run.
        shown: The output that its block shows; None: not shown.
        first: Whether it is the first command of its block.
    """

    document: str
    code: str
    python: bool = False
    file: str = ""
    reason: str = ""
    shown: str | None = None
    first: bool = True

    @property
    def left_out(self) -> str:
        """Why it is not run; "": it is."""
        return self.reason or next((why for begin, why in LEFT_OUT.items() if self.code.startswith(begin)), "")

    @property
    def slow(self) -> bool:
        """Whether it takes minutes."""
        return self.code.startswith(SLOW)


def documents() -> list[str]:
    """Return the READMEs of the project and of its add-ons, and the pages that have commands, by path."""
    files = [*sorted(ROOT.glob("tts_addons/*/README.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    pages = [page.relative_to(ROOT).as_posix() for page in files]
    return [page for page in ("README.md", *pages) if not page.startswith(_LEFT) and any(True for _ in commands(page))]


def commands(document: str) -> Iterator[Command]:
    """Yield the commands of a document, in order."""
    blocks = list(_BLOCK.finditer((ROOT / document).read_text(encoding="utf-8")))
    for block, after in zip_longest(blocks, blocks[1:]):
        reason, kind, title, code = block[2] or "", block[3], block[4] or "", block[5]
        shown = after[5] if after is not None and after[4] == "Output" else None
        if title == "Output" or block[1] == "needs":
            continue
        if title:
            yield Command(document, code, file=title, reason=reason)
        elif kind == "python":
            yield Command(document, code.strip("\n"), python=True, reason=reason, shown=shown)
        elif kind == "bash":
            lines = [" ".join(_COMMENT.sub("", line).split()) for line in code.replace("\\\n", " ").split("\n")]
            lines = [line for line in lines if line]
            for number, line in enumerate(lines):
                yield Command(
                    document, line, reason=reason, shown=shown if line is lines[-1] else None, first=not number
                )


def environment(home: Path, proxy: str) -> dict[str, str]:
    """Return the environment of commands, with a home of their own.

    Args:
        home: The home.
        proxy: The address of a server that answers at every address; "": none.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TTS_", "OPENAI_", "XDG_")) and "proxy" not in name.lower()
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(home), "TTS_HOME": str(home / "tts"), "COLUMNS": "80"}
    return {**kept, **own, **({"HTTP_PROXY": proxy} if proxy else {})}


def run(command: Command, folder: Path, environ: Mapping[str, str]) -> str:
    """Run a command alone; return what is wrong with it, or ""."""
    with Session(folder, dict(environ)) as session:
        return session.run(command)


class Session:
    """A page's folder, environment and Python process."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder, self.environ = folder, environ
        self.printed = ""
        self._stack = contextlib.ExitStack()
        self._python: subprocess.Popen[str] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def run(self, command: Command) -> str:
        """Run a command behind those before it; return what is wrong with it or with what it printed, or ""."""
        code = command.code.replace(_PORT, self.port)
        if command.file:
            place = self.folder / command.file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(command.code.replace("https://", "http://"), encoding="utf-8")
            return ""
        if export := re.fullmatch(r"export (\w+)=(\S+)", code):
            self.environ[export[1]] = export[2].replace("~", self.environ["HOME"])
            return ""
        if command.first:
            self.printed = ""
        code = code.replace("https://", "http://")
        try:
            wrong = (
                self._run_python(code)
                if command.python
                else self._start_background(code[:-1])
                if code.endswith("&")
                else self._run_shell(code)
            )
        except subprocess.TimeoutExpired:
            return f"no end within {_SECONDS} s"
        return wrong or _difference(command.shown, self.printed.replace(self.port, _PORT))

    def _run_shell(self, code: str) -> str:
        done = subprocess.run(
            ["bash", "-c", code],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        self.printed += done.stdout
        return (
            ""
            if done.returncode == 0
            else f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}"
        )

    def _run_python(self, code: str) -> str:
        if self._python is None:
            self._python = self._start_process(
                [sys.executable, "-c", _SESSION], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps(code) + "\n")
        self._python.stdin.flush()
        answer = self._python.stdout.readline()
        self.printed, wrong = json.loads(answer) if answer else ("", "the process ended")
        return str(wrong)

    def _start_background(self, code: str) -> str:
        began, started = time.monotonic(), self._start_process(["bash", "-c", f"exec {code}"])
        named = re.search(r"--port (\d+)", code)
        port = int(named[1] if named else self.port)
        while time.monotonic() < began + _SECONDS and started.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return ""
            time.sleep(0.1)
        return f"nothing answered at its port; exit code {started.poll()}"

    def _start_process(self, arguments: list[str], **options: Any) -> subprocess.Popen[str]:
        """Start a process that ends with the session."""
        process: subprocess.Popen[str] = subprocess.Popen(arguments, cwd=self.folder, env=self.environ, **options)
        self._stack.callback(process.wait)
        self._stack.callback(process.terminate)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                self._stack.callback(stream.close)
        return process


def _difference(shown: str | None, printed: str) -> str:
    """Return what is wrong with what was printed beside what a document shows, where … is any text."""
    if shown is None:
        return ""
    wanted, got = ("\n".join(line.rstrip() for line in text.strip("\n").split("\n")) for text in (shown, printed))
    pattern = ".*?".join(re.escape(part) for part in wanted.split("…"))
    return "" if re.fullmatch(pattern, got, re.DOTALL) else f"it shows\n{wanted}\nbut was printed:\n{got}"


def check_document(document: str, *, slow: bool) -> Iterator[tuple[Command, str]]:
    """Run the commands of a document; yield each with what is wrong with it, or ""."""
    from tests.backends.openai.anywhere import Anywhere, serving

    text = (ROOT / document).read_text(encoding="utf-8")
    hosted, recipes = document.endswith("hosted.md"), document.endswith("recipes.md")
    names = re.findall(
        r"(?:--(?:model|served-as)|\bmodel:) ([^\s,]+)" if recipes else r"--(?:model|served-as) (\S+)", text
    )
    names = [
        *dict.fromkeys(
            name
            for name in names
            if name not in ("mini", "toy", "toy-thinking", "pocket", "smollm2", "NAME`", "MODEL.gguf")
        )
    ] or ["NAME"]
    server = Anywhere(model=names[0], others=tuple(names[1:]) if hosted or recipes else (), key=KEY if hosted else "")
    with tempfile.TemporaryDirectory() as made, serving(server) as url:
        folder, home = Path(made) / "work", Path(made) / "home"
        (home / ".keys").mkdir(parents=True)
        (home / ".keys" / "openai").write_text(KEY)
        folder.mkdir()
        (folder / "examples").symlink_to(ROOT / "examples")
        (folder / "problem.txt").write_text("What is 3 + 4 - 2?\n")
        with Session(folder, environment(home, url if _SERVER.search(text) else "")) as session:
            for command in commands(document):
                if not command.left_out and (slow or not command.slow):
                    yield command, session.run(command)


def main() -> int:
    """Run every command; return the exit code."""
    slow, given = "--slow" in sys.argv[1:], [one for one in sys.argv[1:] if one != "--slow"] or documents()
    faults = 0
    for document in given:
        for command, wrong in check_document(document, slow=slow):
            faults += bool(wrong)
            sys.stdout.write(f"{document}: {command.file or command.code.splitlines()[0]}: {wrong or 'ok'}\n")
            sys.stdout.flush()
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
