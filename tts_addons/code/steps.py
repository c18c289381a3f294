"""Tests of programs, split in two.

One part is evaluated by the program's process, and the other is decided out of its reach.

An assertion that compares a call with plain data is split in two. The program's process evaluates an expression, and
this process decides a condition on its value. Loops over literals, and test functions of assertions alone, are written
out first. All other statements run beside the program as they are.
"""

from __future__ import annotations

import ast
import copy
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tts_addons.code.assertions import (
    Definitions,
    as_assertions,
    is_idle,
    is_runner,
    test_methods,
)
from tts_addons.code.conditions import MOST_PARTS, AskedParts, Clause, NotPlainError, condition_of, read_value
from tts_addons.code.json_tests import parse_json_tests, step_of
from tts_addons.code.values import NotDataError, data_of

_ROOM = 1 << 20  # characters of the values, beside what the tests' own size allows


class NotTestsError(ValueError):
    """Tests are neither Python nor of the form in JSON."""


class NothingTestedError(NotTestsError):
    """Tests check nothing."""


@dataclass(frozen=True, slots=True)
class CodeStep:
    """A step of the tests: what the program's process does, and the clauses that its values must meet."""

    asked: Mapping[str, Any]
    clauses: tuple[Clause, ...] = ()

    @property
    def is_test(self) -> bool:
        """Whether the step is a test, and no preparation of one."""
        return bool(self.asked["test"])

    def words(self) -> set[str]:
        """Return the words of the source that the program's process is asked to run."""
        sources = [self.asked.get("do", ""), *self.asked.get("unittest", ()), *self.asked.get("doctest", ())]
        sources += [source for source, _name, _truth in self.asked.get("values", ())]
        return set(re.findall(r"\w+", "\n".join(sources)))

    def fault(self, said: Mapping[str, Any]) -> str:
        """Return why the step failed, from the report of the program's process; "" if it passed."""
        if "error" in said:
            return str(said["error"])[:200]
        if not self.clauses:
            return ""
        values = said.get("values")
        if not isinstance(values, list) or len(values) != len(self.asked.get("values", [""])):
            return "it sent no values of the test"
        for clause in self.clauses:
            fault = clause.fault(values)
            if fault:
                return fault[:200]
        return ""


@dataclass(frozen=True, slots=True)
class CodeTests:
    """The steps of tests.

    Args:
        steps: The steps, in order.
        room: Characters that the values of all steps may take.
        names: Names that a program must define for the tests to call it.
        limits: How often a program's time limit counts: once, or for each test.
    """

    steps: tuple[CodeStep, ...]
    room: int
    names: frozenset[str] = frozenset()
    limits: int = 1

    @property
    def reads_input(self) -> bool:
        """Whether the tests are of standard input, each by a process of its own."""
        return any("stdin" in step.asked for step in self.steps)

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The requests to the program's process, one a step."""
        return [dict(step.asked) for step in self.steps]

    @property
    def longest(self) -> int:
        """The bytes that the report of a program cannot exceed."""
        return 8 * self.room + (1 << 16) + 2048 * sum(1 + len(step.clauses) for step in self.steps)

    @property
    def total(self) -> int:
        """The number of tests."""
        return sum(step.is_test for step in self.steps)


@lru_cache(maxsize=64)
def read_tests(tests: str) -> CodeTests:
    """Return the steps of tests in Python or JSON (`tts_addons.code.json_tests`).

    Raises:
        NotTestsError: the tests are neither Python nor such JSON. NothingTestedError: they test nothing.
    """
    try:
        json_tests = parse_json_tests(tests)
        if json_tests is not None:
            return _json_steps(json_tests, tests)
        with warnings.catch_warnings(action="ignore"):  # for example of invalid escapes in strings
            tree = ast.parse(tests, "tests")
            reading = _Reading(tree, as_assertions(tree))
            steps = reading.steps()
    except NothingTestedError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as failure:
        raise NotTestsError(str(failure)) from failure
    code_tests = CodeTests(tuple(steps), _ROOM + 64 * len(tests), reading.called)
    if not code_tests.total:
        raise NothingTestedError
    return code_tests


def _json_steps(json_tests: Sequence[Mapping[str, Any]], text: str) -> CodeTests:
    """Return the steps of tests in JSON; `text` is the text of the tests.

    Raises:
        NothingTestedError: there is no test.
    """
    if not json_tests:
        raise NothingTestedError
    steps = [CodeStep(request, (clause,)) for request, clause in map(step_of, json_tests)]
    room = _ROOM + 64 * len(text) + sum(step.asked.get("most", 0) for step in steps)
    names = frozenset(test["function"] for test in json_tests if "function" in test)
    return CodeTests(tuple(steps), room, names, limits=len(steps))


class _Reading:
    """The statements of tests, turned into steps in order."""

    def __init__(self, tree: ast.Module, body: Sequence[ast.stmt]) -> None:
        self._body = body
        self._defined = Definitions(tree, body)
        self._literals: dict[str, ast.expr] = {}  # of names that statements read so far have defined
        self._used: set[str] = set()  # names of the tests whose definition has been written out
        self._steps: list[tuple[CodeStep, str | None]] = []  # with the name that a step defines

    def steps(self) -> list[CodeStep]:
        """Return the steps, without definitions that are written out and that no other step mentions."""
        if self._defined.passes_always:
            return []
        for statement in self._body:
            self._read(statement)
        if not any(step.is_test for step, _name in self._steps):
            for statement in self._defined.test_calls():
                self._read(statement)
        return self._mentioned_steps()

    @property
    def called(self) -> frozenset[str]:
        """Names that the tests use and do not define: those of the program."""
        nodes = [node for statement in self._body for node in ast.walk(statement)]
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        return frozenset(filter(self._defined.is_the_programs, names))

    def _mentioned_steps(self) -> list[CodeStep]:
        """Return the steps, without definitions that are written out and that no other step mentions."""
        rows = [(step, name, step.words()) for step, name in self._steps]
        while True:
            mentioned_rows: list[tuple[CodeStep, str | None, set[str]]] = []
            for step, name, words in rows:
                is_mentioned = any(name in other_words for _, other_name, other_words in rows if other_name != name)
                if name not in self._used or is_mentioned:
                    mentioned_rows.append((step, name, words))
            if len(mentioned_rows) == len(rows):
                return [step for step, _name, _words in mentioned_rows]
            rows = mentioned_rows  # a definition that was left out mentions nothing any more

    def _read(self, statement: ast.stmt) -> None:
        """Add the steps of a statement."""
        if is_idle(statement):
            return
        name = self._defined.name_of(statement)
        for stored in ast.walk(statement):
            if isinstance(stored, ast.Name) and isinstance(stored.ctx, ast.Store):
                self._literals.pop(stored.id, None)
        runner = is_runner(statement) if name is None else ""
        if runner:
            self._steps += [(step, None) for step in self._runner_steps(runner)]
            return
        if name is not None:
            literal = self._defined.constant(statement)
            if literal is not None:
                self._literals[name] = literal
        else:
            try:
                parts = AskedParts(len(self._steps))
                self._write_out([statement], dict(self._literals), parts, 0)
                if parts.asserts:
                    self._steps.append((_plain_step(parts), None))
                    return
            except NotPlainError:
                pass
        request = {"do": ast.unparse(statement), "test": name is None and self._defined.tests(statement)}
        self._steps.append((CodeStep(request), name))

    def _runner_steps(self, runner: str) -> Iterator[CodeStep]:
        """Yield the steps of a call of unittest or doctest."""
        if runner == "doctest":
            docstrings = self._defined.examples()
            if docstrings:
                yield CodeStep({"doctest": docstrings, "test": True})
            else:
                yield CodeStep({"do": "pass", "test": False})
            return
        cases = self._defined.cases()
        parts = AskedParts(len(self._steps))
        try:
            methods = [method for case in cases for method in test_methods(case)]
            for method in methods:
                self._write_out(method, dict(self._literals), parts, 1)
        except NotPlainError:
            parts.asserts = 0
        if parts.asserts:
            self._used |= {case.name for case in cases}
            yield _plain_step(parts)
        else:
            yield CodeStep({"unittest": [case.name for case in cases], "test": any(map(self._defined.tests, cases))})

    def _write_out(self, body: Sequence[ast.stmt], names: dict[str, ast.expr], parts: AskedParts, depth: int) -> None:  # noqa: C901 - a case for each kind
        """Add the parts and clauses of statements.

        Args:
            body: The statements.
            names: The expressions that stand for names; assignments add to them.
            parts: The parts and clauses so far.
            depth: The number of loops and functions around the statements.

        Raises:
            NotPlainError: a statement is no assertion, loop over a literal, assignment, or call of a test function.
        """
        if depth > 8:
            raise NotPlainError
        for statement in body:
            match statement:
                case _ if is_idle(statement):
                    continue
                case ast.Assert(
                    test=ast.Call(
                        func=ast.Name(id="all"), args=[ast.GeneratorExp() | ast.ListComp() as every], keywords=[]
                    )
                ):
                    self._write_out([_loop(every)], dict(names), parts, depth + 1)
                case ast.Assert(test=test):
                    node = self._put_in(test, names)
                    text = data_text(statement.msg) or ast.unparse(test)[:100]
                    first_part = len(parts.values)
                    condition = condition_of(node, parts)
                    parts.asserts += 1
                    parts.clauses.append(Clause(condition, text, of=tuple(range(first_part, len(parts.values)))))
                case ast.For(target=target, iter=items, body=inner, orelse=[]):
                    for row in _rows(self._put_in(items, names)):
                        for name, node in _unpack(target, row).items():
                            names[name] = self._keep(name, node, parts)
                        self._write_out(inner, names, parts, depth + 1)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    names[name] = self._keep(name, self._put_in(value, names), parts)
                case ast.Expr(value=ast.Call(func=ast.Name(id=name), keywords=[]) as call) if (
                    name in self._defined.functions
                ):
                    function = self._defined.functions[name]
                    self._used.add(name)
                    arguments = [self._put_in(argument, names) for argument in call.args]
                    parameters = _parameters(function, len(arguments))
                    kept = {
                        parameter: self._keep(parameter, argument, parts)
                        for parameter, argument in zip(parameters, arguments, strict=True)
                    }
                    self._write_out(function.body, {**self._literals, **kept}, parts, depth + 1)
                case ast.Expr(value=ast.Call() as call) if depth:
                    _ask_expression(self._put_in(call, names), parts)
                case _:
                    raise NotPlainError

    def _put_in(self, node: ast.expr, names: Mapping[str, ast.expr]) -> ast.expr:
        """Return an expression with `names` put in for its names, and note the definitions that are used so."""
        nodes = list(ast.walk(node))
        used_names = {inner.id for inner in nodes if isinstance(inner, ast.Name)}
        for name in used_names & self._literals.keys():
            if names.get(name) is self._literals[name]:
                self._used.add(name)
        _check_bound(nodes, names)
        if not used_names & names.keys():
            return node
        return _Folded().visit(_PutIn(names).visit(copy.deepcopy(node)))

    def _keep(self, name: str, node: ast.expr, parts: AskedParts) -> ast.expr:
        """Return the expression that stands for a name: a literal, a name of the program, or a new name.

        The new name keeps the value in the program's process.
        """
        if isinstance(node, ast.Name) or (self._defined.constant_of(name, node) is not None):
            return node
        kept_name = f"_kept_{parts.number}_{len(parts.values)}"
        _ask_expression(node, parts, name=kept_name)
        return ast.Name(kept_name, ast.Load())


def data_text(message: ast.expr | None) -> str:
    """Return the message of an assertion where it is a literal text."""
    return message.value if isinstance(message, ast.Constant) and isinstance(message.value, str) else ""


def _loop(comprehension: ast.GeneratorExp | ast.ListComp) -> ast.stmt:
    """Return a loop of assertions for `all(… for …)`."""
    [generator, *others] = comprehension.generators
    if others or generator.ifs or generator.is_async:
        raise NotPlainError
    return ast.For(generator.target, generator.iter, [ast.Assert(comprehension.elt, None)], [])


def _ask_expression(node: ast.expr, parts: AskedParts, name: str | None = None) -> None:
    index = parts.ask(node, name=name, truth=name is None)
    parts.clauses.append(Clause(lambda values: read_value(values, index) is not Ellipsis, ""))  # it must not raise


def _plain_step(parts: AskedParts) -> CodeStep:
    return CodeStep({"values": [list(part) for part in parts.values], "test": True}, tuple(parts.clauses))


def _parameters(function: ast.FunctionDef, count: int) -> list[str]:
    """Return the names of a function's parameters; refuse a function that does not take `count` plain parameters."""
    match function.args:
        case ast.arguments(posonlyargs=[], args=parameters, vararg=None, kwonlyargs=[], kwarg=None, defaults=[]) if (
            len(parameters) == count
        ):
            return [parameter.arg for parameter in parameters]
        case _:
            raise NotPlainError


class _PutIn(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._names.get(node.id, node) if isinstance(node.ctx, ast.Load) else node


class _Folded(ast.NodeTransformer):
    """Replaces an item of a literal by the item, since the literal may also hold expected values."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        try:
            return ast.parse(repr(data_of(node)), mode="eval").body
        except (NotDataError, SyntaxError):
            self.generic_visit(node)
            return node


def _check_bound(nodes: list[ast.AST], names: Mapping[str, ast.expr]) -> None:
    """Check the nodes of an expression.

    Raises:
        NotPlainError: the expression binds one of the names itself, or has another order of evaluation.
    """
    for inner in nodes:
        if isinstance(inner, ast.arg) and inner.arg in names:
            raise NotPlainError
        if isinstance(inner, ast.Name) and inner.id in names and not isinstance(inner.ctx, ast.Load):
            raise NotPlainError
        if isinstance(inner, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr):
            raise NotPlainError


def _rows(items: ast.expr) -> list[ast.expr]:
    """Return the elements of a loop's literal."""
    if isinstance(items, ast.List | ast.Tuple):
        return items.elts
    try:
        values = list(data_of(items))
        return [ast.parse(repr(value), mode="eval").body for value in values[: MOST_PARTS + 1]]
    except (NotDataError, TypeError, SyntaxError) as failure:
        raise NotPlainError from failure


def _unpack(target: ast.expr, row: ast.expr) -> dict[str, ast.expr]:
    """Return the expression for each name of a loop's target in one row of the loop's literal."""
    if isinstance(target, ast.Name):
        return {target.id: row}
    if (
        isinstance(target, ast.Tuple | ast.List)
        and isinstance(row, ast.Tuple | ast.List)
        and len(target.elts) == len(row.elts)
    ):
        unpacked = map(_unpack, target.elts, row.elts)
        return {name: value for names in unpacked for name, value in names.items()}
    raise NotPlainError
