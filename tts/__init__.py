"""Test-time search: spend inference compute where it helps, under one hard budget.

    import tts
    tts.solve("3 + 4 - 2", budget=400, model="toy", strategy="best_of_n(n=8) | majority").answer

Names are loaded on first use. `import tts` imports neither numpy nor a model library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tts._core.lazy import lazy_exports

if TYPE_CHECKING:
    from tts.allocator.allocate import Allocator as Allocator
    from tts.allocator.length_forecast import LengthForecast as LengthForecast
    from tts.backends.base import Backend as Backend
    from tts.backends.base import Caps as Caps
    from tts.backends.base import Sampling as Sampling
    from tts.backends.function import Answer as Answer
    from tts.backends.function import Ask as Ask
    from tts.budget.account import Account as Account
    from tts.budget.budget import Budget as Budget
    from tts.errors import BudgetExceeded as BudgetExceeded
    from tts.errors import CapabilityError as CapabilityError
    from tts.errors import ConfigError as ConfigError
    from tts.errors import EngineError as EngineError
    from tts.errors import MissingDependency as MissingDependency
    from tts.errors import PromptTooLong as PromptTooLong
    from tts.errors import TTSError as TTSError
    from tts.errors import VerifierError as VerifierError
    from tts.experiments import Pool as Pool
    from tts.experiments import Study as Study
    from tts.search import selections as selections
    from tts.search import stop_rules as stop_rules
    from tts.search import strategies as strategies
    from tts.search.ends import END as END
    from tts.search.ends import STEP as STEP
    from tts.search.ends import StopDecision as StopDecision
    from tts.search.ends import Stops as Stops
    from tts.search.ends import Thought as Thought
    from tts.search.ends import Tokens as Tokens
    from tts.search.needs import Needs as Needs
    from tts.search.parts import Plan as Plan
    from tts.search.parts import Selected as Selected
    from tts.search.parts import Selection as Selection
    from tts.search.parts import StopRule as StopRule
    from tts.search.parts import Strategy as Strategy
    from tts.search.parts import as_strategy as as_strategy
    from tts.search.plan import parse as parse
    from tts.search.search import Search as Search
    from tts.search.selections import Best as Best
    from tts.search.selections import BestOfMajority as BestOfMajority
    from tts.search.selections import Majority as Majority
    from tts.search.selections import Weighted as Weighted
    from tts.search.stop_rules import Never as Never
    from tts.search.stop_rules import Unanimous as Unanimous
    from tts.search.strategies import BestOfN as BestOfN
    from tts.search.strategies import Single as Single
    from tts.search.strategies import self_consistency as self_consistency
    from tts.solver import telemetry as telemetry
    from tts.solver.api import asolve as asolve
    from tts.solver.api import asolve_many as asolve_many
    from tts.solver.api import close as close
    from tts.solver.api import solve as solve
    from tts.solver.api import solve_many as solve_many
    from tts.solver.api import stream as stream
    from tts.solver.event_loop import Interrupted as Interrupted
    from tts.solver.solver import Solver as Solver
    from tts.tasks.base import Task as Task
    from tts.types import Candidate as Candidate
    from tts.types import Message as Message
    from tts.types import Problem as Problem
    from tts.types import Solution as Solution
    from tts.types import Trajectory as Trajectory
    from tts.types import Usage as Usage
    from tts.verifiers.base import StepScores as StepScores
    from tts.verifiers.base import Verifier as Verifier
    from tts_addons.agents.workspace import Workspace as Workspace
    from tts_addons.training.rollouts import rollouts as rollouts
    from tts_addons.training.step_labels import label_steps as label_steps
    from tts_addons.training.trl_rollouts import TrlRollouts as TrlRollouts
    from tts_addons.training.trl_rollouts import rollout_reward as rollout_reward

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = lazy_exports(__name__)
