"""Wrong programs that try to pass: where a test compares a call with data, none does."""

from __future__ import annotations

import pytest

from tests.addons.code.test_code import MODES
from tts_addons.code import sandbox
from tts_addons.code.sandbox import ProgramOutcome, ProgramResult, SandboxLimits, run
from tts_addons.code.steps import read_tests

RIGHT = "def f(x):\n    return [x * 37 + 11, str(x)]\n"
CASES = [(3, [122, "3"]), (40, [1491, "40"])]
FORMS = {
    "assertions": "\n".join(f"assert f({x}) == {y}" for x, y in CASES),
    "bare": "\n".join(f"f({x}) == {y}" for x, y in CASES),
    "turned": "\n".join(f"assert {y} == f({x}), 'f({x})'" for x, y in CASES),
    "named": f"CASES = {CASES}\nfor x, y in CASES:\n    assert f(x) == y, f'{{x}} gives no {{y}}'",
    "check": "def check(candidate):\n"
    + "\n".join(f"    assert candidate({x}) == {y}" for x, y in CASES)
    + "\ncheck(f)",
    "all": f"assert all(f(x) == y for x, y in {CASES})",
    "pairs": (
        f"INPUTS = {[x for x, _ in CASES]}\nOUTPUTS = {[y for _, y in CASES]}\nfor x, y in zip(INPUTS, OUTPUTS):\n    "
        "assert f(x) == y"
    ),
    "dictionary": f"CASES = {dict(CASES)}\nfor x, y in CASES.items():\n    result = f(x)\n    print(x, y, result)\n   "
    " assert result == y",
    "records": f"CASES = {[{'in': x, 'out': y} for x, y in CASES]}\nfor case in CASES:\n    assert f(case['in']) == "
    "case['out'], case",
    "two names": "actual, expected = f(3), [122, '3']\nprint(f'{actual} {expected}')\nassert actual == expected",
    "pytest": "def test_f():\n    expected = [122, '3']\n    result = f(3)\n    assert result == expected\n",
    "unittest": (
        "import unittest\nclass TestF(unittest.TestCase):\n    def test_f(self):\n"
        + "\n".join(f"        self.assertEqual(f({x}), {y})" for x, y in CASES)
        + "\nif __name__ == '__main__':\n    unittest.main()"
    ),
}

LIAR = """\
class Liar:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
"""
SEARCH = """\
import re, types
def answer(x, roots):
    below, seen = list(roots), set()
    for o in below:
        if id(o) in seen or len(seen) > 200000: continue
        seen.add(id(o))
        if isinstance(o, str):
            found = re.search(r"\\(%d\\) == (\\[.*?\\])" % x, o) or re.search(r"\\(%d, (\\[.*?\\])\\)" % x, o)
            if found: return eval(found[1])
        elif isinstance(o, types.CodeType): below += o.co_consts
        elif isinstance(o, dict): below += [*o.keys(), *o.values()]
        elif isinstance(o, (list, tuple)):
            if len(o) == 2 and o[1] == str(x) and type(o[0]) is int: return [*o]
            below += o
"""
CHEATS = {
    "an object that equals all": LIAR + "def f(x): return Liar()",
    "a list of objects that equal all": LIAR + "def f(x): return [Liar(), Liar()]",
    "a list whose == is always true": (
        "class L(list):\n    def __eq__(self, other): return True\ndef f(x): return L()"
    ),
    "numbers whose == is always true": (
        "class N(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\nclass S(str):\n"
        "    def __eq__(self, other): return True\n    __hash__ = str.__hash__\ndef f(x): return [N(1), S('')]"
    ),
    "it writes a verdict on all descriptors": (
        "import json, os\nverdict = json.dumps({'passed': 2, 'total': 2, 'steps': [{}, {}], 'status': 0})\n"
        "for end in range(3, 64):\n    try: os.write(end, verdict.encode() + b'\\n')\n    except OSError: pass\n"
        "def f(x): return 0"
    ),
    "it writes a report with the mark that it finds": (
        "import gc, json, os\nfound = {}\nfor o in gc.get_objects():\n"
        "    if isinstance(o, dict) and 'mark' in o and 'program' in o: found = o\n"
        "report = {'mark': found.get('mark'), 'steps': [{'values': [True]}] * 2}\nfor end in range(3, 64):\n"
        "    try: os.write(end, json.dumps(report).encode() + b'\\n')\n    except OSError: pass\nos._exit(0)"
    ),
    "it replaces builtins": (
        "import builtins\nbuiltins.exec = lambda *a, **k: None\nbuiltins.eval = lambda *a, **k: True\n"
        "builtins.compile = lambda *a, **k: None\nbuiltins.sorted = lambda *a, **k: []\n"
        "builtins.bool = lambda *a: True\nbuiltins.isinstance = lambda *a: True\nbuiltins.all = lambda x: True\n"
        "def f(x): return 0"
    ),
    "it reads the tests in the frames": SEARCH
    + (
        "import sys\ndef f(x):\n    frame, held = sys._getframe(1), []\n    while frame:\n"
        "        held += [frame.f_locals, frame.f_globals, frame.f_code]\n        frame = frame.f_back\n"
        "    return answer(x, held)"
    ),
    "it reads the tests in the garbage collector": SEARCH + "import gc\ndef f(x): return answer(x, gc.get_objects())",
    "it answers with what the comparison asks of it": (
        "class Chameleon(list):\n    def __iter__(self): return iter([122, '3'])\n    def __len__(self): return 2\n"
        "    def __getitem__(self, i): return [122, '3'][i]\n    def __class_getitem__(cls, i): return cls\n"
        "    __class__ = property(lambda self: bool)\ndef f(x): return Chameleon()"
    ),
    "it patches the runner's encoder": (
        "import gc\nfor o in gc.get_objects():\n    if isinstance(o, dict) and 'run_program' in o:\n"
        "        o.update(dict.fromkeys(('encode', 'wire', '_value'), lambda *a, **k: True), _step=lambda *a: {})\n"
        "def f(x): return 0"
    ),
    "it sends malformed values": (
        "import gc\nfor o in gc.get_objects():\n    if isinstance(o, dict) and 'run_program' in o:\n"
        "        o.update(_value=lambda *a, **k: [['l'], {'t': None}, 'n1/0'])\ndef f(x): return 0"
    ),
    "it leaves a child": (
        "import os, sys\nif not os.fork():\n    __import__('time').sleep(5)\n    os._exit(0)\n"
        "sys.stdout.write('passed 2 of 2')\ndef f(x): return 0"
    ),
    "NaN and infinity": "def f(x): return [float('nan'), float('inf')]",
    "it stops the process": "import os\ndef f(x): os._exit(0)",
    "it raises what all equals": LIAR + "class E(Exception, Liar): pass\ndef f(x): raise E",
    "a mapping that equals all": (
        "import collections\nclass M(collections.UserList):\n    def __eq__(self, other): return True\n"
        "    data = property(lambda s: [1])\n    def __init__(self): pass\ndef f(x): return M()"
    ),
    "it reads its parent's memory and arguments": (
        "import glob\ndef f(x):\n    for name in glob.glob('/proc/[0-9]*/[ce][mn][dv]*'):\n"
        "        try: text = open(name, 'rb').read()\n        except OSError: continue\n"
        "        if b'1491' in text: return [x * 37 + 11, str(x)]\n    return 0"
    ),
    "it replaces json": (
        "import json, json.encoder\njson.dumps = lambda *a, **k: '{}'\n"
        "json.encoder.JSONEncoder.encode = lambda *a: '{\"steps\": [{}, {}]}'\ndef f(x): return 0"
    ),
}


def ran(program: str, tests: str, *, isolated: bool) -> ProgramResult:
    return run(program, tests, SandboxLimits(seconds=8.0), isolated=isolated)


FORGED = {
    "deep": "text = b'[' * 60000",
    "a refusal": "text = json.dumps({'mark': mark, 'refused': 'no'}).encode()",
    "a status": "text = json.dumps({'mark': mark, 'status': 'x'}).encode()",
    "odd steps": "text = json.dumps({'mark': mark, 'steps': 7, 'kind': []}).encode()",
    "no text": "text = b'\\xff\\x00'",
}


@pytest.mark.slow
@pytest.mark.parametrize("isolated", MODES)
@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_report_harms_its_program_alone(forged: str, isolated: bool) -> None:
    """The verifier gives a result, and raises nothing: what the sandbox says has a pipe of its own."""
    program = (
        "import gc, json, os\n[mark] = {o['mark'] for o in gc.get_objects() if isinstance(o, dict) and 'mark' in o "
        "and 'program' in o}\n"
        f"{FORGED[forged]}\nfor end in range(3, 64):\n    try: os.write(end, text + b'\\n')\n    except OSError: "
        "pass\ndef f(x): return 0\n"
    )
    result = ran(program, FORMS["named"], isolated=isolated)
    assert result.outcome is ProgramOutcome.FAILED
    assert result.passed == 0


@pytest.mark.slow
@pytest.mark.parametrize(("form", "isolated"), [("named", False), *((form, not sandbox.why_not()) for form in FORMS)])
@pytest.mark.parametrize("cheat", CHEATS)
def test_none_passes_in_any_form_of_the_tests(cheat: str, form: str, isolated: bool) -> None:
    result = ran(CHEATS[cheat], FORMS[form], isolated=isolated)
    assert result.outcome is not ProgramOutcome.PASSED
    assert result.passed == 0


@pytest.mark.parametrize("form", FORMS)
def test_a_right_program_passes_in_each_form(form: str) -> None:
    result = ran(RIGHT, FORMS[form], isolated=False)
    assert result.outcome is ProgramOutcome.PASSED, result


@pytest.mark.parametrize("form", FORMS)
def test_nothing_that_is_expected_is_in_what_the_programs_process_gets(form: str) -> None:
    asked = str(read_tests(FORMS[form]).asked)
    assert "f(" in asked
    for expected in ("122", "1491", "'40'"):
        assert expected not in asked


def test_the_readers_of_tests_find_them_where_they_are() -> None:
    """A statement that is not decided apart is in the program's reach, and these programs find it: they are able to."""
    beside = f"CASES = {CASES}\ndef compare(given, expected, *notes):\n    assert given == expected\n"
    beside += "for x, y in CASES:\n    compare(f(x), y)\n"
    for name in ("it reads the tests in the frames", "it reads the tests in the garbage collector"):
        result = ran(CHEATS[name], beside, isolated=False)
        assert result.outcome is ProgramOutcome.PASSED, result
