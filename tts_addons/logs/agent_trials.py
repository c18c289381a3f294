"""Reads recorded trials of agents: Harbor's folders of ATIF trajectories, and files of mini-swe-agent.

| form | a problem | a sample | verdict | tokens and dollars |
|---|---|---|---|---|
| ATIF | `task_name` | a folder with `result.json`, and `agent/trajectory.json` | the reward | of the whole, else sums over steps |
| mini-swe-agent | `instance_id`, else its first message | a file `….traj.json` | none | `usage` of each response; `instance_cost` |

A step is a turn of the agent; the number of steps is reported. The text of a trial is the agent's last message, followed
by the submitted patch, if any. Prompts of trials with an id are not stored, as agents write their surroundings into
prompts.

A reward of 0 or 1 is the verdict; any other reward is the score of "main". Of several rewards, `reward` counts, or
else the first. The other rewards are scores by their names, except for those named like costs, lengths and times. A
trial with a reward counts, even without a trajectory or a message; its name is then its answer. Harbor's trials without
a reward that failed are left out, and counted.

Sources: the models of ATIF 1.0 to 1.7 and of a trial's result in Harbor; the files that mini-swe-agent 1 and 2 save.
"""  # noqa: E501

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from tts._common.characters import join_surrogates
from tts.errors import ConfigError, quote
from tts.experiments.datasets.rows import BadRow
from tts.experiments.datasets.unpacking import read_bounded
from tts.tasks.patch import format_turn
from tts_addons.logs.fields import SampleRow, dollars, text_in, whole_number, without_costs
from tts_addons.logs.source import Source, SourceFacts, place_errors

_ATIF: Final = "ATIF-v1."
_MINI: Final = "mini-swe-agent-1"
_LATE: Final = "AgentTimeoutError"
_SUBMITTED: Final = "Submitted"
_PATCH: Final = "diff --git "


def is_trajectory(file: Path) -> bool:
    """Return whether a file has the name of a trajectory of mini-swe-agent."""
    return file.name.endswith(".traj.json")


def read_atif(path: Path, source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
    """Yield the trials in a folder of Harbor: the folder of a trial, of a job, or of several jobs.

    Args:
        path: The folder, or the `result.json` of a trial.
        source: The options of the import, which are not used.
        facts: The collector of facts that the trials state.

    Raises:
        ConfigError: There is no trial, or a trial has another form.
    """
    del source
    facts.tasks.add("text")
    trials = list(_trials(path if path.is_dir() else path.parent))
    if not trials:
        raise ConfigError(
            f"{path}: it has no trial of Harbor, a folder with result.json", hint="name the folder of a trial or a job"
        )
    for file, result in sorted(trials, key=lambda trial: str(trial[1].get("started_at") or "")):
        with place_errors(str(file)):
            row = _trial(file, result, facts)
        if row is None:
            facts.notes["trials failed, and are left out"] += 1
        else:
            yield row
    facts.add_meanings(
        problem="task_name", sample="trial_name", text="steps", correct="rewards", tokens="metrics", usd="cost_usd"
    )


def read_mini_swe_agent(path: Path, source: Source, facts: SourceFacts) -> Iterator[SampleRow]:
    """Yield the trajectories of mini-swe-agent in a folder, or the trajectory of a file.

    Args:
        path: The folder or the file.
        source: The options of the import, which are not used.
        facts: The collector of facts that the trajectories state.

    Raises:
        ConfigError: There is no trajectory, or a trajectory has another form.
    """
    del source
    files = sorted(file for file in path.rglob("*.json") if is_trajectory(file)) if path.is_dir() else [path]
    if not files:
        raise ConfigError(
            f"{path}: it has no trajectory of mini-swe-agent, a file ….traj.json", hint="name the folder of its output"
        )
    for file in files:
        with place_errors(str(file)):
            yield _mini_trajectory(file, _read(file), facts)
    facts.add_meanings(problem="instance_id", text="submission", tokens="usage", usd="instance_cost")


def _read(file: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file.

    Raises:
        ConfigError: The file has no JSON object, or is too large.
    """
    try:
        with file.open("rb") as stream:
            value = json.loads(read_bounded(str(file), stream))
    except (ValueError, RecursionError) as failure:
        if isinstance(failure, ConfigError):
            raise
        raise ConfigError(f"{file}: it is no JSON: {failure}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: it is no JSON object, but {quote(value)}")
    return cast("dict[str, Any]", value)


def _trials(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the file and result of each trial in a folder. Folders within a trial are not searched."""
    file = folder / "result.json"
    result = _read(file) if file.is_file() else {}
    if "trial_name" in result:
        yield file, result
        return
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and not inner.is_symlink():
            yield from _trials(inner)


def _trial(file: Path, result: Mapping[str, Any], facts: SourceFacts) -> SampleRow | None:
    """Return a trial of Harbor; None: the trial failed before the agent or the tests came to an end.

    Args:
        file: The `result.json` of the trial.
        result: The content of this file.
        facts: The collector of facts that the trial states.

    Raises:
        ConfigError, BadRow: a value of the trial has another form.
    """
    exception = _mapping(result, "exception_info")
    rewards = _rewards(_mapping(result, "verifier_result"), facts)
    log = file.parent / "agent" / "trajectory.json"
    if not rewards and (exception or not log.is_file()):
        return None
    if not log.is_file():
        facts.notes["trials have no agent/trajectory.json, and count by their reward"] += 1
    trajectory = _read(log) if log.is_file() else {"schema_version": _ATIF, "steps": []}
    with place_errors(str(log)):
        version = trajectory.get("schema_version")
        if not (isinstance(version, str) and version.startswith(_ATIF)):
            raise BadRow(f"its schema_version is {quote(version)}, but must begin with {_ATIF}")
        steps = _mappings(trajectory, "steps")
        turns = [step for step in steps if step.get("source") == "agent"]
        turn_metrics = [_mapping(turn, "metrics") for turn in turns]
        final_metrics, agent_result = _mapping(trajectory, "final_metrics"), _mapping(result, "agent_result")
        tokens = final_metrics.get("total_completion_tokens")
        if tokens is None:
            tokens = _sum_known([metrics.get("completion_tokens") for metrics in turn_metrics])
            tokens = agent_result.get("n_output_tokens") if tokens is None else tokens
        cost = final_metrics.get("total_cost_usd")
        if cost is None:
            cost = _sum_known([metrics.get("cost_usd") for metrics in turn_metrics])
            cost = agent_result.get("cost_usd") if cost is None else cost
        agents = (_mapping(_mapping(result, "config"), "agent"), _mapping(trajectory, "agent"))
        agent = next((agent for agent in agents if agent.get("name")), {})
        messages = [_plain(turn.get("message")) for turn in turns]
    model = "/".join(str(agent[name]) for name in ("name", "model_name") if agent.get(name))
    facts.models.update({model or "recorded": None} if model or turns else {})
    text = _last_text(messages)
    facts.notes["steps of agents"] += len(turns)
    scores = dict(rewards)
    counting_reward: float | None = None
    if scores:
        counting_name, *_ = scores
        counting_reward = scores.pop(counting_name)
    is_verdict = counting_reward in (0.0, 1.0)
    if counting_reward is not None and not is_verdict:
        scores["main"] = counting_reward
    return SampleRow(
        place=str(file),
        problem=_name(result, "task_name"),
        sample=_name(result, "trial_name"),
        text=text or None,
        answer=None if text else _name(result, "trial_name"),  # the state that the agent left has no text
        correct=bool(counting_reward) if is_verdict else None,
        tokens=None if tokens is None else whole_number(tokens, "count of completion tokens"),
        usd=dollars(cost, "cost_usd"),
        scores=scores,
        truncated=exception.get("exception_type") == _LATE,
        model=model or None,
    )


def _last_text(messages: Sequence[str]) -> str:
    """Return the last message that is not blank; "": all messages are blank."""
    texts = [message for message in messages if message.strip()]
    return texts[-1] if texts else ""


def _rewards(verifier_result: Mapping[str, Any], facts: SourceFacts) -> dict[str, float]:
    """Return the rewards of a trial by their names, beginning with the reward that counts."""
    given_rewards = without_costs(_mapping(verifier_result, "rewards"), facts)
    rewards = {name: reward for name, reward in given_rewards.items() if reward is not None}
    if not rewards and verifier_result.get("reward") is not None:
        rewards = {"reward": verifier_result["reward"]}
    for name, reward in rewards.items():
        if type(reward) not in (bool, int, float) or not abs(reward) < float("inf"):
            raise BadRow(f"its reward {name!r} is {quote(reward)}, but must be a finite number")
    return {name: float(rewards[name]) for name in sorted(rewards, key=lambda name: name != "reward")}


def _sum_known(values: Sequence[Any]) -> Any:
    """Return the sum of a value of each turn; None: there are no turns, or a turn lacks the value."""
    is_known = bool(values) and all(type(value) in (int, float) for value in values)
    return sum(values) if is_known else None


def _mini_trajectory(file: Path, log: Mapping[str, Any], facts: SourceFacts) -> SampleRow:
    """Return a trajectory of mini-swe-agent as a sample.

    Args:
        file: The file.
        log: The content of the file.
        facts: The collector of facts that the trajectory states.

    Raises:
        BadRow: the trajectory has another form, or names no problem.
    """
    version = log.get("trajectory_format")
    if not (isinstance(version, str) and version.startswith(_MINI)):
        raise BadRow(f"its trajectory_format is {quote(version)}, but must begin with {_MINI}")
    info, messages = _mapping(log, "info"), _mappings(log, "messages")
    submission = info.get("submission") or ""
    if not isinstance(submission, str):
        raise BadRow(f"its submission is {quote(submission)}, but must be a text")
    turns = [
        message for message in messages if message.get("role") == "assistant" or message.get("object") == "response"
    ]
    user_messages = [_plain(message.get("content")) for message in messages if message.get("role") == "user"]
    prompt = user_messages[0] if user_messages else ""
    instance = log.get("instance_id") or info.get("instance_id")
    if instance is None and not prompt:
        raise BadRow("it has neither an instance_id nor a message of the user, so that its problem is not known")
    is_patch = submission.lstrip().startswith(_PATCH)
    if submission.strip():
        facts.tasks.add("patch" if is_patch else "text")
    text = submission
    if is_patch:
        last_message = _last_text([_plain(turn.get("content")) for turn in turns])
        text = format_turn(last_message, submission.lstrip(), is_last=True)
    model = _mapping(_mapping(info, "config"), "model").get("model_name")
    facts.models[str(model or "mini-swe-agent")] = None
    facts.notes["steps of agents"] += len(turns)
    exit_status = info.get("exit_status")
    return SampleRow(
        place=str(file),
        problem=None if instance is None else join_surrogates(str(instance)),
        prompt=prompt if instance is None else None,
        text=text,
        tokens=_mini_tokens(turns),
        usd=dollars(_mapping(info, "model_stats").get("instance_cost"), "instance_cost"),
        truncated=exit_status is not None and exit_status != _SUBMITTED,
    )


def _mini_tokens(turns: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the sum of the responses' tokens; None: a response states no tokens."""
    counts: list[int | None] = []
    for turn in turns:
        response = _mapping(_mapping(turn, "extra"), "response")
        usage = _mapping(response, "usage") or _mapping(turn, "usage")
        counts.append(whole_number(usage.get("completion_tokens", usage.get("output_tokens")), "usage"))
    return _sum_known(counts)


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a member that is an object; an empty object where the member is null or missing."""
    member = value.get(name)
    if member is not None and not isinstance(member, dict):
        raise BadRow(f"its {name} is {quote(member)}, but must be an object")
    return cast("dict[str, Any]", member or {})


def _mappings(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return a member that is a list of objects."""
    members = value.get(name)
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in cast("list[Any]", members)):
        raise BadRow(f"its {name} is {quote(members)}, but must be a list of objects")
    return cast("list[Mapping[str, Any]]", members)


def _name(value: Mapping[str, Any], name: str) -> str:
    """Return a member that is a text and not blank."""
    text = value.get(name)
    if not isinstance(text, str) or not text.strip():
        raise BadRow(f"its {name} is {quote(text)}, but must be a text")
    return join_surrogates(text)


def _plain(content: Any) -> str:
    """Return the text of a message, whose content may be a list of parts."""
    text = text_in(content)
    return text if isinstance(text, str) else ""
