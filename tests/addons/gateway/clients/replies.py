"""What the pages of clients call `qwen`: a script that calls the tools of its client and answers with their results."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.addons.gateway.wire.upstream import call

Body = dict[str, Any]
Message = dict[str, Any]
DONE = {"content": "The sum is right now."}


def read(body: Body) -> Message:
    """Read the file of the page in the folder of the agent, which its prompt names."""
    return call("Read", {"file_path": sum_file(body)})


def edit(body: Body) -> Message:
    """Edit that file."""
    return call("Edit", {"file_path": sum_file(body), "old_string": "a - b", "new_string": "a + b"}, 1)


def sum_file(body: Body) -> str:
    """Return the path of the file that coding agents are asked to mend."""
    found = re.search(r"orking directory: ([^\s\\]+)", str(body["messages"]))
    assert found is not None
    return f"{found[1]}/sum.py"


def product(body: Body) -> Message:
    """Answer with what the last tool returned."""
    said = re.findall(r"\d+", str(body["messages"][-1]["content"]))
    return {"content": f"17 times 23 is {said[-1]}."}


# by a tool that the client has: the messages one after another
Step = Message | Callable[[Body], Message]
STEPS: dict[str, list[Step]] = {
    "Edit": [read, edit, DONE],
    "exec_command": [call("exec_command", {"cmd": "sed -i 's/a - b/a + b/' sum.py"}), DONE],
    "final_answer": [call("multiply", {"a": 17, "b": 23}), call("final_answer", {"answer": "391"}, 1)],
    "multiply": [call("multiply", {"a": 17, "b": 23}), product],
    "City": [call("City", {"name": "Paris", "country": "France"})],
}


def reply(body: Body) -> Message:
    """Return the message that answers a request for a chat."""
    tools = {tool["function"]["name"] for tool in body.get("tools", ())}
    steps: list[Step] = next((steps for name, steps in STEPS.items() if name in tools), [{"content": "Fix the sum"}])
    step = steps[min(len(steps) - 1, sum(turn["role"] == "assistant" for turn in body["messages"]))]
    return step(body) if callable(step) else step
