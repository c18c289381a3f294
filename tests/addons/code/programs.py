"""Right programs of many habits, each with its tests: three problems solved in each of the habits, and programs of
their own.
"""

from __future__ import annotations

# name of the function -> its source, and the calls with what they must give
PROBLEMS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "fibonacci": (
        ("def core(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n"),
        [
            ("10", "55"),
            ("0", "0"),
            ("300", "222232244629420445529739893461909967206666939096499764990979600"),
        ],
    ),
    "words": (
        (
            "def core(text):\n    found = {}\n    for word in text.split():\n        found[word] = found.get(word, 0) "
            "+ 1\n"
            "    return found\n"
        ),
        [
            ("'a b a'", "{'a': 2, 'b': 1}"),
            ("''", "{}"),
            ("'é \\u00e9'", "{'é': 2}"),
        ],
    ),
    "unique": (
        ("def core(xs):\n    return {x for x in xs if xs.count(x) == 1}\n"),
        [
            ("[1, 2, 2, 3]", "{3, 1}"),
            ("'aab'", "{'b'}"),
            ("[]", "set()"),
        ],
    ),
}
HABITS: dict[str, str] = {
    "plain": ("{core}def {name}(x):\n    return core(x)\n"),
    "dataclass": (
        "from dataclasses import dataclass, field\nimport typing\n{core}@dataclass(frozen=True, slots=True)\nclass "
        "Task:\n"
        "    given: object\n    done: typing.ClassVar[int] = 0\n    notes: list[str] = field(default_factory=list)\n"
        "    def run(self): return core(self.given)\nassert Task.__annotations__['given'] is object\n"
        "assert [f.name for f in __import__('dataclasses').fields(Task)] == ['given', 'notes']\ndef {name}(x): return "
        "Task(x).run()\n"
    ),
    "future annotations": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom typing import "
        "get_type_hints\n{core}@dataclass\n"
        "class Node:\n    given: object\n    next: Node | None = None\nassert get_type_hints(Node)['next'] == Node | "
        "None\n"
        "def {name}(x: object) -> object:\n    return core(Node(x).given)\n"
    ),
    "pickle": (
        "import copy, pickle\n{core}class Job:\n    def __init__(self, x): self.x = x\n    def __call__(self): return "
        "core(self.x)\n"
        "def {name}(x):\n    return pickle.loads(pickle.dumps(copy.deepcopy(Job(x))))()\n"
    ),
    "inspect": (
        "import inspect\n{core}def {name}(x):\n    '''Solve it.'''\n    assert 'def core(' in inspect.getsource(core)\n"
        "    assert inspect.getmodule(core) is inspect.getmodule(inspect.currentframe())\n"
        "    assert list(inspect.signature({name}).parameters) == ['x']\n    return core(x)\n"
    ),
    "recursion": (
        "import sys\nsys.setrecursionlimit(20000)\n{core}def down(n, x):\n    return core(x) if n == 0 else down(n - "
        "1, x)\n"
        "def {name}(x): return down(3000, x)\n"
    ),
    "thread": (
        "import queue, threading\n{core}def {name}(x):\n    results = queue.Queue()\n"
        "    workers = [threading.Thread(target=lambda: results.put(core(x)), daemon=i == 0) for i in range(4)]\n"
        "    for w in workers: w.start()\n    for w in workers: w.join()\n    return results.get()\n"
    ),
    "process pool": (
        "from multiprocessing import Pool\n{core}def {name}(x):\n    with Pool(2) as pool:\n        return "
        "pool.map(core, [x, x])[1]\n"
        "if __name__ == '__main__':\n    raise SystemExit('only as a script')\n"
    ),
    "executor of processes": (
        "from concurrent.futures import ProcessPoolExecutor\nfrom dataclasses import "
        "dataclass\n{core}@dataclass\nclass Job:\n"
        "    x: object\ndef work(job): return Job(core(job.x))\ndef {name}(x):\n    with ProcessPoolExecutor(2) as "
        "pool:\n"
        "        return pool.submit(work, Job(x)).result().x\n"
    ),
    "main guard": (
        "import argparse, sys\n{core}def {name}(x): return core(x)\ndef main():\n    parser = "
        "argparse.ArgumentParser()\n"
        "    parser.add_argument('file')\n    print({name}(open(parser.parse_args().file).read()))\nif __name__ == "
        "'__main__':\n"
        "    sys.exit(main())\n"
    ),
    "reads its input": (
        "import sys\ninput = sys.stdin.readline\n{core}data = sys.stdin.read().split()\nfor line in sys.stdin: "
        "print(line)\n"
        "def {name}(x): return core(x)\nif __name__ == '__main__':\n    print({name}(eval(input())))\n"
    ),
    "prints and logs": (
        "import logging, sys, warnings\nlogging.basicConfig(level=logging.DEBUG)\n{core}def {name}(x):\n"
        "    print('solving', x, file=sys.stderr)\n    logging.getLogger(__name__).info('x %r', x)\n    "
        "warnings.warn('slow')\n"
        "    sys.stdout.flush()\n    return core(x)\n"
    ),
    "files": (
        "import json, os, pathlib, tempfile\n{core}def {name}(x):\n    with tempfile.TemporaryDirectory() as folder:\n"
        "        path = pathlib.Path(folder) / 'x.txt'\n        path.write_text(repr(x), encoding='utf-8')\n"
        "        return core(eval(path.read_text(encoding='utf-8')))\nassert os.path.exists(__file__)\n"
    ),
    "its own results": (
        "from collections import OrderedDict, UserList\nimport enum\n{core}class Text(str): pass\nclass Items(list): "
        "pass\n"
        "class Count(int): pass\nclass Real(float):\n    def __repr__(self): return 'real'\ndef {name}(x):\n    got = "
        "core(x)\n"
        "    kinds = {{str: Text, list: Items, int: Count, float: Real, dict: OrderedDict, set: frozenset}}\n"
        "    return kinds.get(type(got), lambda g: g)(got)\n"
    ),
    "star and globals": (
        "from math import *\nfrom typing import *\n{core}CALLS: int = 0\ndef {name}(*args, **options):\n    global "
        "CALLS\n"
        "    CALLS += 1\n    assert globals()['CALLS'] == CALLS and __import__(__name__).CALLS == CALLS\n"
        "    return (lambda f, /, *a: f(*a))(core, *args)\n"
    ),
}
# name -> program, tests
OWN: dict[str, tuple[str, str]] = {
    "a stdin solution by its function": (
        (
            "def main():\n    n = int(input())\n    print(sum(int(input()) for _ in range(n)))\nif __name__ == "
            "'__main__':\n    main()\n"
        ),
        (
            "import contextlib, io, sys\nsys.stdin = io.StringIO('2\\n3\\n4\\n')\nout = io.StringIO()\n"
            "with contextlib.redirect_stdout(out):\n    main()\nassert out.getvalue() == '7\\n'\n"
        ),
    ),
    "a stdin solution as a script": (
        ("n = int(input())\nprint(n * 2)\n"),
        (
            "import subprocess, sys\n"
            "done = subprocess.run([sys.executable, 'solution.py'], input='21', capture_output=True, text=True)\n"
            "assert done.stdout == '42\\n'\nassert done.returncode == 0\n"
        ),
    ),
    "input replaced by the tests": (
        ("def read():\n    return [int(x) for x in input().split()]\n"),
        ("lines = iter(['1 2', '3'])\ninput = lambda: next(lines)\nassert read() == [1, 2]\nassert read() == [3]\n"),
    ),
    "values of its own classes": (
        (
            "from dataclasses import dataclass\n@dataclass(order=True)\nclass V:\n    x: int\n    y: int\n"
            "    def __add__(self, o): return V(self.x + o.x, self.y + o.y)\n"
        ),
        ("assert V(1, 2) + V(3, 4) == V(4, 6)\nassert V(1, 2) < V(2, 0)\nassert repr(V(1, 2)) == 'V(x=1, y=2)'\n"),
    ),
    "sorts in place in a loop": (
        (
            "def sort(xs):\n    for i in range(len(xs)):\n        j = min(range(i, len(xs)), key=xs.__getitem__)\n"
            "        xs[i], xs[j] = xs[j], xs[i]\n"
        ),
        ("for xs, ys in [([3, 1], [1, 3]), ([2], [2])]:\n    sort(xs)\n    assert xs == ys\n"),
    ),
    "raises as asked": (
        ("class TooSmall(ValueError): pass\ndef root(x):\n    if x < 0: raise TooSmall(x)\n    return x ** 0.5\n"),
        (
            "try:\n    root(-1)\nexcept ValueError as e:\n    assert type(e) is TooSmall\nelse:\n    assert "
            "False\nassert root(4) == 2\n"
        ),
    ),
    "fractions and decimals": (
        (
            "from decimal import Decimal\nfrom fractions import Fraction\ndef half(): return Fraction(1, 2)\n"
            "def tenth(): return Decimal('0.5')\n"
        ),
        (
            "from fractions import Fraction\nassert half() == 0.5\nassert tenth() == 0.5\nassert half() == "
            "Fraction(1, 2)\n"
        ),
    ),
    "near numbers": (
        ("import math\ndef area(r): return math.pi * r * r\n"),
        (
            "import math\nassert abs(area(2) - 12.566370614) < 1e-6\nassert math.isclose(area(1), math.pi)\n"
            "assert round(area(1), 2) == 3.14\nassert area(1) > 3 and area(1) <= 3.2\nassert 3 < area(1) < 4\n"
        ),
    ),
    "an enumeration of integers": (
        (
            "from enum import IntEnum, StrEnum\nclass Level(IntEnum):\n    LOW = 1\n    HIGH = 2\nclass "
            "Name(StrEnum):\n    A = 'a'\n"
            "def level(x): return Level.HIGH if x else Level.LOW\ndef name(): return Name.A\n"
        ),
        ("assert level(True) == 2\nassert level(False) == 1\nassert level(1) is Level.HIGH\nassert name() == 'a'\n"),
    ),
    "collections": (
        (
            "from collections import Counter, defaultdict, deque, namedtuple\nP = namedtuple('P', 'x y')\n"
            "def counts(t): return Counter(t)\ndef groups(ws):\n    g = defaultdict(list)\n    for w in ws: "
            "g[w[0]].append(w)\n"
            "    return g\ndef point(): return P(1, 2)\ndef keys(d): return d.keys()\ndef last(xs): return deque(xs, "
            "maxlen=2)\n"
        ),
        (
            "assert counts('aab') == {'a': 2, 'b': 1}\nassert groups(['a', 'ab', 'b']) == {'a': ['a', 'ab'], 'b': "
            "['b']}\n"
            "assert point() == (1, 2)\nassert keys({'a': 1}) == {'a'}\nassert list(last([1, 2, 3])) == [2, 3]\nassert "
            "point().x == 1\n"
        ),
    ),
    "large integers": (
        "def power(a, b): return a ** b\n",
        ("assert power(7, 3000) == 7 ** 3000\nassert power(2, 0) == True\nassert power(10, 5000) == 10 ** 5000\n"),
    ),
    "bytes": (
        (
            "import base64, zlib\ndef pack(b): return base64.b64encode(zlib.compress(b))\n"
            "def unpack(b): return zlib.decompress(base64.b64decode(b))\n"
        ),
        (
            "assert unpack(pack(b'abc')) == b'abc'\nassert isinstance(pack(b''), bytes)\nassert "
            "bytearray(unpack(pack(b'x'))) == b'x'\n"
        ),
    ),
    "odd texts": (
        "def f(s): return s[::-1]\n",
        ("assert f('\\ud800a') == 'a\\ud800'\nassert f('\\x00\\n') == '\\n\\x00'\nassert f('😀é') == 'é😀'\n"),
    ),
    "complex numbers": (
        ("import cmath\ndef root(x): return cmath.sqrt(x)\n"),
        ("assert root(-4) == 2j\nassert root(4) == 2\nassert root(-1).imag == 1.0\n"),
    ),
    "imported by its name": (
        ("X = 3\ndef f(): return X\n"),
        ("from solution import X, f\nimport solution\nassert f() == 3\nassert X == 3\nassert solution.f() == 3\n"),
    ),
    "tested by unittest": (
        (
            "class Stack:\n    def __init__(self): self._items = []\n    def push(self, x): self._items.append(x)\n"
            "    def pop(self): return self._items.pop()\n"
        ),
        (
            "import unittest\nclass TestStack(unittest.TestCase):\n    def setUp(self):\n        self.stack = Stack()\n"
            "        self.stack.push(1)\n    def test_pop(self):\n        self.assertEqual(self.stack.pop(), 1)\n"
            "    def test_empty(self):\n        self.stack.pop()\n        with self.assertRaises(IndexError):\n"
            "            self.stack.pop()\nif __name__ == '__main__':\n    unittest.main(exit=False)\n"
        ),
    ),
    "tested by doctest": (
        ("def f(x):\n    return {x: [x]}\n"),
        (
            '"""\n>>> f(1)\n{1: [1]}\n>>> for i in range(2):\n...     print(f(i))\n{0: [0]}\n{1: [1]}\n"""\nimport '
            "doctest\n"
            "doctest.testmod()\n"
        ),
    ),
    "signals and time": (
        (
            "import signal, time\ndef with_limit(f):\n    def late(*a): raise TimeoutError\n    "
            "signal.signal(signal.SIGALRM, late)\n"
            "    signal.setitimer(signal.ITIMER_REAL, 0.05)\n    try:\n        return f()\n    except TimeoutError:\n"
            "        return 'late'\n    finally:\n        signal.setitimer(signal.ITIMER_REAL, 0)\n"
        ),
        ("import time\nassert with_limit(lambda: time.sleep(5)) == 'late'\nassert with_limit(lambda: 3) == 3\n"),
    ),
    "a subprocess": (
        (
            "import subprocess, sys\ndef version():\n"
            "    return subprocess.check_output([sys.executable, '-c', 'import sys; print(sys.version_info[0])'], "
            "text=True)\n"
            "def shell(): return subprocess.run('echo $((6 * 7))', shell=True, capture_output=True, "
            "text=True).stdout.strip()\n"
        ),
        ("assert version() == '3\\n'\nassert shell() == '42'\n"),
    ),
    "processes by spawn": (
        (
            "import multiprocessing as mp\ndef square(x): return x * x\ndef f(xs):\n    with "
            "mp.get_context('spawn').Pool(1) as pool:\n"
            "        return pool.map(square, xs)\nif __name__ == '__main__':\n    print(f([1]))\n"
        ),
        "assert f([1, 2, 3]) == [1, 4, 9]\n",
    ),
    "asynchronous tests": (
        (
            "import asyncio\nclass Bank:\n    def __init__(self): self.lock, self.sum = asyncio.Lock(), 0\n"
            "    async def add(self, x):\n        async with self.lock:\n            await asyncio.sleep(0)\n"
            "            self.sum += x\n            return self.sum\n"
        ),
        (
            "import asyncio\nasync def test():\n    bank = Bank()\n    await asyncio.gather(*(bank.add(i) for i in "
            "range(5)))\n"
            "    assert bank.sum == 10\nasyncio.run(test())\n"
        ),
    ),
}


def every() -> dict[str, tuple[str, str]]:
    """Return all programs by their name, each with its tests."""
    found = dict(OWN)
    for habit, template in HABITS.items():
        for name, (core, cases) in PROBLEMS.items():
            tests = "\n".join(f"assert {name}({given}) == {wanted}" for given, wanted in cases)
            found[f"{habit}: {name}"] = (template.format(core=core, name=name), tests)
    return found
