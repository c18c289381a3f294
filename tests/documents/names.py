"""Check the names of code in documents: paths, modules, classes, functions, parameters, commands, options and columns.

A page is parsed as Markdown. Each code span and each block is read as what it is: a command, a path, or Python. The
names in it are looked up in the index of the repository: its files, its syntax trees, its registries, and the parsers
of its commands. A span that is none of these, such as a formula, names nothing. A name of other software stands in
`foreign.FOREIGN`, with the reason.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import fnmatch
import functools
import importlib
import itertools
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

CODE = ("tts", "tts_addons", "research", "benchmarks", "scripts", "tests", "examples")
SUFFIXES = (
    ".py",
    ".md",
    ".yaml",
    ".toml",
    ".sh",
    ".svg",
    ".png",
    ".html",
    ".txt",
    ".json",
    ".jsonl",
    ".ini",
    ".cfg",
    ".sqlite",
)  # of files that the repository may hold
BASES = (
    "",
    "tts",
    "tts_addons",
    "tests",
    "tts/search",
    "tts/backends",
    "tts/backends/engine",
    "research",
    "docs",
)  # paths are written below one of these
# pages on which `tts.x` is a field of the gateway's replies
REPLIED = ("docs/how-to/gateway", "docs/how-to/receipts.md", "docs/tutorials/gateway.md", "tts_addons/gateway/")
# files whose strings are names that nothing has any more, or that are not ours
UNREAD = ("tests/documents/foreign.py", "tests/documents/test_names.py")
_PATH = re.compile(r"[\w.*-]*(?:/[\w.*{},-]*)+|[\w*-]+(?:\.\w+)+")
_WORD = re.compile(r"_?[A-Za-z]\w*")
_MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass
class Index:
    """What the repository defines.

    Attributes:
        files: The paths of all files and folders.
        modules: The names that each module defines.
        members: The fields, methods and attributes of each class, with those of its bases.
        parameters: The parameters of each function, method, class or registered part by its name.
        served: The strings of the gateway, and the names that it defines.
        words: All names that code defines, and all strings in it that could be a column, a key or a value.
        options: The options of each command.
    """

    files: set[str] = field(default_factory=set)
    modules: dict[str, set[str]] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    parameters: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    served: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    options: dict[str, set[str]] = field(default_factory=dict)


def repository_index(root: Path) -> Index:
    """Return the index of a repository, whose package is the one that is imported."""
    index = Index()
    for top in (*CODE, "docs", ".ci"):
        for path in [root / top, *(root / top).rglob("*")]:
            if not {"__pycache__", "build"} & set(path.parts) and path.exists():
                index.files.add(path.relative_to(root).as_posix())
    index.files |= {path.name for path in root.iterdir() if path.name != ".git"}
    bases: dict[str, set[str]] = defaultdict(set)
    for name in sorted(index.files):
        if name.endswith(".py") and name.startswith(CODE):
            _index_module(index, name, ast.parse((root / name).read_text(encoding="utf-8")), bases)
        elif name.endswith((".yaml", ".json")) and name.startswith(("tts/", "tts_addons/", "examples/")):
            index.words |= set(_WORD.findall((root / name).read_text(encoding="utf-8")))
    for name in index.members:
        for base in _ancestors(name, bases):
            index.members[name] |= index.members.get(base, set())
            index.parameters[name] |= index.parameters.get(base, set())
    index.words |= set(re.findall(r"^([\w-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    index.words |= set(
        re.findall(r"^([\w-]+) = \[", (root / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    )
    _index_commands(index, root)
    _index_parts(index)
    return index


def _ancestors(name: str, bases: Mapping[str, set[str]]) -> Iterator[str]:
    seen, todo = {name}, [*bases.get(name, ())]
    while todo:
        base = todo.pop()
        if base not in seen:
            seen.add(base)
            todo += bases.get(base, ())
            yield base


def _index_module(index: Index, path: str, tree: ast.Module, bases: dict[str, set[str]]) -> None:
    parts = path.removesuffix(".py").split("/")
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    names = index.modules.setdefault(module, set())
    index.words |= {*parts, *(part.replace("_", "-") for part in parts)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            given = node.args
            every = {
                one.arg
                for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
                if one
            }
            index.words |= every
            if not isinstance(node, ast.Lambda):
                index.words.add(node.name)
                index.parameters[node.name] |= {*(every - {"self"}), *(["**"] if given.kwarg else [])}
        elif isinstance(node, ast.ClassDef):
            index.words.add(node.name)
            bases[node.name] |= {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
            _index_class(index, node)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and len(node.value) < 80
            and path not in UNREAD
        ):
            index.words.add(node.value)
            if path.startswith(("tts_addons/gateway/", "tts/trace/", "tts/types.py")):
                index.served.add(node.value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and path == "tts/types.py":
            index.served.add(node.target.id)
    for node in tree.body:
        names |= set(_defined(node))
    index.words |= names


def _defined(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module or a class defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.If | ast.Try | ast.With):
        for one in (*node.body, *getattr(node, "orelse", ())):
            yield from _defined(one)


def _index_class(index: Index, node: ast.ClassDef) -> None:
    members = index.members[node.name]
    for statement in node.body:
        members |= set(_defined(statement))
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            index.parameters[node.name].add(statement.target.id)
        if isinstance(statement, ast.FunctionDef) and statement.name in ("__init__", "__new__"):
            index.parameters[node.name] |= {one.arg for one in (*statement.args.args, *statement.args.kwonlyargs)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and ast.unparse(inner.value) == "self":
            members.add(inner.attr)
    index.words |= members


def _index_parts(index: Index) -> None:
    from tts.backends import BACKENDS
    from tts.experiments.datasets import DATASETS
    from tts.search.parts import EMBEDDERS, SELECTIONS, STOP_RULES, STRATEGIES
    from tts.tasks import TABLE
    from tts.verifiers import VERIFIERS

    for table in (BACKENDS, DATASETS, EMBEDDERS, SELECTIONS, STOP_RULES, STRATEGIES, TABLE, VERIFIERS):
        for name, place in table.entries.items():
            attribute = place.rpartition(":")[2]
            index.words.add(name)
            index.parameters[name] |= index.parameters.get(attribute, set())


def _index_commands(index: Index, root: Path) -> None:
    import typer

    from tts.cli.app import app

    def add(name: str, command: Any) -> None:
        options = {text for one in command.params for text in (*one.opts, *one.secondary_opts) if text.startswith("-")}
        index.options[name] = {*options, "--help", "--debug"}
        for inner, child in getattr(command, "commands", {}).items():
            add(f"{name} {inner}", child)

    add("tts", typer.main.get_command(app))
    for name in index.files:
        if name.endswith(".py") and name.startswith(
            ("research/", "benchmarks/", "scripts/", "tests/support/", "examples/")
        ):
            options = {"--help", *_script_options(root, root / name)}
            module = name.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
            index.options[f"python -m {module}"] = index.options[f"python {name}"] = options
    made = (root / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([^\s#=:][^=:\n]*):(?!=)", made.replace("$(VENV)", ".venv"), re.MULTILINE)
    index.options |= {f"make {target}": set() for rule in rules for target in rule.split()}


def _script_options(root: Path, path: Path, only: ast.Call | None = None) -> Iterator[str]:
    """Yield the options that a file gives its parser, and those of the functions that it calls for it.

    Args:
        root: The root of the repository.
        path: The file.
        only: The call of the only function of the file that is read; None: the whole file.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = "" if only is None else ast.unparse(only.func).split(".")[-1]
    scope: list[ast.AST] = (
        [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name] if name else [tree]
    )
    calls = [node for part in scope for node in ast.walk(part) if isinstance(node, ast.Call)]
    for node in (node for part in scope for node in ast.walk(part)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"--[a-z][\w-]*", node.value)
        ):
            yield node.value
        elif isinstance(node, ast.FunctionDef) and node.name == name and node.args.kwarg and only is not None:
            named = {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
            yield from (f"--{one.arg}" for one in only.keywords if one.arg not in named)
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
        for alias in node.names if (node.module or "").startswith(("research", "benchmarks", "scripts")) else ():
            module, own = root / str(node.module).replace(".", "/"), alias.asname or alias.name
            for call in calls:
                func = ast.unparse(call.func)
                target = module / f"{alias.name}.py" if func.startswith(f"{own}.") else module.with_suffix(".py")
                if (func == own or func.startswith(f"{own}.")) and target.exists() and target != path:
                    yield from _script_options(root, target, only=call)


@dataclass(frozen=True)
class Piece:
    """A code span, or a block with its language."""

    text: str
    block: str | None = None


def pieces(text: str) -> Iterator[Piece]:
    """Yield the code spans and blocks of a page, in order."""

    def walk(tokens: Iterable[Token]) -> Iterator[Piece]:
        for token in tokens:
            if token.type == "code_inline":
                yield Piece(token.content.replace("\\|", "|"))
            elif token.type in ("fence", "code_block"):
                yield Piece(token.content, token.info.split()[0] if token.info.strip() else "")
            yield from walk(token.children or ())

    return walk(_MARKDOWN.parse(text))


def rows_of_tables(text: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a page's tables, each with its cells, as they are written, by the headings of their columns."""
    heading = list[str]()
    for token, after in itertools.pairwise(tokens := _MARKDOWN.parse(text)):
        if token.type == "thead_open":
            heading = []
        elif token.type == "th_open":
            heading.append(after.content)
        elif token.type == "tr_open" and after.type == "td_open":
            place = tokens.index(token)
            ends = next(i for i in range(place, len(tokens)) if tokens[i].type == "tr_close")
            cells = [one.content for one in tokens[place:ends] if one.type == "inline"]
            yield dict(zip(heading, cells, strict=False))


@dataclass
class Page:
    """A page's names, against an index.

    Attributes:
        path: The page's path from the root.
        text: Its Markdown.
        index: What the repository defines.
        foreign: Names that it may use though the repository does not define them.
        docstring: Whether it is one of docstrings. Of these only commands and names with a place are read: `tts.x`,
            `Class.member`, `tts/x.py`.
        used: Those of the foreign names that were met.
    """

    path: str
    text: str
    index: Index
    foreign: frozenset[str] = frozenset()
    docstring: bool = False
    used: set[str] = field(default_factory=set)

    @functools.cached_property
    def own(self) -> set[str]:
        """The words and files that stand in the page's blocks: what its examples define, and what commands print."""
        return {
            word for piece in self.pieces if piece.block is not None for word in re.findall(r"[\w./-]+|\w+", piece.text)
        }

    @functools.cached_property
    def pieces(self) -> list[Piece]:
        """The code spans and blocks."""
        return list(pieces(self.text))

    @functools.cached_property
    def commands(self) -> set[str]:
        """The commands that the page names."""
        found = set()
        for piece in self.pieces:
            if piece.block in (None, "bash", ""):
                named = {self.command(line)[0] for line in _shell_lines(piece.text)}
                found |= named & self.index.options.keys()
                found |= {
                    name
                    for name in self.index.options
                    if name.startswith(tuple(one for one in named if one.endswith(".")))
                }
        return found

    def faults(self) -> list[str]:
        """Return each name that does not exist, with what it should be."""
        found = []
        for piece in self.pieces:
            if piece.block is None:
                if piece.text in self.foreign:
                    self.used.add(piece.text)
                    continue
                found += self.of_span(piece.text)
            elif self.docstring:
                continue
            elif piece.block in ("bash", ""):
                found += [fault for line in _shell_lines(piece.text) for fault in self.of_command(line)]
                found += self.of_layout(piece.text)
            elif piece.block == "text":
                found += self.of_layout(piece.text)
            elif piece.block == "python":
                with contextlib.suppress(SyntaxError):
                    found += self.of_python(ast.parse(piece.text), block=True)
        return list(dict.fromkeys(found))

    def exists(self, word: str) -> bool:
        """Whether a word is one of the repository's, of the page's blocks, or foreign to both."""
        if word in self.foreign:
            self.used.add(word)
        return word in self.index.words or word in self.own or word in self.foreign or hasattr(builtins, word)

    def of_span(self, text: str) -> list[str]:
        """Return the faults of a code span."""
        if text.split(" ", maxsplit=1)[0] in ("tts", "python", "make") and " " in text:
            return self.of_command(text)
        if (
            self.docstring
            and not re.match(rf"(?:{'|'.join(CODE)}|docs)[./]", text)
            and text.split(".", maxsplit=1)[0] not in self.index.members
        ):
            return []
        if re.fullmatch(r"--[a-z][\w-]*(?:[ =].*)?", text):
            option = re.split("[ =]", text)[0]
            return [] if self.has_option(option) else [f"{text}: no command of the page has this option"]
        if self.is_path(text) and not re.match(r"tts\.", text):
            return [] if self.path_exists(text) else [f"{text}: no such file"]
        if re.fullmatch(r"[a-z]\w*(?:-[a-z]\w*)+", text):
            return [] if self.exists(text) else [f"{text}: nothing has this name"]
        tree = _as_python(text)
        return [] if tree is None else self.of_python(tree)

    def has_option(self, option: str) -> bool:
        """Whether a command that the page names has an option; on a page without commands, any command."""
        if option in self.foreign:
            self.used.add(option)
            return True
        named = self.commands or {name for name in self.index.options if name.startswith("tts")}
        return any(option in self.index.options[name] for name in named)

    def is_path(self, text: str) -> bool:
        """Whether a span is the path of a file or folder that could be the repository's."""
        if not _PATH.fullmatch(text) or text.startswith(("/", "~", ".")) or re.match(r"\d", text):
            return False
        return "/" in text or text.endswith(SUFFIXES)

    def path_exists(self, text: str) -> bool:
        """Whether a path is one of a file below a base, below the page's folder, or of the page's own examples."""
        path, folder = text.rstrip("/"), self.path.rpartition("/")[0]
        if path in self.own or text in self.own:
            return True
        bases = [f"{base}/" if base else "" for base in (*BASES, folder)]
        if any(fnmatch.fnmatchcase(file, base + path) for base in bases for file in self.candidates(base + path)):
            return True
        return "/" not in path and any(file.endswith("/" + path) for file in self.index.files)

    def candidates(self, path: str) -> Iterable[str]:
        """Return the files that a path may match: itself, or all where it has a wildcard."""
        return self.index.files if "*" in path else self.index.files & {path}

    def command(self, line: str) -> tuple[str, list[str]]:
        """Return the command of a shell's line, "" for another program's, and the words after it."""
        with contextlib.suppress(ValueError):
            words = shlex.split(line)
            while words and (re.fullmatch(r"\w+=.*", words[0]) or words[0] in ("nice", "exec", "-n", "10")):
                words = words[1:]
            if words[:2] == ["python", "-m"] and len(words) > 2:
                return f"python -m {words[2]}", words[3:]
            if words[:1] == ["python"] and len(words) > 1 and words[1].endswith(".py"):
                return f"python {words[1]}", words[2:]
            if words[:1] == ["make"] and len(words) > 1:
                return f"make {words[1]}", []
            if words[:1] == ["tts"]:
                name, rest = "tts", words[1:]
                while rest[:1] == ["--log"] and name == "tts":
                    rest = rest[2:]
                while rest and f"{name} {rest[0]}" in self.index.options:
                    name, rest = f"{name} {rest[0]}", rest[1:]
                bad = name == "tts" or any(other.startswith(f"{name} ") for other in self.index.options)
                return (f"{name} {rest[0]}" if bad and rest and rest[0].islower() else name), rest
        return "", []

    def of_command(self, line: str) -> list[str]:
        """Return the faults of a line of a shell: a command that does not exist, or an option that it lacks."""
        name, words = self.command(line)
        if name.startswith("python -m ") and not name.startswith(tuple(f"python -m {top}" for top in CODE[2:])):
            return (
                self.of_dotted([*name.split(" ")[2].split("."), "__name__"])
                if name.startswith(("python -m tts.", "python -m tts_addons."))
                else []
            )
        if (
            not name
            or name in self.foreign
            or name.endswith((".", "MODULE"))
            or name in [f"python {one}" for one in self.own]
        ):
            self.used |= {name} & self.foreign
            return []
        if name not in self.index.options:
            return [f"{line}: no command {name}"]
        options = [re.split("[ =]", word)[0] for word in words if re.match(r"--[a-z]", word)]
        missing = [one for one in options if one not in self.index.options[name] and one not in self.foreign]
        return [f"{line}: {name} has no option {one}" for one in missing]

    def of_layout(self, text: str) -> list[str]:
        """Return the faults of a tree of folders and files: a line begins with a path below those less indented."""
        rows = [re.match(r"( *)([\w.]+(?:/|\.py|\.md|\.html))(?: |$)", line) for line in text.splitlines()]
        if not rows or rows[0] is None or not rows[0][2].endswith("/"):
            return []
        found, folders = [], list[tuple[int, str]]()
        for row, line in zip(rows, text.splitlines(), strict=True):
            if row is not None and len(row[1]) < 8:
                folders = [one for one in folders if one[0] < len(row[1])]
                path = (folders[-1][1] if folders else "") + row[2]
                if path in self.foreign:
                    self.used.add(path)
                elif path.rstrip("/") not in self.index.files:
                    found.append(f"{path}: no such file")
                if path.endswith("/"):
                    folders.append((len(row[1]), path))
            place = folders[-1][1] if folders else ""
            for name in re.findall(r"\b[\w/]+\.(?:py|html|md)\b|\b\w+/", line[row.end() - 1 :] if row else line):
                if name in self.foreign:
                    self.used.add(name)
                elif name.rstrip("/") not in self.index.files and not any(
                    f"/{file}/".endswith(f"/{name.rstrip('/')}/") for file in self.index.files if file.startswith(place)
                ):
                    found.append(f"{place}: no {name} below it")
        return found

    def of_python(self, tree: ast.AST, *, block: bool = False) -> list[str]:
        """Return the faults of a syntax tree: dotted names, parameters of calls, and in a span all names."""
        found, inner, free = [], set[ast.AST](), set[str]()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tts"):
                found += [
                    fault
                    for alias in node.names
                    for fault in self.of_dotted([*str(node.module).split("."), alias.name])
                ]
            elif isinstance(node, ast.Attribute) and node not in inner and (chain := _chain(node, inner)):
                found += self.of_dotted(chain, block=block)
            elif isinstance(node, ast.Call) and not block:
                found += self.of_call(node)
                inner.add(node.func)
                free |= {one.id for one in node.args if isinstance(one, ast.Name) and len(one.id) < 3}
                if isinstance(node.func, ast.Attribute):
                    found += self.of_dotted(_chain(node.func, inner) or [])
            elif (
                isinstance(node, ast.Name)
                and not block
                and node not in inner
                and node.id not in free
                and not self.exists(node.id)
            ):
                found.append(f"{node.id}: nothing has this name")
        return found

    def of_call(self, node: ast.Call) -> list[str]:
        """Return the faults of a call: a name that nothing has, or a parameter that all of that name lack."""
        name = ast.unparse(node.func).split(".")[-1]
        given = [one.arg for one in node.keywords if one.arg]
        if name == "_":
            return [f"{one}=: nothing has this parameter" for one in given if not self.exists(one)]
        if name in self.foreign:
            self.used.add(name)
            return []
        if name in self.own or (hasattr(builtins, name) and name not in self.index.parameters):
            return []
        if name not in self.index.parameters and name not in self.index.members:
            return [f"{name}: no function or class has this name"]
        known = self.index.parameters.get(name, set())
        return [] if "**" in known else [f"{name} has no parameter {one}" for one in given if one not in known]

    def of_dotted(self, chain: list[str], *, block: bool = False) -> list[str]:
        """Return the faults of a dotted name: of a module, of a class's member, of an object's attribute."""
        if not chain:
            return []
        text, first = ".".join(chain), chain[0]
        if text in self.foreign or f"{first}." in self.foreign:
            self.used |= {text, f"{first}."} & self.foreign
            return []
        if first == "tts" and self.path.startswith(REPLIED) and all(one in self.index.served for one in chain[1:]):
            return []  # a field of the gateway's replies
        if first in ("tts", "tts_addons", "research", "benchmarks", "scripts", "tests"):
            return [] if self.dotted_exists(chain) else [f"{text}: no such module or name"]
        if first in self.index.members and len(chain) > 1:
            return [] if chain[1] in self.index.members[first] else [f"{first} has no {chain[1]}"]
        if block or first in sys.stdlib_module_names:
            return []
        return [f"{text}: nothing has the name {one}" for one in chain if not self.exists(one)]

    def dotted_exists(self, chain: list[str]) -> bool:
        """Whether a module, or what is defined in one, has a dotted name."""
        for length in range(len(chain), 0, -1):
            module, rest = ".".join(chain[:length]), chain[length:]
            if module not in self.index.modules:
                continue
            if not rest:
                return True
            found: Any = importlib.import_module(module) if chain[0] in ("tts", "tts_addons") else None
            if found is None:
                return rest[0] in self.index.modules[module]
            for one in rest:
                if isinstance(found, type) and one in self.index.members.get(found.__name__, set()):
                    return True
                try:
                    found = getattr(found, one)
                except (AttributeError, ImportError):  # an ImportError: a package that is not installed
                    return False
            return True
        return ".".join(chain) in self.index.words  # an entry point's group, or a logger


def _chain(node: ast.Attribute, inner: set[ast.AST]) -> list[str] | None:
    """Return the parts of `a.b.c`, and mark its nodes as read; None where it begins with a call or an item."""
    names, at = [node.attr], node.value
    while isinstance(at, ast.Attribute):
        inner.add(at)
        names.insert(0, at.attr)
        at = at.value
    inner.add(at)
    return [at.id, *names] if isinstance(at, ast.Name) else None


def _as_python(text: str) -> ast.AST | None:
    """Return a span's syntax tree, or None where it is no Python; `…` is any value, and `name=` a parameter."""
    source = re.sub(r"=(?=[,)]|$)", "=...", text.replace("…", "...").removeprefix("await "))
    source = re.sub(r"\(\.\.\., (?=\w+=)", "(", source)
    for form in (source, f"_({source})"):
        with contextlib.suppress(SyntaxError, ValueError):
            return ast.parse(form, mode="eval")
    return None


def _shell_lines(text: str) -> Iterator[str]:
    """Yield the commands of a shell's block, those of a pipe or of a list one by one."""
    for line in text.replace("\\\n", " ").splitlines():
        shown = re.sub(r"\s{2,}#.*$|^#.*$", "", line)
        yield from (part.strip() for part in re.split(r" && | \|\s(?=tts|python)|; ", shown) if part.strip())


def docstring_pages(root: Path, index: Index, foreign: Mapping[str, frozenset[str]]) -> Iterator[Page]:
    """Yield the docstrings of the package's modules as pages, each with what its module defines as its own."""
    for name in sorted(index.files):
        if name.endswith(".py") and name.startswith(("tts/", "tts_addons/")):
            tree = ast.parse((root / name).read_text(encoding="utf-8"))
            holders = [
                one
                for one in ast.walk(tree)
                if isinstance(one, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            text = "\n\n".join(ast.get_docstring(one) or "" for one in holders)
            yield Page(name, text, index, foreign.get(name, frozenset()), docstring=True)
