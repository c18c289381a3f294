"""What the statements of tests define and check, by their syntax."""

from __future__ import annotations

import ast
import builtins
import doctest
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tts_addons.code.conditions import NotPlainError
from tts_addons.code.values import PURE, NotDataError, data_of, is_data

_CHECKS = re.compile(r"(?i)assert|raises|fail|verify|expect")
_HARMLESS = PURE | {"all", "any", "isinstance", "print", "repr", "type"}  # functions that change no argument
_RUNNERS = {
    "unittest.main": "unittest", "unittest.TestProgram": "unittest", "doctest.testmod": "doctest", "testmod": "doctest",
}  # fmt: skip
_SWALLOWING = {"Exception", "BaseException", "AssertionError"}
_MAIN = ("__name__ == '__main__'", "'__main__' == __name__")
_TYPED = re.compile(r"(?<=^assert)(?:List|Dict|Set|Tuple|Sequence|MultiLine)(?=Equal$)")
_METHODS = {  # assertions of the methods of unittest's cases
    "assertEqual": "{} == {}", "assertEquals": "{} == {}", "assertNotEqual": "{} != {}", "assertIs": "{} is {}",
    "assertIsNot": "{} is not {}", "assertIn": "{} in {}", "assertNotIn": "{} not in {}", "assertLess": "{} < {}",
    "assertLessEqual": "{} <= {}", "assertGreater": "{} > {}", "assertGreaterEqual": "{} >= {}", "assertTrue": "{}",
    "assertFalse": "not {}", "assertIsNone": "{} is None", "assertIsNotNone": "{} is not None",
    "assertAlmostEqual": "abs({} - {}) < 5e-8",
}  # fmt: skip


class _AsAssertions(ast.NodeTransformer):
    """Makes assertions of bare comparisons, and two assignments of `a, b = x, y`, where x and y do not use a or b.

    Statements below `if __name__ == "__main__"` take its place.
    """

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        return node.body if ast.unparse(node.test) in _MAIN else node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                names = {target.id for target in targets if isinstance(target, ast.Name)}
                used_names = {inner.id for value in values for inner in ast.walk(value) if isinstance(inner, ast.Name)}
                if len(names) == len(targets) == len(values) and names.isdisjoint(used_names):
                    pairs = zip(targets, values, strict=True)
                    return [ast.Assign([target], value, lineno=0) for target, value in pairs]
            case _:
                pass
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        value = node.value
        is_negation = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
        joins_comparisons = isinstance(value, ast.BoolOp) and any(map(_compares, value.values))
        if is_negation or isinstance(value, ast.Compare) or joins_comparisons:
            return ast.copy_location(ast.Assert(value, None), node)
        return node


def _compares(node: ast.expr) -> bool:
    return any(isinstance(inner, ast.Compare) for inner in ast.walk(node))


def as_assertions(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements of tests in a plain form, in which a bare comparison is an assertion."""
    return _AsAssertions().visit(tree).body


def is_idle(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing, or only prints.

    A print that runs in the program's process would show it the expected values.
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
    """Return the module, "unittest" or "doctest", whose runner a statement calls, or ""."""
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    return _RUNNERS.get(ast.unparse(value.func), "") if isinstance(value, ast.Call) else ""


def _effective_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below a node, without those whose failed assertions a `try` swallows."""
    yield node
    caught = [handler.type for handler in node.handlers] if isinstance(node, ast.Try) else []
    swallows = any(kind is None or ast.unparse(kind) in _SWALLOWING for kind in caught)
    for child in ast.iter_child_nodes(node):
        if not (swallows and isinstance(node, ast.Try) and child in node.body):
            yield from _effective_nodes(child)


class Definitions:
    """The names that tests define, and what their statements do with them."""

    def __init__(self, tree: ast.Module, body: Sequence[ast.stmt]) -> None:
        self._tree = tree
        nodes = list(ast.walk(tree))
        self.bodies: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef] = {}  # the plain functions, which can be written out
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.bodies[statement.name] = statement
            if isinstance(statement, ast.FunctionDef) and not statement.decorator_list and not _is_generator(statement):
                self.functions[statement.name] = statement
        aliases = [alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
        self.imported = {(alias.asname or alias.name).split(".")[0] for alias in aliases}
        self._bound = set(_bound_names(tree))
        self._changed = {
            name for statement in body if not _is_plain_assignment(statement) for name in _bound_names(statement)
        }
        self._risky = set(_risky(nodes))
        # an assertion of a tuple holds whatever is in it
        self.passes_always = any(
            isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts for node in nodes
        )

    def is_the_programs(self, name: str) -> bool:
        """Whether a name is the program's: the tests do not define it, and it is no builtin name."""
        return name not in self._bound and name not in vars(builtins)

    def name_of(self, statement: ast.stmt) -> str | None:
        """Return the name that a statement defines, where it does nothing more."""
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                return name
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_data(value) or not any(
                isinstance(node, ast.Call) for node in ast.walk(value)
            ):
                return name
            case _:
                return None

    def constant(self, statement: ast.stmt) -> ast.expr | None:
        """Return the literal that a statement gives to a name, if no other statement changes it; else None."""
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in self._changed:
                return self.constant_of(name, value)
            case _:
                return None

    def constant_of(self, name: str, value: ast.expr) -> ast.expr | None:
        """Return a value if it is data that no statement changes in place under the name; else None."""
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
        if isinstance(statement, ast.Expr):
            value = statement.value
            if not any(isinstance(node, ast.Call) for node in ast.walk(value)):
                return False
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
                called = self.bodies.get(value.func.id)
                if isinstance(called, ast.AsyncFunctionDef) or (called is not None and _is_generator(called)):
                    return False  # the call makes a coroutine or generator that is never run
        is_definition = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        parts = statement.body if is_definition else [statement]
        return any(self._checks(node, seen) for part in parts for node in _effective_nodes(part))

    def _checks(self, node: ast.AST, seen: frozenset[str]) -> bool:
        """Whether a node checks something.

        Checks are assertions, raised errors, calls with a name such as "verify", and calls that get the program.
        """
        match node:
            case ast.Assert() | ast.Raise():
                return True
            case ast.Name(id=name):
                is_new = name in self.bodies and name not in seen
                return is_new and self.tests(self.bodies[name], seen | {name})
            case ast.Call(func=func, args=arguments):
                called = ast.unparse(func)
                nodes = [inner for argument in arguments for inner in ast.walk(argument)]
                gets_program = any(isinstance(inner, ast.Name) and self.is_the_programs(inner.id) for inner in nodes)
                is_imported = called.split(".")[0] in self.imported
                return bool(_CHECKS.search(called)) or (is_imported and gets_program)
            case _:
                return False

    def cases(self) -> list[ast.ClassDef]:
        """Return the test cases of unittest."""
        classes = [c for c in self.bodies.values() if isinstance(c, ast.ClassDef)]
        return [c for c in classes if any(ast.unparse(base).endswith("TestCase") for base in c.bases)]

    def examples(self) -> list[str]:
        """Return the docstrings of the tests with examples."""
        docstrings = [
            ast.get_docstring(node)
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        return [text for text in docstrings if text and doctest.DocTestParser().get_examples(text)]

    def test_calls(self) -> list[ast.stmt]:
        """Return calls of test functions and test cases, for tests that call nothing.

        The functions are those named `test_…` without parameters.
        """
        calls: list[str] = []
        for name, function in self.functions.items():
            has_parameters = ast.unparse(function.args) != ""
            if name.startswith("test") and not has_parameters:
                calls.append(f"{name}()")
        if self.cases():
            calls.append("unittest.main()")
        return ast.parse("\n".join(calls)).body


def _is_generator(node: ast.stmt) -> bool:
    return any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node))


def _is_plain_assignment(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and all(isinstance(target, ast.Name) for target in statement.targets)


def _bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a tree binds, those within its functions included."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Global(names=names):
                yield from names
            case ast.alias(name=name, asname=other_name):
                yield (other_name or name).split(".")[0]
            case _:
                pass


def _risky(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the names whose value may be changed in place.

    These are names in arguments of calls, names whose methods are called, and names whose items are set. An item such
    as `a[0]` is no risk as an argument if the tests mention it only there.
    """
    item_counts = Counter(ast.unparse(node) for node in nodes if isinstance(node, ast.Subscript))
    for node in nodes:
        changed: list[ast.expr] = []
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _HARMLESS):
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            for argument in arguments:
                passed = argument.value if isinstance(argument, ast.Starred) else argument
                is_only_mention = isinstance(passed, ast.Subscript) and item_counts[ast.unparse(passed)] == 1
                if not is_only_mention:
                    changed.append(passed)
            if isinstance(node.func, ast.Attribute) and node.func.attr != "items":
                changed.append(node.func.value)
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            changed = [node.value]
        elif isinstance(node, ast.AugAssign):
            changed = [node.target]
        for expression in changed:
            yield from (inner.id for inner in ast.walk(expression) if isinstance(inner, ast.Name))


def test_methods(case: ast.ClassDef) -> list[list[ast.stmt]]:
    """Return the bodies of the test methods of a case in the order of their names.

    The assertions of the case become statements.

    Raises:
        NotPlainError: the case has more than such methods, or the methods use more of the case.
    """
    methods: list[tuple[str, list[ast.stmt]]] = []
    for statement in case.body:
        if isinstance(statement, ast.Pass | ast.Expr):
            continue
        if not isinstance(statement, ast.FunctionDef) or not statement.name.startswith("test"):
            raise NotPlainError
        if statement.decorator_list or len(statement.args.args) != 1 or _is_generator(statement):
            raise NotPlainError
        self_name = statement.args.args[0].arg
        body = [_Methods(self_name).visit(inner) for inner in statement.body]
        nodes = [node for inner in body for node in ast.walk(inner)]
        if any(isinstance(node, ast.Name) and node.id == self_name for node in nodes):
            raise NotPlainError
        methods.append((statement.name, body))
    methods.sort(key=lambda method: method[0])  # by name, since bodies have no order
    return [body for _name, body in methods]


class _Methods(ast.NodeTransformer):
    """Turns `self.assertEqual(a, b)` and its like into assertions."""

    def __init__(self, self_name: str) -> None:
        self._self_name = self_name

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name), args=arguments, keywords=[]) if (
                owner == self._self_name
            ):
                return _assertion(name, arguments) or node
            case _:
                return node


def _assertion(name: str, arguments: list[ast.expr]) -> ast.stmt | None:
    """Return the assertion of a method of unittest's cases, such as "assertEqual"; None for another method."""
    form = _METHODS.get(_TYPED.sub("", name), "")
    num_values = form.count("{}")
    has_message = len(arguments) == num_values + 1 and name != "assertAlmostEqual"  # there it would be the places
    if not form or (len(arguments) != num_values and not has_message):
        return None
    return ast.parse("assert " + form.format(*(f"({ast.unparse(argument)})" for argument in arguments))).body[0]
