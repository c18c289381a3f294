"""What the statements of tests define and check, by their syntax."""

from __future__ import annotations

import ast
import builtins
import doctest
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tts.verifiers.code.values import NotDataError, data_of, is_data

_CHECKS = re.compile(r"(?i)assert|raises|fail|verify|expect")
_HARMLESS = {  # functions that change none of their arguments
    "abs", "all", "any", "bool", "dict", "enumerate", "float", "int", "isinstance", "len", "list", "max", "min",
    "print", "range", "repr", "round", "set", "sorted", "str", "sum", "tuple", "type", "zip",
}  # fmt: skip
_RUNNERS = {
    "unittest.main": "unittest", "unittest.TestProgram": "unittest", "doctest.testmod": "doctest", "testmod": "doctest",
}  # fmt: skip
_BOTH: dict[str, ast.cmpop] = {
    "assertEqual": ast.Eq(),
    "assertEquals": ast.Eq(),
    "assertListEqual": ast.Eq(),
    "assertDictEqual": ast.Eq(),
    "assertSetEqual": ast.Eq(),
    "assertTupleEqual": ast.Eq(),
    "assertSequenceEqual": ast.Eq(),
    "assertMultiLineEqual": ast.Eq(),
    "assertNotEqual": ast.NotEq(),
    "assertIs": ast.Is(),
    "assertIsNot": ast.IsNot(),
    "assertIn": ast.In(),
    "assertNotIn": ast.NotIn(),
    "assertLess": ast.Lt(),
    "assertLessEqual": ast.LtE(),
    "assertGreater": ast.Gt(),
    "assertGreaterEqual": ast.GtE(),
}
_ONE: dict[str, str] = {
    "assertTrue": "{}",
    "assertFalse": "not {}",
    "assertIsNone": "{} is None",
    "assertIsNotNone": "{} is not None",
}


class NotWrittenOutError(Exception):
    """A test case has more than methods of assertions."""


def splice_main_block(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Return statements with those below `if __name__ == "__main__"` in its place.

    The statement `a, b = x, y` is returned as two.
    """
    statements: list[ast.stmt] = []
    for statement in (part for whole in body for part in _split_assignment(whole)):
        if isinstance(statement, ast.If) and ast.unparse(statement.test) in (
            "__name__ == '__main__'",
            "'__main__' == __name__",
        ):
            statements += splice_main_block(statement.body)
        else:
            statements.append(statement)
    return statements


def _split_assignment(statement: ast.stmt) -> list[ast.stmt]:
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            used = {node.id for value in values for node in ast.walk(value) if isinstance(node, ast.Name)}
            if len(names) == len(targets) and names.isdisjoint(used):
                return [ast.Assign([target], value, lineno=0) for target, value in zip(targets, values, strict=True)]
        case _:
            pass
    return [statement]


class _AsAssertions(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        self.generic_visit(node)
        node.body = [part for statement in node.body for part in _split_assignment(statement)]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        value = node.value
        negated = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
        if (
            negated
            or isinstance(value, ast.Compare)
            or (isinstance(value, ast.BoolOp) and any(map(_compares, value.values)))
        ):
            return ast.copy_location(ast.Assert(value, None), node)
        return node


def _compares(node: ast.expr) -> bool:
    return any(isinstance(inner, ast.Compare) for inner in ast.walk(node))


def as_assertions(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Return statements in which a bare comparison is an assertion."""
    return [_AsAssertions().visit(statement) for statement in body]


def is_idle(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing, or prints what is there already.

    Such a print would take what is expected to the program's process.
    """
    value = statement.value if isinstance(statement, ast.Expr) else None
    if value is None or isinstance(value, ast.Constant):
        return isinstance(statement, ast.Pass | ast.Expr)
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"):
        return False
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    callees = {node.func.id if isinstance(node.func, ast.Name) else "" for node in calls}
    return callees <= _HARMLESS


def is_runner(statement: ast.stmt) -> str:
    """Return "unittest" or "doctest" where a statement calls the one to run the tests; else ""."""
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    return _RUNNERS.get(ast.unparse(value.func), "") if isinstance(value, ast.Call) else ""


class _Checks(ast.NodeVisitor):
    """Whether a statement checks something.

    Checks are assertions, raised errors, calls with a name such as "verify", and calls that get the program.
    """

    def __init__(self, defined: Definitions, seen: frozenset[str]) -> None:
        self._defined = defined
        self._seen = seen
        self.found = False

    def visit_Assert(self, node: ast.Assert) -> None:
        del node
        self.found = True

    def visit_Raise(self, node: ast.Raise) -> None:
        del node
        self.found = True

    def visit_Try(self, node: ast.Try) -> None:
        swallows = any(
            handler.type is None or ast.unparse(handler.type) in ("Exception", "BaseException", "AssertionError")
            for handler in node.handlers
        )
        for inner in ([] if swallows else node.body) + [*node.handlers, *node.orelse, *node.finalbody]:
            self.visit(inner)

    def visit_If(self, node: ast.If) -> None:
        try:
            branch = node.body if data_of(node.test) else node.orelse
        except NotDataError:
            branch = [*node.body, *node.orelse]
        for inner in branch:
            self.visit(inner)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func)
        roots = {inner.id for argument in node.args for inner in ast.walk(argument) if isinstance(inner, ast.Name)}
        if _CHECKS.search(called) or (
            called.split(".")[0] in self._defined.imported and any(map(self._defined.is_the_programs, roots))
        ):
            self.found = True
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self._defined.bodies and node.id not in self._seen:
            self.found |= self._defined.tests(self._defined.bodies[node.id], self._seen | {node.id})


class Definitions:
    """The names that tests define, and what their statements do with them."""

    def __init__(self, tree: ast.Module, body: Sequence[ast.stmt]) -> None:
        self._tree = tree
        nodes = list(ast.walk(tree))
        self.bodies = {s.name: s for s in body if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
        self.functions = {
            s.name: s for s in body if isinstance(s, ast.FunctionDef) and not s.decorator_list and not _is_generator(s)
        }
        self.imported = {
            (alias.asname or alias.name).split(".")[0]
            for s in nodes
            if isinstance(s, ast.Import | ast.ImportFrom)
            for alias in s.names
        }
        self._stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self._changed = set(_changed_names(body))
        self._risky = set(_risky(nodes))
        # an assertion of a tuple holds whatever is in it
        self.passes_always = any(
            isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts for node in nodes
        )

    def is_the_programs(self, name: str) -> bool:
        """Whether a name is neither defined by the tests nor a builtin one."""
        return (
            name not in self.bodies
            and name not in self._stored
            and name not in self.imported
            and name not in vars(builtins)
        )

    def name_of(self, statement: ast.stmt) -> str | None:
        """Return the name that a statement defines, where it does nothing more."""
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                return name
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not any(
                isinstance(n, ast.Call) for n in ast.walk(value)
            ):
                return name
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_data(value):
                return name
            case _:
                return None

    def constant(self, statement: ast.stmt) -> ast.expr | None:
        """Return the literal that a statement gives to a name for good; None: there is no such literal."""
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in self._changed:
                return self.constant_of(name, value)
            case _:
                return None

    def constant_of(self, name: str, value: ast.expr) -> ast.expr | None:
        """Return a value where it is data that nothing changes in place under this name."""
        try:
            data = data_of(value)
            hash(data)
        except NotDataError:
            return None
        except TypeError:
            return None if name in self._risky else value
        return value

    def tests(self, statement: ast.stmt, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a statement checks something, itself or in the functions of the tests that it names."""
        if isinstance(statement, ast.Expr) and not any(
            isinstance(node, ast.Call) for node in ast.walk(statement.value)
        ):
            return False
        if (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Call)
            and isinstance(statement.value.func, ast.Name)
        ):
            called = self.bodies.get(statement.value.func.id)
            if isinstance(called, ast.AsyncFunctionDef) or (called is not None and _is_generator(called)):
                return False  # it makes an object that is never run
        checks = _Checks(self, seen)
        for part in (
            statement.body
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            else [statement]
        ):
            checks.visit(part)
        return checks.found

    def cases(self) -> list[ast.ClassDef]:
        """Return the test cases of unittest."""
        classes = [c for c in self.bodies.values() if isinstance(c, ast.ClassDef)]
        return [c for c in classes if any(ast.unparse(base).endswith("TestCase") for base in c.bases)]

    def examples(self) -> list[str]:
        """Return the docstrings of the tests with examples."""
        nodes = [
            node
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        return [
            text for node in nodes if (text := ast.get_docstring(node)) and doctest.DocTestParser().get_examples(text)
        ]

    def test_calls(self) -> list[ast.stmt]:
        """Return calls of test functions and test cases, for tests that call nothing.

        The functions are those named `test_…` without parameters.
        """
        names = [name for name, f in self.functions.items() if name.startswith("test") and not ast.unparse(f.args)]
        return ast.parse(
            "\n".join([*(f"{name}()" for name in names), *(["unittest.main()"] if self.cases() else [])])
        ).body


def _is_generator(node: ast.stmt) -> bool:
    return any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node))


def _changed_names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names of the module that are bound by more than definitions and plain assignments."""
    for statement in body:
        plain = (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and isinstance(statement.targets[0], ast.Name)
        )
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
            for node in ast.walk(statement):
                if isinstance(node, ast.Global):
                    yield from node.names
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in statement.names)
        else:
            stored = Counter(
                n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
            )
            yield from (name for name, times in stored.items() if not plain or times > 1)


def _risky(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the names whose value may be changed in place.

    This is so for what is passed to a call, and for what has its methods called or items set.

    An item that is named once alone is passed for good.
    """
    items = Counter(ast.unparse(node) for node in nodes if isinstance(node, ast.Subscript))
    for node in nodes:
        changed: list[ast.expr] = []
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _HARMLESS):
            changed = [*node.args, *(keyword.value for keyword in node.keywords)]
            changed = [part.value if isinstance(part, ast.Starred) else part for part in changed]
            changed = [
                part for part in changed if not (isinstance(part, ast.Subscript) and items[ast.unparse(part)] == 1)
            ]
            if isinstance(node.func, ast.Attribute) and node.func.attr != "items":
                changed.append(node.func.value)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            changed = [node.value]
        elif isinstance(node, ast.AugAssign):
            changed = [node.target]
        yield from (name.id for part in changed for name in ast.walk(part) if isinstance(name, ast.Name))


def test_methods(case: ast.ClassDef) -> list[list[ast.stmt]]:
    """Return the bodies of the test methods of a case in the order of their names.

    The assertions of the case become statements.

    Raises:
        NotWrittenOutError: the case has more than such methods, or the methods use more of the case.
    """
    methods: list[tuple[str, list[ast.stmt]]] = []
    for statement in case.body:
        if isinstance(statement, ast.Pass | ast.Expr):
            continue
        if (
            not isinstance(statement, ast.FunctionDef)
            or not statement.name.startswith("test")
            or statement.decorator_list
        ):
            raise NotWrittenOutError
        if len(statement.args.args) != 1 or _is_generator(statement):
            raise NotWrittenOutError
        self_name = statement.args.args[0].arg
        body = [_Methods(self_name).visit(inner) for inner in statement.body]
        if any(isinstance(node, ast.Name) and node.id == self_name for inner in body for node in ast.walk(inner)):
            raise NotWrittenOutError
        methods.append((statement.name, body))
    return [body for _, body in sorted(methods, key=lambda method: method[0])]


class _Methods(ast.NodeTransformer):
    """Turns `self.assertEqual(a, b)` and its like into assertions."""

    def __init__(self, own: str) -> None:
        self._own = own

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=own), attr=name), args=arguments, keywords=[]) if (
                own == self._own
            ):
                return _assertion(name, arguments) or node
            case _:
                return node


def _assertion(name: str, arguments: list[ast.expr]) -> ast.stmt | None:
    if len(arguments) in (2, 3) and name in _BOTH:
        return ast.Assert(ast.Compare(arguments[0], [_BOTH[name]], [arguments[1]]), None)
    texts = [f"({ast.unparse(argument)})" for argument in arguments]
    if len(arguments) == 2 and name == "assertAlmostEqual":
        return ast.parse(f"assert abs({texts[0]} - {texts[1]}) < 5e-8").body[0]
    return ast.parse(f"assert {_ONE[name].format(texts[0])}").body[0] if arguments and name in _ONE else None
