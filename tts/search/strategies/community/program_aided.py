"""Program-aided reasoning: Python blocks of a solution are run in a sandbox.

The output of a block goes on in the solution's text.

A path is written up to the end of a fenced block of Python. The program runs, and its output is appended as forced
text, after which the model writes on.

Source: Gao et al., "PAL: Program-aided Language Models" (2211.10435), and Gou et al., "ToRA" (2309.17452), whose
outputs stand in blocks marked `output`; both from memory.

Differs:
- The answer is that of the text after the output, as in ToRA. In PAL it is the output itself.
- The task's prompt "program" asks for programs in one sentence, in place of worked examples.
- Each block runs by itself. A program that fails shows the last line of its failure.
- Several solutions are written side by side, and vote. The programs of a wave run beside each other, each different one
  once.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tts.checks import Count, check_parameters
from tts.search.ends import END, Stops
from tts.search.needs import Needs
from tts.search.search import Search
from tts.search.strategies._common.side_by_side import SideBySide
from tts.threads import run_in_thread
from tts.types import Candidate, Trajectory
from tts.verifiers.code.sandbox import ProgramOutcome
from tts.verifiers.code.verifier import Code

_BLOCK = re.compile(
    r"^[^\S\n]*```(?:python3?|py)\b[^\n]*\n(.*?)^[^\S\n]*```[^\S\n]*(?:\n|\Z)", re.DOTALL | re.MULTILINE | re.IGNORECASE
)
_END = Stops(("\n```\n",))
_NOTHING = "assert True"  # the tests of a program of which only the output is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAided(SideBySide):
    r"""Solutions whose Python blocks are run, and that go on after the output.

    Programs run in the sandbox of the verifier `code`. What is random in them is random here too: such a run is not
    reproducible.

    Args:
        programs: Most blocks of a path that are run, at least 1.
        seconds: The seconds of a program, above 0; no more than the budget has left.
        characters: Most of an output that are shown, at least 1.
        sandbox: "landlock", "docker", or "none" for programs that are trusted.
        n: As in `SideBySide`.
        temperature: As in `SideBySide`.
        max_steps: As in `SideBySide`; blocks and outputs are steps.

    Raises:
        CapabilityError: the sandbox is not available here; nothing is spent.

    Cost: n solutions and a second prompt; outputs are input tokens. A path that ended with its block is read again.
    Random: none of its own.

    Example:
        >>> import tts
        >>> program = "```python\nprint(3 + 4)\n```\n"
        >>> model = lambda ask: "The answer is 7." if ask.text else program
        >>> aided = "program_aided(n=2, sandbox='none')"
        >>> found = tts.solve("What is 3 + 4?", tts.Budget(samples=4), backend=model, task="math", strategy=aided)
        >>> found.answer, found.usage.samples
        ('7', 2)
    """

    registered_as = "program_aided"
    programs: Count = 4
    seconds: float = 10.0
    characters: Count = 1000
    sandbox: str = "landlock"

    def __post_init__(self) -> None:
        check_parameters(self)
        self._code(self.seconds)

    def needs(self) -> Needs:
        """Return the needs: texts appended to programs, the prompt, and a sandbox."""
        return Needs(
            capabilities=("steps", "extend"), prompts=("program",), machine=self._code(self.seconds).check_sandbox
        )

    def _code(self, seconds: float) -> Code:
        return Code(tests=_NOTHING, sandbox=self.sandbox, seconds=seconds)

    async def run(self, search: Search) -> Sequence[Candidate]:
        """Write up to the end of a block, and run its program."""
        root = await search.open("program")
        shown: dict[str, str] = {}  # the output of each program

        async def step(going: Sequence[Trajectory]) -> list[Trajectory | None]:
            made: list[Trajectory | None] = [None] * len(going)
            last = {
                i
                for i, t in enumerate(going)
                if t.depth + 1 >= self.max_steps or len(_BLOCK.findall(t.response)) >= self.programs
            }
            for until, chosen in ((_END, sorted({*range(len(going))} - last)), (END, sorted(last))):
                rows = (
                    await search.expand([going[i] for i in chosen], 1, until, temperature=self.temperature)
                    if chosen
                    else []
                )
                programs = [self._program(of[0]) if of else None for of in rows]
                await self._run(search, programs, shown)
                for i, of, program in zip(chosen, rows, programs, strict=True):
                    made[i] = (
                        await _append_output(search, of[0], None if program is None else shown.get(program))
                        if of
                        else None
                    )
            return made

        return await self.waves(search, step, root=root)

    def _program(self, t: Trajectory) -> str | None:
        """Return the program that a path ends with; None where it ends with none, or with too many."""
        text = t.response
        blocks = list(_BLOCK.finditer(text))
        ended = bool(blocks) and not text[blocks[-1].end() :].strip()
        return blocks[-1][1] if ended and len(blocks) <= self.programs and t.status in ("active", "finished") else None

    async def _run(self, search: Search, programs: Sequence[str | None], shown: dict[str, str]) -> None:
        """Run those that were not run before, side by side, and note what they show; nothing of those that the time
        does not reach.
        """
        room = asyncio.Semaphore(_most_at_once(self._code(self.seconds)))

        async def one(program: str) -> None:
            async with room:
                left = search.left.get("seconds", self.seconds)
                if left <= 0:
                    return
                result = await run_in_thread(self._code(min(self.seconds, left)).outcome, program, _NOTHING)
            failed = "" if result.outcome is ProgramOutcome.PASSED else result.detail or result.outcome.value
            told = (part.strip()[: self.characters].replace("```", "'''") for part in (result.output, failed))
            shown[program] = "\n".join(filter(None, told))

        await asyncio.gather(
            *(one(program) for program in dict.fromkeys(programs) if program is not None and program not in shown)
        )


def _most_at_once(code: Code) -> int:
    """Return how many programs run at once: one a core, so that none is slower than alone, and no more than processes
    of a program.
    """
    return min(os.cpu_count() or 1, code.processes)


async def _append_output(search: Search, t: Trajectory, told: str | None) -> Trajectory:
    """Return a path after the output of its program; as it is where that was not run."""
    if told is None:
        return t
    newline = "" if t.response.endswith("\n") else "\n"
    (on,) = await search.extend([t], f"{newline}```output\n{told}\n```\n")
    return on
