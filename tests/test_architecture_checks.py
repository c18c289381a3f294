"""The checks of the layout: each names what breaks its rule in a small tree on disk, and nothing in a tree that keeps
it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from scripts import check_architecture as checks

FULL = checks.FOLDER_LIMIT
LINES = "    x = 1\n" * checks.FUNCTION_LIMIT
PROSE = 'def long(n):\n    """Do it.\n\n' + "    word\n" * 70 + '    """\n'


def written(root: Path, files: Mapping[str, str]) -> list[checks.Source]:
    """Write files, texts by their paths, and return the sources of all."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(checks.sources(root, checks.SIZED))


def described(*lines: str, section: str = "Args") -> str:
    """Return a function whose docstring has a section with these lines."""
    entries = "\n".join(f"        {line}" for line in lines)
    return f'def f(a, b, *c):\n    """Do it.\n\n    {section}:\n{entries}\n    """\n'


BROKEN = {
    "a circle": (
        {"tts/a.py": "\n\nfrom tts.b import B\n", "tts/b.py": "def load():\n    from tts.a import A\n"},
        ["import circle: tts/a.py:3 imports tts.b, tts/b.py:2 imports tts.a"],
    ),
    "a circle for types": (
        {"tts/a.py": "import tts.b\n", "tts/b.py": "if TYPE_CHECKING:\n    from . import a\n"},
        ["tts/a.py:1 imports tts.b, tts/b.py:2 imports tts.a"],
    ),
    "two circles, the shortest first": (
        {
            "tts/a.py": "import tts.b\n",
            "tts/b.py": "import tts.c\n",
            "tts/c.py": "import tts.a\nimport tts.d\n",
            "tts/d.py": "import tts.c\n",
            "tts/e.py": "import tts.a\n",
        },
        ["tts/c.py:2 imports tts.d", "tts/a.py:1 imports tts.b"],
    ),
    "a circle through a package": (
        {"tts/part/__init__.py": "from tts.part.a import A\n", "tts/part/a.py": "from tts.part import A\n"},
        ["tts/part/__init__.py:1 imports tts.part.a, tts/part/a.py:1 imports tts.part"],
    ),
    "what is not in the wheel": (
        {"tts/a.py": "def f():\n    from research.x import y\n", "tts/b.py": "import tests.x\n"},
        ["tts/a.py:2: imports research.x", "tts/b.py:1: imports tests.x"],
    ),
    "a class twice": (
        {"tts/a.py": "class Stop: ...\nclass _Own: ...\n", "tts/b/c.py": "\nclass Stop: ...\nclass _Own: ...\n"},
        ["class Stop is defined twice: tts/a.py:1, tts/b/c.py:2"],
    ),
    "a full folder": (
        {f"tests/m{i}.py": "" for i in range(FULL + 1)},
        [f"tests: {FULL + 1} Python modules, but at most {FULL}"],
    ),
    "a long file": ({"tts/a.py": "#\n" * (checks.FILE_LIMIT + 1)}, ["tts/a.py: 1001 lines, but at most 1000"]),
    "a long function": ({"research/b.py": f"\nasync def f():\n{LINES}    y = 2\n"}, ["b.py:2: f has 61 lines"]),
    "a long function with prose": ({"tts/a.py": f"{PROSE}{LINES}    y = 2\n"}, ["long has 61 lines"]),
    "two parameters in a line": ({"tts/a.py": described("a: the first. b: the second.")}, ["has another one, b, but"]),
    "an entry of two": ({"tts/a.py": described("a, b: Ends.")}, ["tts/a.py:1: one entry is about a, b, but"]),
    "an entry of stars": ({"tts/a.py": described("a: One.", "b, *c: Ends.")}, ["one entry is about b, *c, but"]),
    "a preposition": ({"tts/a.py": described("a: Of the first.")}, ["tts/a.py:5: a begins with 'Of', but"]),
    "a small preposition": (
        {"tts/a.py": described("a: at least 1.", section="Attributes")},
        ["a begins with 'at', but"],
    ),
    "a long first line": (
        {"tts/b.py": f'def load():\n    """B{"A" * checks.FIRST_LINE_LIMIT}"""\n'},
        ["tts/b.py:2: the first line of the docstring of load has 101 characters"],
    ),
    "a first line that runs over": (
        {"tts/b.py": 'class Part:\n    """A part that\n    runs over.\n    """\n'},
        ["tts/b.py:2: the first line of the docstring of Part runs over"],
    ),
    "a probe of attributes": ({"tts/search/a.py": "hasattr(1, 'x')\n"}, ["tts/search/a.py: hasattr"]),
    **{
        f"the name {name}": (
            {"tests/support/a.py": f"def {name}(): pass\n"},
            [f"tests/support/a.py:1: {name} is no verb"],
        )
        for name in ("measured", "_shared", "left_padded", "told", "aside", "_apart", "of", "_within", "by_class")
    },
}


@pytest.mark.parametrize("rule", BROKEN)
def test_what_breaks_a_rule_is_named_with_its_place(tmp_path: Path, rule: str) -> None:
    files, expected = BROKEN[rule]
    found = checks.faults(written(tmp_path, files))
    assert len(found) == len(expected)
    assert all(words in fault for words, fault in zip(expected, found, strict=True))


KEPT = {
    "an import from a package's own module": {
        "tts/part/__init__.py": "from tts.part.a import A\n",
        "tts/part/a.py": "from tts.part import b\n",
        "tts/part/b.py": "",
    },
    "imports among what is not installed": {"tts/a.py": "", "research/a.py": "import benchmarks.x\nimport tts.a\n"},
    "a class of tests": {"tts/a.py": "class Stop: ...\n", "tests/a.py": "class Stop: ...\n"},
    "folders at their limit": {f"tts/{path}m{i}.py": "" for path in ("", "x/") for i in range(FULL)},
    "files and functions at their limits": {"tts/a.py": "#\n" * checks.FILE_LIMIT, "research/b.py": PROSE + LINES},
    "words that look like entries": {
        "tts/a.py": described(
            "a: The first. Note that c: is none, as in", "    a, b: of both.", "b: `Between`; innermost."
        )
    },
    "docstrings and names of tests": {"tests/c.py": f'def measured():\n    """B{"A" * 200}"""\n'},
    "words of the field, predicates, states": {
        "benchmarks/a.py": "def embed(): pass\ndef random_seed(): pass\ndef is_shared(): pass\ndef shared_lines(): pass"
        "\nmeasured = 1\nclass A:\n    @property\n    def measured(self): pass\n"
        "    @classmethod\n    def of(cls): pass\n"
    },
}


@pytest.mark.parametrize("rule", KEPT)
def test_what_keeps_the_rules_is_not(tmp_path: Path, rule: str) -> None:
    assert checks.faults(written(tmp_path, KEPT[rule])) == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    (source,) = written(tmp_path, {"tts/part/a.py": "class A: ...\n"})
    (tmp_path / "tts" / "again").symlink_to(tmp_path / "tts" / "part", target_is_directory=True)
    assert [found.path for found in checks.sources(tmp_path, checks.SIZED)] == [source.path]


@pytest.mark.parametrize(("text", "lines"), [('\n    x = """two\n\nlines"""\n', 6), ("\n    x = 1\n", 4)])
def test_code_lines_are_those_without_docstrings_comments_and_blanks(tmp_path: Path, text: str, lines: int) -> None:
    code = f'"""What it is.\n\nMore."""\n# a comment\nimport os  # here\n\nclass A:\n    """A."""\n{text}\ny = 2\n'
    (source,) = written(tmp_path, {"tts/a.py": code})
    assert checks.code_lines(source) == lines


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


def commanded(root: Path) -> tuple[int, Sequence[str]]:
    done = subprocess.run([sys.executable, checks.__file__, str(root)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_the_command_prints_faults_rooms_above_their_limits_long_files_and_the_count(tmp_path: Path) -> None:
    written(tmp_path, {"tts/a.py": "a = 1\nb = 2\n", "tts/part/b/c.py": "c = 3\n", "scripts/rooms.toml": ROOMS})
    status, (count,) = commanded(tmp_path)
    assert status == 0
    assert count.startswith("tts/ has 3 lines")
    long = "#\n" * (checks.FILE_WARNING + 1)
    written(tmp_path, {"tts_addons/part/a.py": "d = 4\n", "tts_addons/part/b.py": "", "tts/long.py": long})
    status, (warning, no_room, room, count) = commanded(tmp_path)
    assert status == 1
    assert "tts/long.py" in warning
    assert no_room.startswith("tts_addons/part/b.py: it is in no room")
    assert room.startswith("the room 'part' has 2 code lines, but at most 1")
    assert count.endswith("2 faults")
