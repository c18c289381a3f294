"""The errors that callers may get, each with its cause and, if there is one, a hint how to correct it.

    TTSError                      every error of this package; `hint` states the correction
      ConfigError                 the caller's mistake, found before anything is spent (also a ValueError)
        CapabilityError           the backend cannot do what the strategy or verifier needs
        PromptTooLong             the prompt leaves no room in the model's context
      BudgetExceeded              a part of this package spent, or tried to spend, more than its lease
      EngineError                 a backend failed in the middle of a run
        KVBudgetError             one path needs more memory for keys and values than there is
      VerifierError               a verifier failed, or broke its own contract
      MissingDependency           an optional package is not installed (also an ImportError)

`SearchEnded` (in `tts.search.ends`) is not listed: it is not a failure, and only the solver catches it.
"""

from __future__ import annotations

import difflib
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tts._core.display import one_visible_line

TROUBLES = "docs/how-to/troubleshooting.md"  # in the repository: what may go wrong, by what is seen


class TTSError(Exception):
    """The base of every error that this package raises on purpose.

    Its text is one line: line ends of texts that others wrote become spaces, and characters that are not printed become
    escapes.

    Args:
        cause: One line: argument, value and rule.
        hint: What to do about it, or "".

    Attributes:
        partial: The `Solution` so far, with what was spent, if `solve` or `asolve` raises this in the middle of a run;
            otherwise None.

    Example:
        >>> import tts
        >>> try:
        ...     tts.solve("3 + 4 - 2", 400, model="toy", strategy="beem")
        ... except tts.TTSError as error:
        ...     print(error.hint)
        did you mean beam?
    """

    partial: Any = None

    def __init__(self, cause: str, *, hint: str = "") -> None:
        self.cause, self.hint = one_visible_line(cause), one_visible_line(hint)
        super().__init__(self.cause)

    def __str__(self) -> str:
        return f"{self.cause} (hint: {self.hint})" if self.hint else self.cause


class ConfigError(TTSError, ValueError):
    """A value that the caller gave is not valid; nothing has been spent.

    Example:
        >>> import tts
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy="beem")
        Traceback (most recent call last):
          ...
        tts.errors.ConfigError: strategy is 'beem', but no strategy has that name (hint: did you mean beam?)
    """


class CapabilityError(ConfigError):
    """The chosen backend lacks a capability that is needed; the hint names those that have it.

    Example:
        >>> import tts
        >>> tts.solve("3 + 4 - 2", 400, model="toy", strategy="budget_forcing(n=2)")
        Traceback (most recent call last):
          ...
        tts.errors.CapabilityError: the strategy budget_forcing(n=2) needs the capability 'thoughts', which the backend
        'toy' lacks (hint: the model toy-thinking has thoughts; the nearest strategy that can run here is best_of_n)
    """


class PromptTooLong(ConfigError):
    """The rendered prompt does not fit the model's context.

    Example:
        >>> import tts
        >>> from tts.backends.function import FunctionBackend
        >>> class Short(FunctionBackend):
        ...     context = 3
        >>> tts.solve("What is 3 + 4?", 100, backend=Short(lambda ask: "7"), task="text", strategy="single")
        Traceback (most recent call last):
          ...
        tts.errors.PromptTooLong: the prompt has 5 tokens, but the model's context (on the backend 'callable') holds 3
        (hint: shorten the problem, or choose a model with a longer context)
    """


class BudgetExceeded(TTSError):
    """More was spent than had been granted: a defect of a backend or verifier, never a normal end.

    Example:
        >>> import tts
        >>> raise tts.BudgetExceeded("verifier 'mine' computed 30 tokens, but was granted 20")
        Traceback (most recent call last):
          ...
        tts.errors.BudgetExceeded: verifier 'mine' computed 30 tokens, but was granted 20
    """


class EngineError(TTSError):
    """A backend failed while it was computing.

    Attributes:
        kind: The word by which `Solution.failures` counts it, if rows or scores were lost.
        replies: The replies to the other items of the failed call, whose cost is booked.
        retry_s: Seconds after which the model's server asked to be called again; 0: it named none.

    Example:
        >>> import tts
        >>> raise tts.EngineError("the server closed the connection", kind="network")
        Traceback (most recent call last):
          ...
        tts.errors.EngineError: the server closed the connection
    """

    replies: Sequence[Any] = ()

    def __init__(self, cause: str, *, hint: str = "", kind: str = "", retry_s: float = 0.0) -> None:
        super().__init__(cause, hint=hint)
        self.kind = kind or type(self).__name__
        self.retry_s = retry_s


class KVBudgetError(EngineError):
    """The keys and values of a single path do not fit the memory set aside for them."""


class VerifierError(TTSError):
    """A verifier failed or returned what its contract forbids.

    Example:
        >>> import tts
        >>> def broken(problem, text):
        ...     raise ValueError("no score")
        >>> tts.solve("3 + 4 - 2", 400, model="toy", verifier=broken, strategy="best_of_n(n=2) | best")
        Traceback (most recent call last):
          ...
        tts.errors.VerifierError: the verifier 'main' failed: ValueError: no score
    """


class MissingDependency(TTSError, ImportError):
    """An optional package is missing; the hint is the command that installs it.

    Example:
        >>> from tts.errors import missing_extra
        >>> raise missing_extra("matplotlib", "experiments", "a figure")
        Traceback (most recent call last):
          ...
        tts.errors.MissingDependency: a figure needs the optional dependency matplotlib, which is not installed (hint:
        pip install 'test-time-search[experiments]')
    """


def missing_extra(package: str, extra: str, needed_by: str) -> MissingDependency:
    """Return the error for a missing optional package, with the command that installs it."""
    return MissingDependency(
        f"{needed_by} needs the optional dependency {package}, which is not installed",
        hint=f"pip install 'test-time-search[{extra}]'{_CPU_BUILD if package == 'torch' else ''}",
    )


_CPU_BUILD = "; without a GPU install torch's CPU build first, 0.8 GB in place of 6 (docs/how-to/install.md)"


@contextmanager
def require_extra(package: str, extra: str, needed_by: str) -> Generator[None]:
    """Raise `missing_extra` where a block imports a package that is not installed.

    Args:
        package: The package's name for pip; "": the name of the module that is missing.
        extra: The extra that installs the package.
        needed_by: What needs the package, in the message.
    """
    try:
        yield
    except ModuleNotFoundError as failure:
        if str(failure.name).startswith("tts"):
            raise
        raise missing_extra(package or str(failure.name), extra, needed_by) from failure


_OTHER_WORDS: Final = {  # words of other programs, and what this library calls them
    **dict.fromkeys(("base_url", "api_base", "endpoint"), ("url",)),
    **dict.fromkeys(("dollar", "dollars", "cost"), ("usd",)),
    **dict.fromkeys(("vote", "voting", "majority_vote", "majority_voting"), ("majority", "self_consistency")),
}


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for an unknown name, with the nearest known names."""
    names = sorted(known)
    near = nearest_names(name, names)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
    if name.lower().replace("-", "_") in ("api_key", "apikey") and "model" not in near:
        hint = "keys are no settings: set the environment variable TTS_API_KEY, or name another by key_variable"
    return ConfigError(f"{kind} is {quote(name)}, but no {kind} has that name", hint=hint)


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three known names that a name may have been meant as, the nearest first."""
    names, written = list(known), name[:200].lower().replace("-", "_")
    meant = [other for other in _OTHER_WORDS.get(written, ()) if other in names]
    return meant or difflib.get_close_matches(name[:200], names, n=3) or difflib.get_close_matches(written, names, n=3)


def quote(value: Any) -> str:
    """Return a value's text for a message: its `repr`, on one line and shortened if necessary."""
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # a number of more than 4300 digits, or a value that is nested too deeply
        return "too long to write"
    return text if len(text) <= 80 else f"{text[:79]}…"
