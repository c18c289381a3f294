r"""Reading of an expression in LaTeX or plain notation into a tree, in work linear in its length.

Conventions: a product without a sign binds as a product with a sign, from the left, so `2/3\pi` is two thirds of \pi. A
whole number before a fraction of whole numbers is a mixed number. `i` and `e` are the constants. The argument of `\sin`
in `\sin 2x` is the whole product.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

from tts.tasks.algebra.tokens import ACCENTS, ANGLES, FUNCTIONS, GREEK, INVERSES, UndecidedError, tokens_of

MAX_DEPTH = 50
_MOST_MARKS = 8  # powers, factorials and primes after one factor
_SIGNS = ("+", "-", r"\pm", r"\mp")
_CALLED = frozenset("fgh")
_CLOSING = {"(": ")", "[": "]", "{": "}", r"\{": r"\}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_ENDS = frozenset({*_CLOSING.values(), *"+-*/^!,;=<>%'_:&", r"\pm", r"\mp", ""})


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression.

    Args:
        op: "number", "symbol", "constant", "+", "*", "/", "^", "-", "pm", "mp", "degree", "!", "!!", "call" (a known
            function), "unknown" (an unknown function), "block" or "transpose" (of `matrices`).
        args: The operands.
        name: The name of a symbol, constant or function; the number of a block.
        value: The value of a number.
    """

    op: str
    args: tuple[Node, ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)


ONE = Node("number", value=Fraction(1))


def parse(text: str) -> Node:
    """Return the tree of an expression.

    Raises:
        UndecidedError: the text is no expression, or is too long or too deep.
    """
    return _Parser(tokens_of(text)).expression()


def symbols_of(node: Node) -> frozenset[str]:
    """Return the names of all variables in a tree."""
    names: frozenset[str] = frozenset({node.name} if node.op == "symbol" else ())
    return names.union(*map(symbols_of, node.args))


def has(node: Node, *ops: str) -> bool:
    """Whether a tree contains one of some operations."""
    return node.op in ops or any(has(argument, *ops) for argument in node.args)


class _Parser:
    """A parser by recursive descent over tokens."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0
        self._open_bars = 0

    def expression(self) -> Node:
        node = self._sum()
        if self._position != len(self._tokens):
            raise UndecidedError("something is left over")
        return node

    @property
    def _next(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._next
        self._position += 1
        return token

    def _take_token(self, token: str) -> bool:
        """Take the next token if it is `token`; return whether it is."""
        is_next = self._next == token
        self._position += is_next
        return is_next

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise UndecidedError(f"{token} is missing")

    @contextmanager
    def _descend(self) -> Generator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UndecidedError("too deep")
        yield
        self._depth -= 1

    def _sum(self) -> Node:
        with self._descend():
            terms = [self._signed_product() if self._next in _SIGNS else self._product()]
            while self._next in _SIGNS:
                terms.append(self._signed_product())
        return terms[0] if len(terms) == 1 else Node("+", tuple(terms))

    def _signed_product(self) -> Node:
        sign = self._take()
        product = self._product()
        return product if sign == "+" else Node({"-": "-", r"\pm": "pm", r"\mp": "mp"}[sign], (product,))

    def _product(self) -> Node:
        factors = [self._factor()]
        while True:
            if self._take_token("*"):
                factors.append(self._factor())
            elif self._take_token("/"):
                factors.append(Node("/", (ONE, self._factor())))
            elif self._starts_factor():
                factors.append(self._factor(implicit=True))
            else:
                return factors[0] if len(factors) == 1 else Node("*", tuple(factors))

    def _starts_factor(self) -> bool:
        return self._next not in _ENDS and not (self._next == "|" and self._open_bars)

    def _factor(self, *, implicit: bool = False) -> Node:
        if self._next in ("-", "+"):
            sign = self._take()
            with self._descend():
                unsigned = self._factor()
            return Node("-", (unsigned,)) if sign == "-" else unsigned
        if implicit and self._next[:1].isdigit() and self._tokens[self._position - 1][:1].isdigit():
            raise UndecidedError("two numbers in a row")
        return self._power(self._primary())

    def _power(self, base: Node) -> Node:
        """Return a factor with the marks after it: powers, factorials, primes, degrees. A percent sign is dropped."""
        for _ in range(_MOST_MARKS):
            if self._take_token("!"):
                base = Node("!!" if self._take_token("!") else "!", (base,))
            elif self._next == "'":
                base = self._prime(base)
            elif self._take_token("^"):
                base = Node("degree", (base,)) if self._is_degree() else Node("^", (base, self._exponent()))
            elif self._take_token(r"\degree"):
                base = Node("degree", (base,))
            elif not self._take_token("%"):
                return base
        raise UndecidedError("too many marks")

    def _prime(self, base: Node) -> Node:
        if base.op != "symbol":
            raise UndecidedError("a prime")
        self._take()
        return self._apply(base.name + "'") if self._next == "(" else Node("symbol", name=base.name + "'")

    def _is_degree(self) -> bool:
        """Take a circle in an exponent, the sign of degrees, if it is next; return whether it is."""
        if self._take_token(r"\circ"):
            return True
        if self._tokens[self._position : self._position + 3] == ["{", r"\circ", "}"]:
            self._position += 3
            return True
        return False

    def _exponent(self) -> Node:
        """Return an exponent, which may have signs before it and an exponent of its own."""
        with self._descend():
            if self._next in ("-", "+"):
                sign = self._take()
                unsigned = self._exponent()
                return Node("-", (unsigned,)) if sign == "-" else unsigned
            exponent = self._primary()
            return self._power(exponent) if self._next == "^" else exponent

    def _argument(self) -> Node:
        """Return the argument of a command: a group in braces, or one token.

        Without braces only the first digit of a number is the argument, as in LaTeX.
        """
        if self._next == "{":
            return self._primary()
        if self._next[:1].isdigit() and len(self._next) > 1:
            digits = self._next
            self._tokens[self._position] = digits[1:]
            return Node("number", value=Fraction(int(digits[0])))
        return self._primary()

    def _primary(self) -> Node:
        with self._descend():
            return self._unbounded_primary()

    def _unbounded_primary(self) -> Node:
        """Return a number, name, command or expression in brackets, without the bound on the depth."""
        token = self._take()
        if token[:1].isdigit() or (token.startswith(".") and len(token) > 1):
            return self._number(token)
        if token in _CLOSING and token != r"\{":
            enclosed = self._sum()
            self._expect(_CLOSING[token])
            rounding = {r"\lfloor": "floor", r"\lceil": "ceil"}.get(token)
            return enclosed if rounding is None else Node("call", (enclosed,), rounding)
        if token == "|":
            self._open_bars += 1
            enclosed = self._sum()
            self._expect("|")
            self._open_bars -= 1
            return Node("call", (enclosed,), "abs")
        if token.isalpha() and len(token) == 1:
            return self._letter(token)
        if token.startswith("\\"):
            return self._command(token[1:], token)
        raise UndecidedError(f"{token!r} is not known")

    def _number(self, token: str) -> Node:
        r"""Return the number of a token; a whole number before `\frac` of whole numbers is a mixed number."""
        if self._next == "_":
            raise UndecidedError("a number in another base")
        if token.isdigit() and self._next == r"\frac":
            position_before = self._position
            self._take()
            numerator, denominator = self._argument(), self._argument()
            are_whole = (
                numerator.op == denominator.op == "number"
                and numerator.value.denominator == denominator.value.denominator == 1
            )
            if are_whole and denominator.value:
                return Node("number", value=int(token) + numerator.value / denominator.value)
            self._position = position_before
        if self._next == "." and self._tokens[self._position + 1 : self._position + 2] == [r"\overline"]:
            raise UndecidedError("a repeating decimal within an expression")
        return Node("number", value=Fraction(token))

    def _letter(self, token: str) -> Node:
        name = token + self._subscript()
        if name in ("i", "e"):
            return Node("constant", name=name)
        if name in _CALLED and self._next == "(":
            return self._apply(name)
        return Node("symbol", name=name)

    def _subscript(self) -> str:
        if not self._take_token("_"):
            return ""
        return "_" + (self._group_text() if self._next == "{" else self._take())

    def _group_text(self) -> str:
        """Return the text of a group in braces."""
        self._expect("{")
        depth = 1
        tokens: list[str] = []
        while depth:
            token = self._take()
            if not token:
                raise UndecidedError("a brace is missing")
            depth += (token == "{") - (token == "}")
            tokens.append(token)
        return " ".join(tokens[:-1])

    def _apply(self, name: str) -> Node:
        """Return an unknown function of the arguments in the parentheses that follow."""
        self._expect("(")
        args = [self._sum()]
        while self._take_token(","):
            args.append(self._sum())
        self._expect(")")
        return Node("unknown", tuple(args), name)

    def _command(self, name: str, token: str) -> Node:
        """Return the node of a command of LaTeX, with its arguments; `token` is `name` after a backslash."""
        if name in ("frac", "cfrac", "binom"):
            arguments = (self._argument(), self._argument())
            return Node("call", arguments, "binom") if name == "binom" else Node("/", arguments)
        if name == "sqrt":
            return self._root()
        if name in ("pi", "infty"):
            return Node("constant", name=name)
        if name == "operatorname":
            name = self._group_text().replace(" ", "").removeprefix("\\")
        if name in FUNCTIONS:
            return self._function(name)
        if name in GREEK:
            return Node("symbol", name=name + self._subscript())
        if name in ("sum", "prod"):
            return self._series(name)
        if name in ("block", "transpose"):
            return Node("block", name=self._group_text()) if name == "block" else Node("transpose", (self._argument(),))
        if token in ACCENTS:
            accented = self._group_text() if self._next == "{" else self._take()
            return Node("symbol", name=f"{name}({accented}){self._subscript()}")
        raise UndecidedError(f"{token} is not known")

    def _series(self, name: str) -> Node:
        """Return a sum or product over an index as an unknown function of its bounds and its term."""
        self._expect("_")
        self._expect("{")
        index = self._primary()
        self._expect("=")
        low = self._sum()
        self._expect("}")
        self._expect("^")
        high = self._argument()
        return Node("unknown", (index, low, high, self._product()), name)

    def _root(self) -> Node:
        degree = Node("number", value=Fraction(2))
        if self._take_token("["):
            degree = self._sum()
            self._expect("]")
        return Node("call", (self._argument(), degree), "root")

    def _function(self, name: str) -> Node:
        r"""Return the call of a known function, with the base of a logarithm and with a power, as in `\sin^2 x`."""
        base: Node | None = None
        power: Node | None = None
        for _ in range(2):  # subscript and power, in either order
            if base is None and self._take_token("_"):
                base = self._argument()
            elif power is None and self._take_token("^"):
                power = self._exponent()
        is_inverse = name in ANGLES and power is not None and power.op == "-" and power.args[0] == ONE
        args = self._arguments(name)
        if name == "log":
            args = (*args, base or Node("number", value=Fraction(10)))
        elif base is not None:
            raise UndecidedError("a subscript of a function")
        call = Node("call", args, f"arc{name}" if is_inverse else INVERSES.get(name, name))
        return call if power is None or is_inverse else Node("^", (call, power))

    def _arguments(self, name: str) -> tuple[Node, ...]:
        """Return the arguments of a function: those in brackets, else the product that follows, as one argument."""
        if self._next in ("(", "{"):
            closing = _CLOSING[self._take()]
            args = [self._sum()]
            while name in ("gcd", "lcm", "max", "min") and self._take_token(","):
                args.append(self._sum())
            self._expect(closing)
            return tuple(args)
        factors = [self._factor()]
        while self._starts_factor() and self._next.removeprefix("\\") not in FUNCTIONS:
            factors.append(self._factor(implicit=True))
        following_tokens = self._tokens[self._position : self._position + 2]
        is_divided = len(following_tokens) == 2 and following_tokens[0] == "/" and following_tokens[1].isdigit()
        if is_divided and any(map(_mentions_pi, factors)):  # the sine of \pi/3 has the whole quotient as its argument
            self._take()
            factors.append(Node("/", (ONE, self._factor())))
        return (Node("*", tuple(factors)),)


def _mentions_pi(node: Node) -> bool:
    return (node.op == "constant" and node.name == "pi") or any(map(_mentions_pi, node.args))
