"""The program in a model's text: every form of fence, and the block that the tests are for."""

from __future__ import annotations

import pytest

from tts_addons.code.blocks import choose_block, code_blocks
from tts_addons.code.verifier import program_in

F = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{F}```",
        f"```\n{F}```\n",
        f"~~~python\n{F}~~~",
        f"````py\n{F}````",
        f"``` python3 title='a'\n{F}```",
        f"```{{python}}\n{F}```",
        f"```Python\n{F}```".replace("\n", "\r\n"),
        f"Here:\n```python\n{F}",
        "1. So:\n   ```python\n   def f(x):\n       return x + 1\n   ```\n",
        "- a\n\t```python\n\tdef f(x):\n\t    return x + 1\n\t```",
        f"```text\nf(1) is 2\n```\n```python\n{F}```",
        f"```text\nopen\n```python\n{F}```",
        f"````markdown\n```python\n{F}```\n````\nSo.",
        f"```python\n{F}```\n```text\n2\n```",
        f"~~~\n{F}~~~\nwith `x` and ``` in prose",
    ],
)
def test_fences_of_every_form_are_read(text: str) -> None:
    assert [block.replace("\r", "").strip() for block in code_blocks(text)][-1] == F.strip()


def test_a_fence_within_another_is_its_text() -> None:
    inner = 'doc = """\n```\nx\n```\n"""\n'
    assert code_blocks(f"````python\n{inner}````") == [inner]
    assert code_blocks(f"~~~python\n{inner}~~~") == [inner]


def test_a_block_that_is_not_closed_ends_at_the_next() -> None:
    assert code_blocks("```python\na = 1\n```python\nb = 2\n```") == ["a = 1\n", "b = 2\n"]
    assert code_blocks("no block") == []


CALLED = "assert f(1) == 2"
INPUT = '[{"stdin": "1", "stdout": "2"}]'
READS = "print(int(input()) + 1)\n"


@pytest.mark.parametrize(
    ("blocks", "tests", "chosen"),
    [
        ([F, "print(f(3))\n"], CALLED, 0),
        ([F, "def f(x):\n    return x + 2\n"], CALLED, 1),
        ([F, "def g(x):\n    return f(x)\n"], "assert g(f(1)) == 2", 1),
        (["import math\n", "f = lambda x: x + 1\n", "f(1) == 2\n"], CALLED, 1),
        (["class Solution:\n    def f(self, x): pass\n", "Solution().f(1)\n"], "assert Solution().f(1) == 2", 0),
        (["async def f(x): pass\n", "    def f(x): pass\n"], CALLED, 0),
        ([READS, "7\n"], INPUT, 0),
        ([READS, F, READS, "x = 1\n"], INPUT, 2),
        (["print(1)\n", "print(2)\n"], INPUT, 1),
        (["a\n", "b\n"], "not Python (", 1),
        ([F, "g = 1\n"], '[{"function": "f", "arguments": [1], "returns": 2}]', 0),
    ],
)
def test_the_block_that_the_tests_are_for_is_the_program(blocks: list[str], tests: str, chosen: int) -> None:
    text = "\n".join(f"So:\n```python\n{block}```" for block in blocks)
    assert program_in(text, tests) == blocks[chosen]


@pytest.mark.parametrize("part", ["```", "```python\n", "~~~", " ", "`", "\t```\n", "```\n"])
def test_long_texts_are_read_in_linear_time(part: str) -> None:
    assert isinstance(choose_block(part * 200_000, ["f"], reads=True), str)


@pytest.mark.parametrize(
    "text",
    [
        f"{F}```",
        f"{F}~~~\nIt adds one to x.",
        f"It's simple:\n\n{F}\nIt returns the next number.",
        f"Here is the function:\n{F}",
        f"```python\n{F}```".replace("    ", "\xa0" * 4),
        f"```python\n{F}```\nThat was it.",
        F,
    ],
)
def test_a_program_with_half_a_fence_or_prose_around_it_is_found(text: str) -> None:
    assert choose_block(text).strip() == F.strip()


def test_a_program_without_prose_stays_whole() -> None:
    for program in (f"LIMIT = 3\n{F}print(f(LIMIT))\n", 'x = "a\xa0b"\n', "The answer is 4."):
        assert choose_block(program) == program


def test_a_block_has_the_imports_of_earlier_blocks_that_it_uses() -> None:
    imports = "import math\nimport numpy as np\nfrom typing import (List,\n    Dict as D)\n"
    program = "def f(x: List[int]) -> D:\n    return math.sqrt(x[0])\n"
    found = choose_block(f"```python\n{imports}```\nThen:\n```python\n{program}```", ["f"])
    assert found.endswith(program)
    assert "import math" in found
    assert "Dict as D" in found
    assert "numpy" not in found
    own = f"import math\n{program}"
    assert choose_block(f"```python\nimport math\n```\n```python\n{own}```", ["f"]).count("import math") == 1
