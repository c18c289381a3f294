from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tts.tasks
from tts.errors import ConfigError
from tts.tasks.base import Task


@pytest.mark.parametrize("name", sorted(tts.tasks.TASKS))
def test_every_name_stands_for_a_task_of_that_name(name: str):
    task = tts.tasks.get(name)
    assert isinstance(task, Task)
    assert task.name == name
    assert task.name in tts.tasks.names()
    assert all(task.step_stop)
    assert task.typical_tokens("step") < task.typical_tokens("solve")


def test_every_class_of_a_task_is_in_the_table():
    folder = Path(tts.tasks.__file__).parent
    lines = [
        line for path in folder.rglob("*.py") for line in path.read_text().splitlines() if line.startswith("class ")
    ]
    classes = [line.split()[1].rstrip(":").partition("(")[0] for line in lines]
    # bases, and what a search puts around a task
    others = ("Task", "LinesTask", "IsolatedTask", "PairwiseIsolatedTask")
    tasks = {name for name in classes if name.endswith("Task") and name not in others}
    assert tasks == {
        entry.partition(":")[2] for entry in tts.tasks.TASKS.values() if not entry.startswith("tts_addons.")
    }


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"'maths'.*did you mean math\b"):
        tts.tasks.get("maths")


def test_the_import_is_light():
    script = (
        "import sys, tts.tasks, tts.tasks.math; print([m for m in ('sympy', 'mpmath', 'numpy', 'torch') if m in "
        "sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(tts.tasks.__file__).parents[2],
    )
    assert done.stdout.strip() == "[]"
