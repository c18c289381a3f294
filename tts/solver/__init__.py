"""From a problem and a budget to a solution.

The package has `solve` and its variants, `Solver`, and models that stay loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.solver.api import asolve as asolve
    from tts.solver.api import close as close
    from tts.solver.api import solve as solve
    from tts.solver.api import solve_many as solve_many
    from tts.solver.solver import Solver as Solver

__getattr__, __dir__, __all__ = lazy_exports(__name__)
