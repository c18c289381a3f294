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

from tts.verifiers.code.assertions import (
    Definitions,
    NotWrittenOutError,
    as_assertions,
    is_idle,
    is_runner,
    splice_main_block,
    test_methods,
)
from tts.verifiers.code.conditions import MOST_PARTS, AskedParts, Clause, NotPlainError, condition_of, read_value
from tts.verifiers.code.json_tests import parse_json_tests, step_of
from tts.verifiers.code.values import NotDataError, data_of

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
        """Return the words in what the program's process is asked to do."""
        sources = [self.asked.get("do", ""), *self.asked.get("unittest", ()), *self.asked.get("doctest", ())]
        return set(
            re.findall(r"\w+", "\n".join([*sources, *(source for source, _, _ in self.asked.get("values", ()))]))
        )

    def fault(self, said: Mapping[str, Any]) -> str:
        """Return why the step failed, from the report of the program's process; "" if it passed."""
        if "error" in said:
            return str(said["error"])[:200]
        if not self.clauses:
            return ""
        values = said.get("values")
        if not isinstance(values, list) or len(values) != len(self.asked.get("values", [""])):
            return "it sent no values of the test"
        return next((fault[:200] for clause in self.clauses if (fault := clause.fault(values))), "")


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
    """Return the steps of tests in Python or JSON (`tts.verifiers.code.json_tests`).

    Raises:
        NotTestsError: the tests are neither. NothingTestedError: they test nothing.
    """
    try:
        if (json_tests := parse_json_tests(tests)) is not None:
            return _json_steps(json_tests, tests)
        with warnings.catch_warnings(action="ignore"):  # for example of invalid escapes in strings
            tree = ast.parse(tests, "tests")
            reading = _Reading(tree, as_assertions(splice_main_block(tree.body)))
            steps = reading.steps()
    except NothingTestedError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as failure:
        raise NotTestsError(str(failure)) from failure
    code_tests = CodeTests(tuple(steps), _ROOM + 64 * len(tests), reading.called)
    if not code_tests.total:
        raise NothingTestedError
    return code_tests


def _json_steps(given: Sequence[Mapping[str, Any]], tests: str) -> CodeTests:
    """Return the steps of tests in JSON.

    Raises:
        NothingTestedError: there is no test.
    """
    if not given:
        raise NothingTestedError
    steps = [CodeStep(asked, (clause,)) for asked, clause in map(step_of, given)]
    room = _ROOM + 64 * len(tests) + sum(step.asked.get("most", 0) for step in steps)
    return CodeTests(
        tuple(steps), room, frozenset(test["function"] for test in given if "function" in test), len(steps)
    )


class _Reading:
    """The statements of tests, turned into steps in order."""

    def __init__(self, tree: ast.Module, body: Sequence[ast.stmt]) -> None:
        self._body = body
        self._defined = Definitions(tree, body)
        self._known: dict[str, ast.expr] = {}
        self._used: set[str] = set()  # names of the tests whose definition has been written out
        self._steps: list[tuple[CodeStep, str | None]] = []  # with the name that a step defines

    def steps(self) -> list[CodeStep]:
        """Return the steps; definitions that are written out, and that no other step mentions, are left out."""
        if self._defined.passes_always:
            return []
        for statement in self._body:
            self._read(statement)
        if not any(step.is_test for step, _ in self._steps):
            for statement in self._defined.test_calls():
                self._read(statement)
        return self._mentioned_steps()

    @property
    def called(self) -> frozenset[str]:
        """Names that the tests use and do not define: those of the program."""
        used = {node.id for statement in self._body for node in ast.walk(statement) if isinstance(node, ast.Name)}
        return frozenset(filter(self._defined.is_the_programs, used))

    def _mentioned_steps(self) -> list[CodeStep]:
        parts = [(step, name, step.words()) for step, name in self._steps]
        while True:
            mentioned = [
                part
                for part in parts
                if part[1] not in self._used or any(part[1] in other[2] for other in parts if other[1] != part[1])
            ]
            if len(mentioned) == len(parts):
                return [step for step, _, _ in mentioned]
            parts = mentioned

    def _read(self, statement: ast.stmt) -> None:
        if is_idle(statement):
            return
        name = self._defined.name_of(statement)
        for stored in ast.walk(statement):
            if isinstance(stored, ast.Name) and isinstance(stored.ctx, ast.Store):
                self._known.pop(stored.id, None)
        if name is None and (runner := is_runner(statement)):
            self._steps += [(step, None) for step in self._runner_steps(runner)]
            return
        if name is not None:
            if (data := self._defined.constant(statement)) is not None:
                self._known[name] = data
        else:
            try:
                parts = AskedParts(len(self._steps))
                self._write_out([statement], dict(self._known), parts, 0)
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
            yield CodeStep(
                {"doctest": texts, "test": True}
                if (texts := self._defined.examples())
                else {"do": "pass", "test": False}
            )
            return
        cases = self._defined.cases()
        parts = AskedParts(len(self._steps))
        try:
            for method in [method for case in cases for method in test_methods(case)]:
                self._write_out(method, dict(self._known), parts, 1)
        except (NotPlainError, NotWrittenOutError):
            parts.asserts = 0
        if parts.asserts:
            self._used |= {case.name for case in cases}
            yield _plain_step(parts)
        else:
            yield CodeStep({"unittest": [case.name for case in cases], "test": any(map(self._defined.tests, cases))})

    def _write_out(self, body: Sequence[ast.stmt], names: dict[str, ast.expr], parts: AskedParts, depth: int) -> None:  # noqa: C901 - a case for each kind
        """Add the parts and clauses of statements.

        Raises:
            NotPlainError: a statement is not of the form.
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
                    first = len(parts.values)
                    condition = condition_of(node, parts)
                    parts.asserts += 1
                    parts.clauses.append(Clause(condition, text, tuple(range(first, len(parts.values)))))
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
                    inside = {
                        p: self._keep(p, a, parts)
                        for p, a in zip(_parameters(function, len(arguments)), arguments, strict=True)
                    }
                    self._write_out(function.body, {**self._known, **inside}, parts, depth + 1)
                case ast.Expr(value=ast.Call() as call) if depth:
                    _ask_expression(self._put_in(call, names), parts)
                case _:
                    raise NotPlainError

    def _put_in(self, node: ast.expr, names: Mapping[str, ast.expr]) -> ast.expr:
        """Return an expression with what stands for its names, and note which definitions that uses."""
        nodes = list(ast.walk(node))
        names_used = {inner.id for inner in nodes if isinstance(inner, ast.Name)}
        self._used |= {name for name in names_used & self._known.keys() if names.get(name) is self._known[name]}
        _check_bound(nodes, names)
        return _Folded().visit(_PutIn(names).visit(copy.deepcopy(node))) if names_used & names.keys() else node

    def _keep(self, name: str, node: ast.expr, parts: AskedParts) -> ast.expr:
        """Return what stands for a name: a literal, a name of the program, or a new name.

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
    parameters = function.args
    if (
        parameters.vararg
        or parameters.kwarg
        or parameters.kwonlyargs
        or parameters.defaults
        or parameters.posonlyargs
        or len(parameters.args) != count
    ):
        raise NotPlainError
    return [argument.arg for argument in parameters.args]


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


def _check_bound(inside: list[ast.AST], names: Mapping[str, ast.expr]) -> None:
    """Check the nodes of an expression.

    Raises:
        NotPlainError: the expression binds one of the names itself, or has another order of evaluation.
    """
    for inner in inside:
        name = inner.arg if isinstance(inner, ast.arg) else inner.id if isinstance(inner, ast.Name) else None
        if name in names and not (isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)):
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
    if isinstance(target, ast.Name):
        return {target.id: row}
    if (
        isinstance(target, ast.Tuple | ast.List)
        and isinstance(row, ast.Tuple | ast.List)
        and len(target.elts) == len(row.elts)
    ):
        names: dict[str, ast.expr] = {}
        for inner, part in zip(target.elts, row.elts, strict=True):
            names |= _unpack(inner, part)
        return names
    raise NotPlainError
