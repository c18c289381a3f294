"""Trials of agents as Harbor and mini-swe-agent write them, by their published models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def diff(new: str) -> str:
    return f"diff --git a/a.py b/a.py\nindex 1..2 100644\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-old\n+{new}\n"


def atif_step(number: int, message: Any, **metrics: Any) -> dict[str, Any]:
    """A turn of an agent, with a tool call and what came of it."""
    call = {"tool_call_id": f"call_{number}", "function_name": "bash", "arguments": {"command": "ls"}}
    observed = {"results": [{"source_call_id": f"call_{number}", "content": "a.py"}]}
    return {
        "step_id": number, "timestamp": "2026-01-02T03:04:05Z", "source": "agent", "message": message,
        "tool_calls": [call], "observation": observed, "metrics": {"prompt_tokens": 100, **metrics},
    }  # fmt: skip


def trial(folder: Path, name: str, reward: Any = 1.0, *, final: Any = None, log: Any = None, **result: Any) -> Path:
    """Write the folder of a trial: two turns of 30 and 40 tokens, and a reward."""
    task = result.pop("task", "dates")
    path = folder / name
    (path / "agent").mkdir(parents=True)
    steps = [
        {"step_id": 1, "source": "user", "message": "Fix it."},
        atif_step(2, "I look.", completion_tokens=30, cost_usd=0.01),
        atif_step(3, [{"type": "text", "text": f"Done by {name}."}], completion_tokens=40, cost_usd=0.02),
    ]
    agent = {"name": "terminus", "version": "2", "model_name": "qwen"}
    trajectory = {
        "schema_version": "ATIF-v1.6",
        "session_id": name,
        "agent": agent,
        "steps": steps,
        "final_metrics": final,
    }
    (path / "agent" / "trajectory.json").write_text(json.dumps(trajectory if log is None else log))
    told = {
        "id": name, "task_name": task, "trial_name": name, "trial_uri": f"file://{name}", "task_id": {"path": task},
        "task_checksum": "0", "config": {},
        "agent_info": {"name": "terminus", "version": "2", "model_info": {"name": "qwen", "provider": "own"}},
        "agent_result": {"n_input_tokens": 200, "n_cache_tokens": 0, "n_output_tokens": 99, "cost_usd": 0.5},
        "verifier_result": {"rewards": {"reward": reward}}, "exception_info": None, "started_at": "2026-01-02T03:04:05",
        **result,
    }  # fmt: skip
    (path / "result.json").write_text(json.dumps(told))
    return path


def trajectory(path: Path, submission: str | None, *, status: str = "Submitted", usd: Any = 0.25, **more: Any) -> Path:
    """Write a trajectory of two turns, of 10 and 20 tokens."""
    turns = [
        {
            "role": "assistant",
            "content": f"turn {n}",
            "extra": {"cost": 0.1, "response": {"usage": {"completion_tokens": 10 * n}}},
        }
        for n in (1, 2)
    ]
    asked = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": "Fix the dates."}]
    info = {
        "model_stats": {"instance_cost": usd, "api_calls": 2}, "config": {"agent": {}, "model": {"model_name": "qwen"}},
        "mini_version": "2.4.6", "exit_status": status, "submission": submission,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"info": info, "messages": [*asked, *turns], "trajectory_format": "mini-swe-agent-1.1", **more}
    path.write_text(json.dumps(told))
    return path
