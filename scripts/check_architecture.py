"""Check the layout of the code, names of functions and docstrings.

    python scripts/check_architecture.py [ROOT]

Checked are import circles, doubled class names, crowded folders, long files and functions, entries of docstrings, and
the limits of rooms in scripts/rooms.toml. The script prints one line a fault, and the code lines of both packages. The
exit code is 1 if there is a fault. Files of more than 700 lines are warned of.
Imports inside functions and under TYPE_CHECKING count. A module's implicit import of its parent packages does not.
"""

from __future__ import annotations

import ast
import gc
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict, deque
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

# one reader wants at once what changes together; a limit of 400 bred files of helpers that one other file uses
FILE_LIMIT, FILE_WARNING, FUNCTION_LIMIT, FOLDER_LIMIT = 1000, 700, 60, 25
FIRST_LINE_LIMIT = 100
ROOMS = "scripts/rooms.toml"
PACKAGES = ("tts", "tts_addons")
# in a checkout only: the package must not import them
OUTSIDE = ("research", "benchmarks", "tests", "examples", "scripts")
SIZED = (*PACKAGES, *OUTSIDE)
FILLED = (*PACKAGES, "tests", "benchmarks", "research")
# "path" or "path:function" -> why it may be longer, "folder" -> why it may hold more; seen in review
ALLOWED: dict[str, str] = {
    "tts/backends/openai/capabilities.py:lines": "a table, one capability an entry",
    "research/methods/writing.py:page": "the text of a page",
    "research/recorded/signal.py:page": "the text of a page",
}
PREPOSITIONS = "above|after|at|before|below|beside|between|by|for|from|in|of|on|since|to|under|until|with|without"
# whose docstrings and names of functions are checked
NAMED = ("benchmarks", "research", "scripts", "tests/support", *PACKAGES)
# of functions: names without a verb in the imperative or a noun of the field
BARE_WORDS = (
    "begun|brought|built|caught|chosen|done|drawn|found|given|gone|got|grown|heard|held|kept|known|left|lost|made|met|"
    "paid|said|seen|sent|shown|spent|taken|told|written|unknown|unread|unseen|unspent|"
    "again|abroad|alone|apart|aside|away|back|beside|early|elsewhere|here|now|once|only|soon|there|together|"
    "about|after|against|among|around|at|before|behind|between|beyond|by|down|for|from|in|of|off|on|out|over|through|"
    "to|under|unless|until|up|where|with|within|without"
)
PREPOSITIONS_FIRST = "(of|by|at|in|before|after|beside|until|unless|between)_"
# names that others have given: of asyncio's protocols and servers, and of a scheme of resampling
GIVEN_NAMES = ("data_received", "wait_closed", "stratified", "problems_needed")
# words of the field that end in -ed, and first words that make a predicate or a verb with its object
FIELD_WORDS = ("embed", "seed", "feed", "need", "speed")
FIRST_WORDS = ("is", "has", "can", "may", "check", "copy", "count", "note", "read", "refuse", "run", "set", "show")
# an entry of a docstring there may still be about several parameters
COMMANDS = ("agents/command.py", "gateway/process/command.py", "logs/command.py", "training/command.py")
JOINED = ("tts/cli", "tts/trace", *(f"tts_addons/{path}" for path in COMMANDS))


DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
ASKED = DOCUMENTED | ast.Import | ast.ImportFrom | ast.Constant | ast.JoinedStr


@dataclass(frozen=True)
class Source:
    """A Python file: its path from the root, its module's name, its text and syntax tree."""

    path: Path
    module: str
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether the file is a package's `__init__.py`."""
        return self.path.name == "__init__.py"

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All nodes of the tree that this script asks for: strings, imports and definitions."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ASKED)]


Arrows = Mapping[str, Mapping[str, int]]  # importing module -> imported module -> line


def sources(root: Path, folders: Sequence[str]) -> Iterator[Source]:
    """Yield the Python files below some folders of a root, in order; links are not followed."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            where = path.relative_to(root)
            if any(part.is_symlink() for part in (path, *path.parents) if part != root and part.is_relative_to(root)):
                continue
            parts = where.with_suffix("").parts
            text = path.read_text(encoding="utf-8")
            yield Source(
                where, ".".join(parts[:-1] if parts[-1] == "__init__" else parts), text, ast.parse(text, str(where))
            )


def list_imports(source: Source) -> Iterator[tuple[str, str, int]]:
    """Yield (module, name, line) of each import anywhere in a file; the name is "" for `import module`."""
    package = source.module.split(".") if source.is_package else source.module.split(".")[:-1]
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((one.name, "", node.lineno) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((module, one.name, node.lineno) for one in node.names)


def arrows(files: Sequence[Source]) -> Arrows:
    """Return which modules import which of each other, and where they first do."""
    known = {source.module for source in files}
    importers: dict[str, dict[str, int]] = defaultdict(dict)
    for source in files:
        for module, name, line in list_imports(source):
            target = f"{module}.{name}" if f"{module}.{name}" in known else module
            if target in known and target != source.module:
                importers[source.module].setdefault(target, line)
    return importers


def circles(files: Sequence[Source]) -> Iterator[str]:
    """Yield the shortest import circle through each arrow that is part of one.

    Each circle comes once, the shortest first.
    """
    graph, paths = prune_arrows(arrows(files)), {source.module: source.path for source in files}
    rings: dict[tuple[str, ...], None] = {}
    for start, targets in sorted(graph.items()):
        for target in sorted(targets):
            if (way := shortest(graph, target, start)) is not None:
                first = way.index(min(way))
                rings[tuple(way[first:] + way[:first])] = None
    for circle in sorted(rings, key=lambda modules: (len(modules), modules)):
        around = zip(circle, (*circle[1:], circle[0]), strict=True)
        yield "import circle: " + ", ".join(f"{paths[a]}:{graph[a][b]} imports {b}" for a, b in around)


def prune_arrows(graph: Arrows) -> Arrows:
    """Return the arrows through which a circle may pass.

    Modules that import nothing, or that nothing imports, have no such arrow.
    """
    while True:
        targets = {target for row in graph.values() for target in row}
        pruned = {
            module: {target: line for target, line in row.items() if target in graph}
            for module, row in graph.items()
            if module in targets
        }
        pruned = {module: row for module, row in pruned.items() if row}
        if pruned == graph:
            return graph
        graph = pruned


def shortest(graph: Arrows, start: str, end: str) -> list[str] | None:
    """Return the modules of the shortest way between two, both included; None: there is none."""
    before: dict[str, str | None] = {start: None}
    queue = deque([start])
    while queue:
        module: str | None = queue.popleft()
        if module == end:
            way: list[str] = []
            while module is not None:
                way.append(module)
                module = before[module]
            return way[::-1]
        for target in graph.get(module or "", ()):
            if target not in before:
                before[target] = module
                queue.append(target)
    return None


def outward(files: Sequence[Source]) -> Iterator[str]:
    """Yield the imports of folders that are not installed with the package."""
    for source in files:
        for module, _, line in list_imports(source):
            if module.split(".")[0] in OUTSIDE:
                yield f"{source.path}:{line}: imports {module}, which is not in the wheel"


def check_doubles(files: Sequence[Source]) -> Iterator[str]:
    """Yield the public class names that are defined more than once, with their places."""
    places: dict[str, list[str]] = defaultdict(list)
    for source in files:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{source.path}:{node.lineno}")
    yield from (f"class {name} is defined twice: {', '.join(at)}" for name, at in sorted(places.items()) if len(at) > 1)


def check_folders(files: Sequence[Source]) -> Iterator[str]:
    """Yield the folders with too many modules of their own."""
    modules: dict[Path, int] = defaultdict(int)
    for source in files:
        modules[source.path.parent] += 1
    for folder, count in sorted(modules.items()):
        if count > FOLDER_LIMIT and str(folder) not in ALLOWED:
            yield f"{folder}: {count} Python modules, but at most {FOLDER_LIMIT}"


def too_long(files: Sequence[Source]) -> Iterator[str]:
    """Yield the files and functions with too many lines.

    The lines of a signature and of a docstring do not count.
    """
    for source in files:
        path = source.path
        if (lines := source.text.count("\n")) > FILE_LIMIT and str(path) not in ALLOWED:
            yield f"{path}: {lines} lines, but at most {FILE_LIMIT}"
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.body[0].lineno + 1 - _docstring_lines(node)
                if size > FUNCTION_LIMIT and f"{path}:{node.name}" not in ALLOWED:
                    yield f"{path}:{node.lineno}: {node.name} has {size} lines, but at most {FUNCTION_LIMIT}"


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    """Return how many lines a docstring takes."""
    first = node.body[0]
    return 0 if ast.get_docstring(node) is None else (first.end_lineno or first.lineno) - first.lineno + 1


def shared_lines(files: Sequence[Source]) -> Iterator[str]:
    """Yield the lines of docstrings that describe several parameters: readers and tools expect one a line."""
    for source in files:
        joined = not any(source.path.is_relative_to(folder) for folder in JOINED)
        for node in source.nodes:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            section = re.search(
                r"\n( *)Args:\n(.*?)(?:\n\s*\n|\Z)", ast.get_docstring(node, clean=False) or "", re.DOTALL
            )
            if section is None:
                continue
            place = f"{source.path}:{node.lineno}"
            known = "|".join(map(re.escape, sorted(_parameters(node), key=len, reverse=True)))
            for line in section[2].split("\n"):
                if joined and (several := re.match(rf"{section[1]} {{4}}(\**\w+(?:, \**\w+)+): ", line)):
                    yield f"{place}: one entry is about {several[1]}, but must be about one parameter"
                if known and (shared := re.search(rf"[.?;] (({known})(?:, (?:{known}))*): ", line)):
                    yield f"{place}: the line of a parameter has another one, {shared[1]}, but must have one alone"


def prepositions(files: Sequence[Source]) -> Iterator[str]:
    """Yield the entries of docstrings that begin with a preposition.

    Read alone, such a text does not say what the parameter is.
    """
    for source in files:
        lines = source.text.split("\n")
        for node in source.nodes:
            if (
                not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                or ast.get_docstring(node) is None
            ):
                continue
            indent: int | None = None  # of the entries, inside of a section
            for number in range(node.body[0].lineno, (node.body[0].end_lineno or node.body[0].lineno) + 1):
                line = lines[number - 1]
                if heading := re.fullmatch(r"( *)(Args|Attributes):", line):
                    indent = len(heading[1]) + 4
                elif not line.strip():
                    indent = None
                elif indent is not None and (
                    found := re.match(rf" {{{indent}}}([\w*][\w*, ]*): ({PREPOSITIONS})\b", line, re.IGNORECASE)
                ):
                    yield (
                        f"{source.path}:{number}: {found[1]} begins with {found[2]!r}, but must begin with a noun "
                        "or a verb"
                    )


def participles(files: Sequence[Source]) -> Iterator[str]:
    """Yield the functions that are named by a participle, an adverb or a preposition.

    Properties may be, and class methods may be called `of`.
    """
    for source in files:
        for node in source.nodes:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_property(node):
                continue
            if node.name == "of" and any(ast.unparse(one) == "classmethod" for one in node.decorator_list):
                continue
            name = node.name.strip("_")
            first, last = name.split("_")[0], name.split("_")[-1]
            ends = last.endswith("ed") and last not in FIELD_WORDS and (first == last or first not in FIRST_WORDS)
            bare = re.fullmatch(BARE_WORDS, name) or re.match(PREPOSITIONS_FIRST, name)
            if (ends or bare) and name not in GIVEN_NAMES:
                yield f"{source.path}:{node.lineno}: {node.name} is no verb in the imperative, and no noun"


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a decorator makes a function a property."""
    return any("property" in ast.unparse(one) for one in node.decorator_list)


def first_lines(files: Sequence[Source]) -> Iterator[str]:
    """Yield the public docstrings whose first line is too long, or runs over to a second line."""
    for source in files:
        for node in source.nodes:
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            name = "the module" if isinstance(node, ast.Module) else node.name
            if re.match(r"_(?!_)", name) or (text := ast.get_docstring(node)) is None:
                continue
            first, second = [*text.split("\n"), ""][:2]
            at = f"{source.path}:{node.body[0].lineno}: the first line of the docstring of {name}"
            if len(first) > FIRST_LINE_LIMIT:
                yield f"{at} has {len(first)} characters; the limit is {FIRST_LINE_LIMIT}"
            if second.strip():
                yield f"{at} runs over, but an empty line must follow it"


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """Return the names of parameters of a function, or of the fields of a class."""
    if isinstance(node, ast.ClassDef):
        fields = {
            one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        }
        made = [_parameters(one) for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
        return fields.union(*made)
    given = node.args
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)} - {"self", "cls"}


def attribute_probes(files: Sequence[Source]) -> Iterator[str]:
    """Yield the uses of `hasattr` in tts/search/, where behaviour goes by protocols."""
    for source in files:
        if source.path.is_relative_to("tts/search") and "hasattr(" in source.text:
            yield f"{source.path}: hasattr, but behaviour goes by protocols"


@cache
def code_lines(source: Source) -> int:
    """Return the number of lines with code: without docstrings, comments and blank lines."""
    docstrings = [
        node.body[0]
        for node in source.nodes
        if isinstance(node, DOCUMENTED) and node.body and ast.get_docstring(node, clean=False) is not None
    ]
    starts = {(one.lineno, one.col_offset) for one in docstrings}
    texts = [node for node in source.nodes if isinstance(node, ast.Constant | ast.JoinedStr)]
    if any(one.end_lineno != one.lineno and (one.lineno, one.col_offset) not in starts for one in texts):
        return _count_by_tokens(source.text, starts)
    prose = {line for one in docstrings for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}
    lines = enumerate(source.text.split("\n"), start=1)
    return sum(number not in prose and line.strip()[:1] not in ("", "#") for number, line in lines)


def _count_by_tokens(text: str, docstrings: Container[tuple[int, int]]) -> int:
    """Return the number of lines with code of a file in which texts run over lines.

    Args:
        text: The file's text.
        docstrings: The places of its docstrings, as line and column.
    """
    no_code = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in no_code and not (token.type == tokenize.STRING and token.start in docstrings):
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


def check_rooms(files: Sequence[Source], rooms: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the rooms with more code lines than their limits, and the files of the packages in no room.

    A file is in the room that has the longest of the paths above it.

    Args:
        files: All files.
        rooms: The rooms of scripts/rooms.toml, each with its name, paths and limit.
    """
    room_of = {Path(path): room["name"] for room in rooms for path in room["paths"]}
    sizes: Counter[str] = Counter()
    for source in files:
        place = next((path for path in (source.path, *source.path.parents) if path in room_of), None)
        if place is not None:
            sizes[room_of[place]] += code_lines(source)
        elif source.path.parts[0] in PACKAGES:
            yield f"{source.path}: it is in no room of {ROOMS}"
    for room in rooms:
        size = sizes[room["name"]]
        if size > room["limit"]:
            yield (
                f"the room {room['name']!r} has {size:,} code lines, but at most {room['limit']:,}; "
                f"shrink it, or raise the limit in {ROOMS} with the reason in the commit"
            )


def faults(every: Sequence[Source]) -> list[str]:
    """Return every fault of a checkout's files, one a line."""
    package = [source for source in every if source.path.parts[0] in PACKAGES]
    filled = [source for source in every if source.path.parts[0] in FILLED]
    named = [source for source in every if any(map(source.path.is_relative_to, NAMED))]
    return [
        *circles(package),
        *outward(package),
        *check_doubles(package),
        *check_folders(filled),
        *too_long(every),
        *shared_lines(named),
        *prepositions(named),
        *participles(named),
        *first_lines(named),
        *attribute_probes(package),
    ]


def main() -> int:
    """Print the faults and the number of code lines; return the exit code."""
    gc.disable()  # all trees stay: to look for garbage among them takes half of the time
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    every = list(sources(root, SIZED))
    messages = faults(every)
    if (root / ROOMS).is_file():
        messages += check_rooms(every, tomllib.loads((root / ROOMS).read_text(encoding="utf-8"))["room"])
    sizes: Counter[str] = Counter()
    for source in every:
        sizes[source.path.parts[0]] += code_lines(source)
    long_files = [str(source.path) for source in every if source.text.count("\n") > FILE_WARNING]
    if long_files:
        sys.stdout.write(
            f"warning: {len(long_files)} files have more than {FILE_WARNING} lines: {', '.join(long_files)}\n"
        )
    sys.stdout.write("".join(f"{fault}\n" for fault in messages))
    counts = " and ".join(f"{package}/ has {sizes[package]:,}" for package in PACKAGES if sizes[package])
    sys.stdout.write(f"{counts} lines of code without docstrings, comments and blank lines; {len(messages)} faults\n")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
