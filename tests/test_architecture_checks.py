"""The checks of the layout: each names what breaks its rule in a small tree on disk, and nothing in a tree that keeps
it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from scripts import check_architecture as checks

Tree = Callable[[Mapping[str, str]], list[checks.Source]]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Return a function that writes files, texts by their paths, and returns the sources of all."""

    def write(files: Mapping[str, str]) -> list[checks.Source]:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return list(checks.sources(tmp_path, checks.SIZED))

    return write


IN_A_FUNCTION = "def load():\n    from tts.a import A\n    return A\n"
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tts.a import A\n"
RELATIVE = "\nfrom . import a\n"


@pytest.mark.parametrize(
    ("importing", "line"), [(IN_A_FUNCTION, 2), (FOR_TYPES, 3), (RELATIVE, 2), ("import tts.a\n", 1)]
)
def test_a_circle_is_named_with_the_place_of_each_arrow(tree: Tree, importing: str, line: int) -> None:
    files = tree({"tts/a.py": "\n\nfrom tts.b import B\n", "tts/b.py": importing})
    assert checks.faults(files) == [f"import circle: tts/a.py:3 imports tts.b, tts/b.py:{line} imports tts.a"]


def test_each_circle_is_named_once_the_shortest_first(tree: Tree) -> None:
    files = tree(
        {
            "tts/a.py": "import tts.b\n",
            "tts/b.py": "import tts.c\n",
            "tts/c.py": "import tts.a\nimport tts.d\n",
            "tts/d.py": "import tts.c\n",
            "tts/e.py": "import tts.a\n",
        }
    )
    assert [len(fault.split(", ")) for fault in checks.circles(files)] == [2, 3]


def test_the_implicit_import_of_a_package_is_no_arrow(tree: Tree) -> None:
    assert not checks.faults(
        tree(
            {
                "tts/part/__init__.py": "from tts.part.a import A\n",
                "tts/part/a.py": "from tts.part import b\n",
                "tts/part/b.py": "",
            }
        )
    )


def test_an_explicit_import_from_a_package_is_an_arrow_to_its_init(tree: Tree) -> None:
    (fault,) = checks.faults(
        tree({"tts/part/__init__.py": "from tts.part.a import A\n", "tts/part/a.py": "from tts.part import A\n"})
    )
    assert fault == "import circle: tts/part/__init__.py:1 imports tts.part.a, tts/part/a.py:1 imports tts.part"


@pytest.mark.parametrize("folder", ["research", "benchmarks", "tests"])
def test_the_package_imports_nothing_that_is_not_installed(tree: Tree, folder: str) -> None:
    (fault,) = checks.faults(tree({"tts/a.py": f"def f():\n    from {folder}.x import y\n"}))
    assert fault == f"tts/a.py:2: imports {folder}.x, which is not in the wheel"
    assert not checks.faults(tree({"tts/a.py": "", "research/a.py": "import benchmarks.x\nimport tts.a\n"}))


def test_a_public_class_name_has_one_meaning(tree: Tree) -> None:
    (fault,) = checks.faults(
        tree({"tts/a.py": "class Stop: ...\nclass _Own: ...\n", "tts/b/c.py": "\nclass Stop: ...\nclass _Own: ...\n"})
    )
    assert fault == "class Stop is defined twice: tts/a.py:1, tts/b/c.py:2"
    assert not checks.faults(
        tree({"tts/a.py": "class Stop: ...\n", "tts/b/c.py": "", "tests/a.py": "class Stop: ...\n"})
    )


@pytest.mark.parametrize("folder", ["tts/x", "tests", "benchmarks/y", "research"])
def test_a_folder_holds_so_many_modules_and_no_more(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder / "inner").mkdir(parents=True)
    for i in range(checks.FOLDER_LIMIT):
        (tmp_path / folder / f"m{i}.py").touch()
        (tmp_path / folder / "inner" / f"m{i}.py").touch()
    assert not checks.faults(list(checks.sources(tmp_path, checks.SIZED)))
    (tmp_path / folder / "one_more.py").touch()
    (fault,) = checks.faults(list(checks.sources(tmp_path, checks.SIZED)))
    assert fault == f"{folder}: {checks.FOLDER_LIMIT + 1} Python modules, but at most {checks.FOLDER_LIMIT}"


def test_long_files_and_functions_are_named(tree: Tree) -> None:
    body = "    x = 1\n" * checks.FUNCTION_LIMIT
    assert not checks.faults(tree({"tts/a.py": "#\n" * checks.FILE_LIMIT, "research/b.py": f"def f():\n{body}"}))
    found = checks.faults(
        tree({"tts/a.py": "#\n" * (checks.FILE_LIMIT + 1), "research/b.py": f"\nasync def f():\n{body}    y = 2\n"})
    )
    assert found == ["tts/a.py: 1001 lines, but at most 1000", "research/b.py:2: f has 61 lines, but at most 60"]


def test_a_docstring_is_no_part_of_a_functions_length(tree: Tree) -> None:
    described = "def long(n):\n" + '    """Do it.\n\n' + "    word\n" * 70 + '    """\n' + "    n += 1\n" * 60
    assert checks.faults(tree({"tts/described.py": described})) == []
    assert "long has 61 lines" in "".join(checks.faults(tree({"tts/described.py": described + "    n += 1\n"})))


def test_a_parameter_has_a_line_of_its_own(tree: Tree) -> None:
    def text(line: str) -> str:
        return (
            f'def f(a, b):\n    """Do it.\n\n    Args:\n        {line}\n\n    Raises:\n        ConfigError: it is. '
            'b: no.\n    """\n'
        )

    assert (
        checks.faults(tree({"tts/one.py": text("a: the first. Note that c: is none.\n        b: the second.")})) == []
    )
    assert "has another one, b, but" in "".join(
        checks.faults(tree({"tts/one.py": text("a: the first. b: the second.")}))
    )
    fields = (
        'class A:\n    """A thing.\n\n    Args:\n        a: the first. b: the second.\n    """\n\n    a: int\n   '
        " b: int\n"
    )
    assert "has another one, b, but" in "".join(checks.faults(tree({"tts/one.py": fields})))


def test_an_entry_is_about_one_parameter(tree: Tree) -> None:
    def text(lines: str) -> str:
        return f'class A:\n    """A thing.\n\n    Args:\n        {lines}\n    """\n\n    a: int\n    b: int\n'

    assert (
        checks.faults(
            tree({"tts/one.py": text("a: The first, as in\n            a, b: of both.\n        b: The second.")})
        )
        == []
    )
    assert "tts/one.py:1: one entry is about a, b, but" in "".join(
        checks.faults(tree({"tts/one.py": text("a, b: Ends.")}))
    )
    assert "about *a, **b, but" in "".join(
        checks.faults(tree({"tts/one.py": text("c: None.\n        *a, **b: Ends.")}))
    )


def test_an_entry_begins_with_a_noun_or_a_verb(tree: Tree) -> None:
    def text(said: str, section: str = "Args") -> str:
        return (
            f'class A:\n    """A thing.\n\n    {section}:\n        a: {said}\n\n    In: of it.\n    """\n\n    a: int\n'
        )

    assert checks.faults(tree({"tts/one.py": text("The first,\n            of: all.")})) == []
    assert checks.faults(tree({"tts/one.py": text("Index of it, or `Between`; innermost.")})) == []
    (fault,) = checks.faults(tree({"tts/one.py": text("Of the first.")}))
    assert fault == "tts/one.py:5: a begins with 'Of', but must begin with a noun or a verb"
    assert "begins with 'between', but" in "".join(checks.faults(tree({"tts/one.py": text("between two.")})))
    assert "begins with 'At', but" in "".join(checks.faults(tree({"tts/one.py": text("At least 1.", "Attributes")})))


def test_the_first_line_of_a_public_docstring_is_short_and_stands_alone(tree: Tree) -> None:
    fits = "A" * (checks.FIRST_LINE_LIMIT - 1) + "."
    kept = f'"""{fits}\n\nMore.\n"""\n\n\ndef _own() -> None:\n    """B{fits}"""\n'
    long = f'def load() -> None:\n    """B{fits}"""\n'
    over = '\n\nclass Part:\n    """A part that\n    runs over.\n    """\n'
    assert checks.faults(tree({"tts/a.py": kept, "tts/b.py": long + over, "tests/c.py": long})) == [
        "tts/b.py:2: the first line of the docstring of load has 101 characters; the limit is 100",
        "tts/b.py:6: the first line of the docstring of Part runs over, but an empty line must follow it",
    ]


def test_an_allowed_file_may_be_longer(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "ALLOWED", {"tts/a.py": "a table"})
    assert not checks.faults(tree({"tts/a.py": "#\n" * (checks.FILE_LIMIT + 1)}))


def test_search_asks_no_object_what_it_has(tree: Tree) -> None:
    (fault,) = checks.faults(tree({"tts/search/a.py": "hasattr(1, 'x')\n", "tts/b.py": "hasattr(1, 'x')\n"}))
    assert fault == "tts/search/a.py: hasattr, but behaviour goes by protocols"


def test_links_are_not_followed(tree: Tree, tmp_path: Path) -> None:
    (source,) = tree({"tts/part/a.py": "class A: ...\n"})
    (tmp_path / "tts" / "again").symlink_to(tmp_path / "tts" / "part", target_is_directory=True)
    assert [found.path for found in checks.sources(tmp_path, checks.SIZED)] == [source.path]


def test_code_lines_are_those_without_docstrings_comments_and_blanks(tree: Tree) -> None:
    documented = [
        '"""What it is.',
        "",
        'More."""',
        "",
        "# a comment",
        "import os  # here",
        "",
        "class A:",
        '    """A."""',
        "",
    ]
    written = ['    x = """two', 'lines"""', "", "def f(", "    a,", "):", '    """F."""', "    return a", ""]
    text = "\n".join(documented + written)
    (source,) = tree({"tts/a.py": text})
    assert checks.code_lines(source) == 8


def commanded(root: Path) -> Iterator[str]:
    done = subprocess.run([sys.executable, checks.__file__, str(root)], capture_output=True, text=True, check=False)
    yield str(done.returncode)
    yield from done.stdout.splitlines()


def test_the_command_prints_the_faults_and_the_count(tree: Tree, tmp_path: Path) -> None:
    tree({"tts/a.py": "class A: ...\nclass B: ...\n"})
    assert list(commanded(tmp_path)) == [
        "0",
        "tts/ has 2 lines of code without docstrings, comments and blank lines; 0 faults",
    ]
    tree({"tts/b.py": "class A: ...\n"})
    status, fault, count = commanded(tmp_path)
    assert (status, fault.partition(":")[0]) == ("1", "class A is defined twice")
    assert count.endswith("; 1 faults")


ROOMS = """
[[room]]
name = "all"
paths = ["tts"]
limit = 3
[[room]]
name = "part"
paths = ["tts/part", "tts_addons/part/a.py"]
limit = 1
"""


def test_a_room_above_its_limit_and_a_file_in_no_room_are_named(tree: Tree, tmp_path: Path) -> None:
    files = {"tts/a.py": "a = 1\nb = 2\n", "tts/part/b/c.py": "c = 3\n"}
    tree({**files, "scripts/rooms.toml": ROOMS})
    assert next(commanded(tmp_path)) == "0"
    tree({"tts_addons/part/a.py": "d = 4\n", "tts_addons/part/b.py": ""})
    status, *found, _count = commanded(tmp_path)
    assert status == "1"
    assert [line.partition(";")[0] for line in found] == [
        "tts_addons/part/b.py: it is in no room of scripts/rooms.toml",
        "the room 'part' has 2 code lines, but at most 1",
    ]


def test_a_long_file_is_warned_of(tree: Tree, tmp_path: Path) -> None:
    tree({"tts/a.py": "#\n" * (checks.FILE_WARNING + 1)})
    status, warning, _count = commanded(tmp_path)
    assert status == "0"
    assert warning.startswith("warning: 1 files have more than 700 lines: tts/a.py")


@pytest.mark.parametrize(
    "name", ["measured", "_shared", "left_padded", "told", "_known", "aside", "_apart", "of", "_within", "by_class"]
)
def test_a_function_is_named_by_no_participle_adverb_or_preposition(tree: Tree, name: str) -> None:
    files = tree({"scripts/a.py": f"class A:\n    def {name}(self):\n        pass\n"})
    assert checks.faults(files) == [f"scripts/a.py:2: {name} is no verb in the imperative, and no noun"]


@pytest.mark.parametrize(
    ("docstring", "fault"),
    [
        ("Return one. " + "x" * 100, "the first line of the docstring of f has 112 characters"),
        ("Return one.\n\n    Args:\n        a: of it.", "a begins with 'of'"),
        (
            "Return one.\n\n    Args:\n        a: The one. b: The other.",
            "the line of a parameter has another one, b",
        ),
    ],
)
def test_docstrings_of_named_folders_are_checked_and_those_of_tests_are_not(
    tree: Tree, docstring: str, fault: str
) -> None:
    code = f'def f(a, b):\n    """{docstring}"""\n'
    files = tree({f"{folder}/a.py": code for folder in ("research", "scripts", "tests/support", "tests")})
    faults = checks.faults(files)
    assert sorted(one.split(":")[0] for one in faults) == ["research/a.py", "scripts/a.py", "tests/support/a.py"]
    assert all(fault in one for one in faults)


def test_names_of_the_tests_support_are_checked_and_those_of_other_tests_are_not(tree: Tree) -> None:
    code = "def measured(): pass\n"
    files = tree({f"{folder}/a.py": code for folder in ("research/a", "tests/support", "tests", "tests/supported")})
    assert [fault.split(":")[0] for fault in checks.faults(files)] == ["research/a/a.py", "tests/support/a.py"]


@pytest.mark.parametrize(
    "code",
    [
        "def embed(): pass\n",
        "def random_seed(): pass\n",
        "def is_shared(): pass\n",
        "def count_expanded(): pass\n",
        "def shared_lines(): pass\n",
        "class A:\n    @property\n    def measured(self): pass\n",
        "class A:\n    @classmethod\n    def of(cls): pass\n",
        "async def wait_closed(): pass\n",
        "measured = 1\n",
    ],
)
def test_words_of_the_field_predicates_and_states_keep_their_names(tree: Tree, code: str) -> None:
    assert not checks.faults(tree({"benchmarks/a.py": code}))
