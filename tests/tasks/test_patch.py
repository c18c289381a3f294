"""Patches as answers: which text has which, and which are equal. Patches of real repositories:
tests/addons/agents/.
"""

from __future__ import annotations

import pytest

from tts.tasks.base import split_after
from tts.tasks.patch import PatchTask, format_turn, patch_key

ONE = """\
diff --git a/a.py b/a.py
index 1111111..2222222 100644
--- a/a.py
+++ b/a.py
@@ -1,3 +1,3 @@ def f():
 one
-two
+TWO
 three
"""
TASK = PatchTask()


def turn(patch: str, message: str = "done", *, is_last: bool = True) -> str:
    return format_turn(message, patch, is_last=is_last)


def test_the_last_whole_patch_is_the_answer():
    other = ONE.replace("TWO", "2")
    assert TASK.extract(turn(ONE, is_last=False) + turn(other)) == other
    assert TASK.extract(turn(ONE, is_last=False) + "write more") == ONE
    assert TASK.extract(turn(ONE, is_last=False) + turn("")) is None
    assert TASK.extract("I looked at it.") is None
    assert TASK.extract("") is None


@pytest.mark.parametrize("message", [turn(ONE), "=====\n===== patch =====\nx\n===== end of patch =====", "=" * 17])
def test_a_message_has_no_patch_of_its_own(message):
    assert TASK.extract(turn("", message)) is None
    other = ONE.replace("TWO", "2")
    assert TASK.extract(turn(other, message) + message.replace("=", "")) == other


def test_a_file_cannot_end_the_patch():
    patch = ONE.replace("+TWO", "+===== end of patch =====\n+===== patch =====").replace("+1,3", "+1,4")
    assert TASK.extract(turn(patch)) == patch
    assert split_after(turn(patch, is_last=False), TASK.step_stop) == [turn(patch, is_last=False)]


def test_a_step_is_a_turn():
    turns = [turn(ONE, "one", is_last=False), turn(ONE, "two", is_last=False), turn(ONE, "three")]
    assert TASK.split("".join(turns)) == turns


def test_equal_changes_have_equal_keys():
    def key(old: str = "two", new: str = "TWO", **marks: str) -> str:
        text = ONE.replace("-two", f"-{old}").replace("+TWO", f"+{new}")
        for before, after in marks.items():
            text = text.replace({"place": "-1,3", "name": "a.py", "blob": "2222222", "context": "three"}[before], after)
        return patch_key(text)

    assert key() == key(new="TWO  ") == key(new="TWO\r") == key(blob="3333333") == key(context="three  ")
    assert key() == patch_key(ONE.replace("\n three", "\n-three\n+three ").replace("-1,3 +1,3", "-1,3 +1,3"))
    assert key(new="two ") == patch_key("")
    assert len({key(), key(new="2"), key(old="deux"), key(place="-2,3"), key(name="b.py"), key(new=" TWO")}) == 6


@pytest.mark.parametrize(
    "text",
    ["", "no patch", "@@ -1,9 +1,9 @@", "@@ -1 +1 @@\n-", "diff --git ", "\ud800", "@@ -1,2 +1,2 @@\n\\ No\n-a\n+b"],
)
def test_any_text_has_a_key(text):
    assert patch_key(text) == patch_key(text)
    assert TASK.key(text) == TASK.key(text)
