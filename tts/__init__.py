"""Test-time search: spend inference compute where it helps, under one hard budget.

    import tts
    tts.solve("3 + 4 - 2", budget=400, model="toy", strategy="best_of_n(n=8) | majority").answer

Names are loaded on first use, so that importing this costs next to nothing and never imports a model library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tts.allocator.allocate import Allocator as Allocator
    from tts.backends.base import Sampling as Sampling
    from tts.backends.callable import Answer as Answer
    from tts.backends.callable import Ask as Ask
    from tts.background import Interrupted as Interrupted
    from tts.budget import Budget as Budget
    from tts.errors import BudgetExceeded as BudgetExceeded
    from tts.errors import CapabilityError as CapabilityError
    from tts.errors import ConfigError as ConfigError
    from tts.errors import EngineError as EngineError
    from tts.errors import MissingDependency as MissingDependency
    from tts.errors import PromptTooLong as PromptTooLong
    from tts.errors import TTSError as TTSError
    from tts.errors import VerifierError as VerifierError
    from tts.search.base import END as END
    from tts.search.base import STEP as STEP
    from tts.search.base import Tokens as Tokens
    from tts.search.best_of_n import BestOfN as BestOfN
    from tts.search.best_of_n import self_consistency as self_consistency
    from tts.search.registry import parse as parse
    from tts.search.selection import Best as Best
    from tts.search.selection import BestOfMajority as BestOfMajority
    from tts.search.selection import Majority as Majority
    from tts.search.selection import Weighted as Weighted
    from tts.search.single import Single as Single
    from tts.search.stopping import Never as Never
    from tts.search.stopping import Unanimous as Unanimous
    from tts.solver import Solver as Solver
    from tts.solver import asolve as asolve
    from tts.solver import close as close
    from tts.solver import solve as solve
    from tts.solver import solve_many as solve_many
    from tts.types import Candidate as Candidate
    from tts.types import Message as Message
    from tts.types import Problem as Problem
    from tts.types import Solution as Solution
    from tts.types import Trajectory as Trajectory
    from tts.types import Usage as Usage

__version__ = "0.1.0"

_HOME = {
    "tts.allocator.allocate": ("Allocator",),
    "tts.backends.base": ("Sampling",),
    "tts.backends.callable": ("Answer", "Ask"),
    "tts.background": ("Interrupted",),
    "tts.budget": ("Budget",),
    "tts.errors": (
        "BudgetExceeded", "CapabilityError", "ConfigError", "EngineError", "MissingDependency", "PromptTooLong", "TTSError",
        "VerifierError",
    ),
    "tts.search.base": ("END", "STEP", "Tokens"),
    "tts.search.best_of_n": ("BestOfN", "self_consistency"),
    "tts.search.registry": ("parse",),
    "tts.search.selection": ("Best", "BestOfMajority", "Majority", "Weighted"),
    "tts.search.single": ("Single",),
    "tts.search.stopping": ("Never", "Unanimous"),
    "tts.solver": ("Solver", "asolve", "close", "solve", "solve_many"),
    "tts.types": ("Candidate", "Message", "Problem", "Solution", "Trajectory", "Usage"),
}  # fmt: skip
_MODULE = {name: module for module, names in _HOME.items() for name in names}
__all__ = sorted([*_MODULE, "__version__"])  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'tts' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
