"""Run the commands of documents as they are written: shell blocks of the README and the guide, and all blocks of docs/servers.

Commands run one after another, in a new folder with `examples` and a `problem.txt`, with a new home. Requests to any server reach the
tests' own one, by the variable HTTP_PROXY; `https` is written `http` for it. What is not run stands in `LEFT_OUT`, with its reason.

    python scripts/document_commands.py [--slow] [DOCUMENT ...]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
KEY = "sk-of-nobody-0123456789"
DOCUMENTS = (
    "README.md",
    "docs/guide.md",
    *(f"docs/servers/{name}.md" for name in ("README", "vllm", "llama_cpp", "sglang", "ollama", "hosted")),
)
# beginnings of commands that are not run here, and why
LEFT_OUT: Mapping[str, str] = {
    "make": "CI runs it",
    "pip install": "installs; CI installs the wheel, and environments of their own test the rest",
    "vllm serve": "a server: tests/backends/openai/test_servers.py starts it where vLLM is installed",
    "python -m llama_cpp.server": "a server: tests/backends/openai/test_servers.py starts it where llama.cpp is installed",
    "llama-server": "a server that is not installed; the page says so",
    "python -m sglang": "a server that needs a GPU; the page says so",
    "OLLAMA_": "a server that is not installed; the page says so",
    "tts serve-model": "a server that runs until it is stopped: tests/cli/test_serve_model.py starts it where its engine is installed",
    'tts solve "What is 12 + 7 * 3?" --backend vllm': "needs vLLM: tests/backends/vllm runs it there",
    "if __name__": "needs vLLM: tests/backends/vllm runs it there",
}
# beginnings of commands that take minutes on the embedded models, which --slow runs
SLOW = ("tts sample examples/selections.yaml", "tts verifiers report", "tts verifiers threshold", "tts fit")
_FENCED = re.compile(r"^```bash\n(.*?)^```", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:^    .*\n|^\n(?=    ))+", re.MULTILINE)
_COMMENT = re.compile(r"\s{2,}#.*$|^#.*$")
_SECONDS = 900


@dataclass(frozen=True)
class Command:
    """A command of a document: `code` is Python where `python` is set, else a shell's."""

    document: str
    code: str
    python: bool = False

    @property
    def left_out(self) -> str:
        """Why it is not run; "": it is."""
        return next((why for begin, why in LEFT_OUT.items() if self.code.startswith(begin)), "")

    @property
    def slow(self) -> bool:
        """Whether it takes minutes."""
        return self.code.startswith(SLOW)


def commands(document: str) -> Iterator[Command]:
    """Yield the commands of a document, in order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = _FENCED.findall(text) or [textwrap.dedent(block) for block in _INDENTED.findall(text)]
    for block in blocks:
        for part in re.split(r"\n\s*\n", block.replace("\\\n", " ").strip("\n")):
            if re.match(r"tts\.|if __name__|import ", part):
                yield Command(document, part, python=True)
                continue
            for line in part.split("\n"):
                if bare := " ".join(_COMMENT.sub("", line).split()):
                    yield Command(document, bare)


def environment(home: Path, proxy: str) -> dict[str, str]:
    """Return the environment of commands: a home of their own, and a server at every address."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TTS_", "OPENAI_", "XDG_")) and "proxy" not in name.lower()
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {
        **kept,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "TTS_HOME": str(home / "tts"),
        "HTTP_PROXY": proxy,
        "COLUMNS": "100",
    }


def run(command: Command, folder: Path, environ: Mapping[str, str]) -> str:
    """Run a command; return what is wrong with it, or ""."""
    code = command.code.replace("https://", "http://")
    shell = [sys.executable, "-c", f"import tts\n{code}"] if command.python else ["bash", "-c", code]
    try:
        done = subprocess.run(shell, cwd=folder, env=dict(environ), capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {_SECONDS} s"
    return "" if done.returncode == 0 else f"exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}"


def checked(document: str, *, slow: bool) -> Iterator[tuple[Command, str]]:
    """Run the commands of a document; yield each with what is wrong with it, or ""."""
    from tests.backends.openai.anywhere import Anywhere, serving

    hosted = document.endswith("hosted.md")
    names = re.findall(r"--model (\S+)", (ROOT / document).read_text(encoding="utf-8"))
    names = [*dict.fromkeys(name for name in names if name not in ("mini", "toy", "smollm2", "NAME`"))] or ["NAME"]
    server = Anywhere(model=names[0], others=tuple(names[1:]) if hosted else (), key=KEY if hosted else "")
    with tempfile.TemporaryDirectory() as made, serving(server) as url:
        folder, home = Path(made) / "work", Path(made) / "home"
        (home / ".keys").mkdir(parents=True)
        (home / ".keys" / "openai").write_text(KEY)
        folder.mkdir()
        (folder / "examples").symlink_to(ROOT / "examples")
        (folder / "problem.txt").write_text("What is 3 + 4 - 2?\n")
        environ = environment(home, url)
        for command in commands(document):
            if command.left_out or (command.slow and not slow):
                continue
            if export := re.fullmatch(r"export (\w+)=(\S+)", command.code):
                environ[export[1]] = export[2].replace("~", str(home))
                continue
            yield command, run(command, folder, environ)


def main() -> int:
    """Run every command; return the exit code."""
    slow, documents = "--slow" in sys.argv[1:], [one for one in sys.argv[1:] if one != "--slow"] or DOCUMENTS
    faults = 0
    for document in documents:
        for command, wrong in checked(document, slow=slow):
            faults += bool(wrong)
            sys.stdout.write(f"{document}: {command.code.splitlines()[0]}: {wrong or 'ok'}\n")
            sys.stdout.flush()
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
