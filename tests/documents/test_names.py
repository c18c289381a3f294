"""Names of code in documents: each path, module, command and option that a code span or block writes exists.

Only what is unmistakable is read: a path below a folder of the repository, a dotted name below one of its packages, and
a line of a shell that begins with one of its commands.
"""

from __future__ import annotations

import ast
import fnmatch
import pkgutil
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tts.cli.app import app

ROOT = Path(__file__).parents[2]
TOPS = ("tts", "tts_addons", "research", "benchmarks", "scripts", "tests", "examples", "docs")
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "research/README.md",
    *(page.relative_to(ROOT).as_posix() for page in sorted(ROOT.glob("tts_addons/*/README.md"))),
    *(page.relative_to(ROOT).as_posix() for page in sorted((ROOT / "docs").rglob("*.md"))),
]
# pages on which `tts.x` is a field of the gateway's replies
OTHER_DOTS = (
    "docs/how-to/gateway",
    "docs/how-to/clients.md",
    "docs/tutorials/gateway.md",
)
# of users' files, and of other programs
FOREIGN = {"tts/workspaces", "scripts/test_time_compute.py", "tests/hidden/", "tests/test_money.py"}
_CODE = re.compile(r"^```(?:bash)?\n(.*?)^```$|`([^`\n]+)`", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"(?:tts|make|python -m [a-z][\w.]*|python [\w/]+\.py)(?: |$)")
_DOTTED = re.compile(rf"((?:{'|'.join(TOPS[:6])})(?:\.\w+)+)(?<!\.py)(?:\(|$)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="the documents are not here")


def codes(text: str) -> Iterator[str]:
    """Yield the code spans of a page, and the commands of its shell blocks, one by one."""
    for block, span in _CODE.findall(text):
        lines = block.replace("\\\n", " ").splitlines() or [span]
        for line in lines:
            shown = re.sub(r"\s{2,}#.*$|^#.*$", "", line)
            parts = (part.strip() for part in re.split(r" && | \| |; ", shown))
            yield from (re.sub(r"^(?:\w+=\S+ |nice -n 10 |exec )+", "", part) for part in parts)


@cache
def commands() -> Mapping[str, frozenset[str] | None]:
    """Return the options of each command; None: its options are not known."""
    found: dict[str, frozenset[str] | None] = {}

    def add(name: str, command: Any) -> None:
        opts = (opt for one in command.params for opt in (*one.opts, *one.secondary_opts))
        found[name] = frozenset({*opts, "--help", "--debug"})
        for inner, child in getattr(command, "commands", {}).items():
            add(f"{name} {inner}", child)

    add("tts", typer.main.get_command(app))
    made = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(VENV)", ".venv")
    rules = re.findall(r"^([^\s#=:][^=:\n]*):(?!=)", made, re.MULTILINE)
    found |= {f"make {target}": None for rule in rules for target in rule.split()}
    return found


def command_faults(line: str) -> Iterator[str]:
    """Yield what is wrong with a line of a shell: a command that does not exist, or an option that it lacks."""
    words = line.split()
    if words[:1] == ["python"]:
        path = words[1] if words[1] != "-m" else words[2].replace(".", "/")
        if path.split("/")[0] in TOPS and not any((ROOT / (path + end)).exists() for end in ("", ".py")):
            yield f"{line}: no such module"
        return
    name, rest = words[0], words[1:]
    if name == "tts" and rest[:1] == ["--log"]:
        rest = rest[2:]
    while rest and re.fullmatch(r"[a-z.][\w./-]*", rest[0]) and any(one.startswith(f"{name} ") for one in commands()):
        name, rest = f"{name} {rest[0]}", rest[1:]
        if name not in commands():
            yield f"{line}: no command {name}"
            return
    known = commands().get(name)
    inner = [more or frozenset() for other, more in commands().items() if other.startswith(f"{name} ")]
    for option in _OPTION.findall(" ".join(rest)) if known is not None else ():
        if option not in known.union(*inner):
            yield f"{line}: {name} has no option {option}"


@cache
def files() -> frozenset[str]:
    """Return the paths of all files and folders."""
    paths = (path for top in TOPS for path in [ROOT / top, *(ROOT / top).rglob("*")])
    return frozenset(path.relative_to(ROOT).as_posix() for path in paths if "__pycache__" not in path.parts)


def has_name(dotted: str) -> bool:
    """Return whether a module, or what is defined in one, has a dotted name."""
    try:
        pkgutil.resolve_name(dotted)
    except ImportError as missing:
        return missing.name is not None and missing.name.split(".")[0] not in TOPS  # a package that is not installed
    except AttributeError:
        holder, _, name = dotted.rpartition(".")
        try:  # a field without a value
            return name in getattr(pkgutil.resolve_name(holder), "__annotations__", {})
        except (AttributeError, ImportError):
            return False
    return True


def faults(page: str, text: str) -> list[str]:
    """Return each name of a page that does not exist, with what it should be."""
    found: list[str] = []
    for code in codes(text):
        if _COMMAND.match(code):
            found += command_faults(code)
        elif re.fullmatch(rf"(?:{'|'.join(TOPS)})/[\w./*-]*", code) and code not in FOREIGN:
            if not fnmatch.filter(files(), code.rstrip("/")):
                found.append(f"{code}: no such file")
        elif dotted := _DOTTED.match(code) if not page.startswith(OTHER_DOTS) else None:
            found += [] if has_name(dotted[1]) else [f"{dotted[1]}: no such module or name"]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_each_name_of_a_page_exists(page: str) -> None:
    assert faults(page, (ROOT / page).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("`tts/search/serach.py`", "file"),
        ("`tests/contracts/test_*_nowhere.py`", "file"),
        ("`tts.solvee`", "name"),
        ("`tts.search.serach.Search`", "name"),
        ("`tts.Solution.anser`", "name"),
        ("`tts solv --budget 3`", "command tts solv"),
        ("`tts models remove_all`", "command tts models"),
        ("`tts solve --budgt 3`", "option --budgt"),
        ("```bash\nA=1 tts run study.yaml --exekutor ray\n```", "option --exekutor"),
        ("`python -m research.claim --auto`", "module"),
        ("`make tests`", "command make tests"),
    ],
)
def test_a_wrong_name_is_found(text: str, word: str) -> None:
    (fault,) = faults("docs/how-to/index.md", text)
    assert f"no {word}" in fault.replace("such module or ", "").replace("such ", "").replace("has no", "no")


def test_a_right_name_is_not() -> None:
    text = (
        "`tts/search/search.py`, `tests/contracts/`, `tests/backends/engine/test_memory*.py`, `tts.solve(prompt, 3)`, "
        "`tts.Solution.answer`, `tts.search.ends`, `tts solve --budget 3`, `tts models add`, "
        "`python -m research.claims`, `make test`\n\n"
        "```bash\nmake test && tts run study.yaml --executor ray   # with no --other option\n```\n"
    )
    assert faults("docs/how-to/index.md", text) == []


def architecture() -> str:
    return (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")


def test_the_floors_are_those_that_are_enforced() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert "\n```text\n" + "\n".join(layers) + "\n```\n" in architecture()


def test_the_checks_of_the_code_are_those_that_run() -> None:
    tree = ast.parse((ROOT / "scripts" / "check_architecture.py").read_text(encoding="utf-8"))
    run = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "faults")
    starred = (node.value for node in ast.walk(run) if isinstance(node, ast.Starred))
    names = [ast.unparse(call.func) for call in starred if isinstance(call, ast.Call)]
    table = architecture().partition("| check | refuses |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == names
