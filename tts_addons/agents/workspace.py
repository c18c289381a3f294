"""`tts.Workspace`: runs of an agent in forks of a repository.

The agent's calls of a model are paid from the budget of the search.
"""

from __future__ import annotations

from pathlib import Path

from tts.errors import ConfigError, missing_extra
from tts.solver.model_cache import Model
from tts_addons.agents.agents import Agent, find_agent
from tts_addons.agents.backend import AgentRuns
from tts_addons.agents.leases import Door


class Workspace(AgentRuns):
    r"""Runs of an agent in forks of a repository, which is only read.

    A row is a run, its text ends in a patch, and a handle is a commit. A fork is a folder with the files of a state.
    When the agent's run ends, the files are the next state. The repository's own `.git`, files and settings stay as
    they are. The agent runs as you do: a fork is no sandbox.

    With a model, each row gets a key of a gateway in this process, for which the search's budget pays. When a wave
    begins, the rest of the budget is divided by the rows that are still to run. A call that this share does not pay is
    refused, and the row ends as truncated, with what it has. After the row its key is of no use.

    Close it, or use it in a `with` block, to remove its states. Otherwise they are removed when the interpreter ends.

    Args:
        repo: A folder in a repository of git, or a plain folder. Agents and tests start in this folder of a fork.
        agent: "toy"; the name of a harness, such as "mini-swe-agent"; the path of a record of one, a YAML file; or
            "command:PATH" for a program (see `tts_addons.agents.agents`).
        model: The model that the agent calls: a name, a record, a backend or a function. None: it calls none, or one of
            its own.
        url: The server that runs the model; None: the model's own.
        revision: The revision that the agents begin from. A plain folder has only `HEAD`.
        include_changes: Whether changed tracked files belong to what they begin from. Otherwise a repository that has
            some is refused.
        jobs: The most agents at once, at least 1. Without a model, results do not depend on it.
        run_seconds: The most seconds of a run, at least 0.1. Then the agent is stopped, and the row ends as truncated,
            with what it has. None: only the budget limits them.

    Attributes:
        agent: The agent.
        store: The states.

    Raises:
        ConfigError: There is no such agent or model, or the repository cannot be forked; the error says why.

    Example:
        >>> import pathlib, tempfile, tts
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "add.py").write_text("def add(a, b):\n    return a - b\n")
        >>> with tts.Workspace(folder, agent="toy") as workspace:
        ...     found = tts.solve(
        ...         "Fix add.py", tts.Budget(samples=2), backend=workspace, strategy="best_of_n(n=2) | majority"
        ...     )
        >>> print(found.answer.splitlines()[-1])
        +    return a + b
    """

    def __init__(
        self,
        repo: str | Path = ".",
        *,
        agent: str | Agent,
        model: Model | None = None,
        url: str | None = None,
        revision: str = "HEAD",
        include_changes: bool = False,
        jobs: int = 4,
        run_seconds: float | None = None,
    ) -> None:
        harness = find_agent(agent)
        door = _door(harness, model, url)
        super().__init__(
            repo,
            agent=harness,
            revision=revision,
            include_changes=include_changes,
            jobs=jobs,
            run_seconds=run_seconds,
            door=door,
        )


def _door(agent: Agent, model: Model | None, url: str | None) -> Door | None:
    """Return the door through which an agent calls a model; None: the agent calls no model.

    Raises:
        ConfigError: The agent needs a model that is not given, or calls none; or the model cannot be loaded.
        MissingDependency: The extra serve is not installed.
    """
    if model is None and url is None:
        if agent.model == "needs":
            raise ConfigError(
                f"agent is {agent.name!r}, which calls a model, but there is none",
                hint="give model=, and url= for a server",
            )
        return None
    if agent.model == "none":
        raise ConfigError(
            f"model is given, but the agent {agent.name!r} calls no model of the workspace",
            hint="leave model and url out",
        )
    try:
        from tts_addons.agents.door import ModelDoor
    except ModuleNotFoundError as missing:
        raise missing_extra(missing.name or "starlette", "serve", "an agent with a model") from None
    return ModelDoor("" if model is None else model, url)
