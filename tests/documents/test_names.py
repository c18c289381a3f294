"""Names of code in documents: each path, module, class, function, parameter, command and option exists."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from tests.documents.foreign import foreign_names
from tests.documents.names import Index, Page, docstring_pages, repository_index, rows_of_tables

ROOT = Path(__file__).parents[2]
FOREIGN = foreign_names()
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "research/README.md",
    *(page.relative_to(ROOT).as_posix() for page in sorted(ROOT.glob("tts_addons/*/README.md"))),
    *(page.relative_to(ROOT).as_posix() for page in sorted((ROOT / "docs").rglob("*.md"))),
]
pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="the documents are not here")


@pytest.fixture(scope="module")
def index() -> Index:
    return repository_index(ROOT)


@pytest.mark.parametrize("page", PAGES)
def test_each_name_of_a_page_exists(index: Index, page: str) -> None:
    read = Page(page, (ROOT / page).read_text(encoding="utf-8"), index, FOREIGN.get(page, frozenset()))
    assert read.faults() == []
    assert read.foreign == read.used, "foreign names that the page does not write"


def test_each_page_with_foreign_names_exists() -> None:
    assert all((ROOT / page).is_file() for page in FOREIGN)


def test_names_with_a_place_in_docstrings_exist(index: Index) -> None:
    assert {page.path: faults for page in docstring_pages(ROOT, index, FOREIGN) if (faults := page.faults())} == {}


WRONG = {
    "`tts/search/serach.py`": "tts/search/serach.py: no such file",
    "`tests/no_such_folder/`": "tests/no_such_folder/: no such file",
    "`search/strategies/test_*_nowhere.py`": "search/strategies/test_*_nowhere.py: no such file",
    "`tts.solvee`": "tts.solvee: no such module or name",
    "`tts.search.serach.Search`": "tts.search.serach.Search: no such module or name",
    "`tts.budget.Bookz`": "tts.budget.Bookz: no such module or name",
    "`research.methods.counting`": "research.methods.counting: no such module or name",
    "`tts.search.search.state_of`": "tts.search.search.state_of: no such module or name",
    "`its_hub/core/algorithms`": "its_hub/core/algorithms: no such file",
    "`known_approaches`": "known_approaches: nothing has this name",
    "`Search.expend`": "Search has no expend",
    "`RowRunnner`": "RowRunnner: nothing has this name",
    "`plan_rowz(queue)`": "plan_rowz: no function or class has this name",
    "`best_of_n(m=8) | majority`": "best_of_n has no parameter m",
    "`best_of_n(n=8) | majorityy`": "majorityy: nothing has this name",
    "`Problem(promt='1 + 1')`": "Problem has no parameter promt",
    "`exekutor='strict'`": "exekutor=: nothing has this parameter",
    "`sum_reused_tokenz`": "sum_reused_tokenz: nothing has this name",
    "`tts solv --budget 3`": "tts solv --budget 3: no command tts solv",
    "`tts models remove_all`": "tts models remove_all: no command tts models remove_all",
    "`tts solve --budgt 3`": "tts solve --budgt 3: tts solve has no option --budgt",
    "`tts solve` with `--retry-failed`": "--retry-failed: no command of the page has this option",
    "`python -m research.claim --auto`": "python -m research.claim --auto: no command python -m research.claim",
    "`python -m research.claims --otto`": "python -m research.claims --otto: python -m research.claims has no option "
    "--otto",
    "`python -m research.methods.splits --drawz 3`": (
        "python -m research.methods.splits --drawz 3: python -m research.methods.splits has no option --drawz"
    ),
    "`make tests`": "make tests: no command make tests",
    "| column | meaning |\n|---|---|\n| `accuracyy` | the share |\n": "accuracyy: nothing has this name",
    "```bash\ntts run study.yaml --exekutor ray\n```": "tts run study.yaml --exekutor ray: tts run has no option "
    "--exekutor",
    "```python\nfrom tts.search.ends import Tokenz\n```": "tts.search.ends.Tokenz: no such module or name",
    "```python\nimport tts\n\ntts.solvee('1 + 1', 20)\n```": "tts.solvee: no such module or name",
    "```text\ntts/     the package\n  budgets/     limits\n```": "tts/budgets/: no such file",
    "```text\ntts/     the package\n  search/     tree.py, treez.py (nodes)\n```": "tts/search/: no treez.py below it",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_name_is_found(index: Index, text: str) -> None:
    assert Page("docs/how-to/index.md", text, index).faults() == [WRONG[text]]


RIGHT = (
    "`tts/search/search.py`, `search/search.py`, `search.py`, `tests/contracts/`, `tts/`",
    "`backends/engine/test_memory*.py`",
    "`tts.solve`, `tts.search.ends.Tokens`, `tts.Solution.answer`, `research.methods.countdown`, `tts.strategies`",
    "`Search.expand`, `Solution`, `Needs.scores`, `plan_rows`, `best_of_n(n=8) | unanimous(window=8) | weighted`",
    '`Problem(prompt, answer, id, task, metadata)`, `executor="strict"`',
    "`expand(ts, n, until)`, `open(kind, *texts, prompt=)`",
    "`tts solve --budget 3`, then `--trace search.html`; `tts models add`;"
    " `python -m research.methods.splits --limit 3 --draws 20`; `make test`",
    "The formula `max(0.03, 2/N)`, the answer `\\boxed{33}`, the text `204 apples`.",
    "```bash\nmake test && tts run study.yaml --executor ray   # with no --other option\n```\nIts `study.yaml`.",
)


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_name_is_not(index: Index, text: str) -> None:
    assert Page("docs/how-to/index.md", text, index).faults() == []


def test_a_foreign_name_is_foreign_on_its_page_alone(index: Index) -> None:
    text = "vLLM's `--block-size` and `sal/config.py`."
    assert Page("page.md", text, index, frozenset({"--block-size", "sal/config.py"})).faults() == []
    wrong = ["--block-size: no command of the page has this option"]
    assert Page("page.md", text, index, frozenset({"sal/config.py"})).faults() == wrong


def test_the_floors_are_those_that_are_enforced() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert "\n```text\n" + "\n".join(layers) + "\n```\n" in page


def test_the_checks_of_the_code_are_those_that_run() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    tree = ast.parse((ROOT / "scripts" / "check_architecture.py").read_text(encoding="utf-8"))
    faults = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "faults")
    run = [
        ast.unparse(node.value.func)
        for node in ast.walk(faults)
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Call)
    ]
    assert [row["check"].strip("`") for row in rows_of_tables(page) if "check" in row] == run
