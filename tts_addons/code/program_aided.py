"""Program-aided reasoning: Python blocks of a solution are run in a sandbox.

A path is written up to the end of a fenced block of Python. The program runs, and its output is appended to the path
as forced text. Then the model writes on.

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

from tts._core.threads import run_in_thread
from tts.checks import Count, check_parameters
from tts.search.ends import END, Stops
from tts.search.needs import Needs
from tts.search.search import Search
from tts.search.strategies._common.side_by_side import SideBySide
from tts.types import Candidate, Trajectory
from tts_addons.code.sandbox import ProgramOutcome
from tts_addons.code.verifier import Code

_BLOCK = re.compile(
    r"^[^\S\n]*```(?:python3?|py)\b[^\n]*\n(.*?)^[^\S\n]*```[^\S\n]*(?:\n|\Z)", re.DOTALL | re.MULTILINE | re.IGNORECASE
)
_END = Stops(("\n```\n",))
_NOTHING = "assert True"  # the tests of a program whose output alone is wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAided(SideBySide):
    r"""Solutions whose Python blocks are run, and that go on after the output.

    Programs run in the sandbox of the verifier `code`. A run with programs that draw random numbers is not
    reproducible.

    Args:
        programs: The most blocks of a path that are run, at least 1.
        seconds: The most seconds of a program, above 0. The rest of the budget's time is a limit too.
        characters: The most characters of an output that are shown, at least 1.
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
        outputs: dict[str, str] = {}  # by program

        async def step(paths: Sequence[Trajectory]) -> list[Trajectory | None]:
            longer_paths: list[Trajectory | None] = [None] * len(paths)
            at_last_step = [
                t.depth + 1 >= self.max_steps or len(_BLOCK.findall(t.response)) >= self.programs for t in paths
            ]
            for until, is_last in ((_END, False), (END, True)):
                places = [i for i, last in enumerate(at_last_step) if last is is_last]
                if not places:
                    continue
                families = await search.expand([paths[i] for i in places], 1, until, temperature=self.temperature)
                programs = [self._program(children[0]) if children else None for children in families]
                await self._run(search, programs, outputs)
                for i, children, program in zip(places, families, programs, strict=True):
                    if children:
                        output = None if program is None else outputs.get(program)
                        longer_paths[i] = await _append_output(search, children[0], output)
            return longer_paths

        return await self.waves(search, step, root=root)

    def _program(self, t: Trajectory) -> str | None:
        """Return the program at the end of a path; None without a program, or if the path has too many blocks."""
        text = t.response
        blocks = list(_BLOCK.finditer(text))
        ends_with_block = bool(blocks) and not text[blocks[-1].end() :].strip()
        if not ends_with_block or len(blocks) > self.programs or t.status not in ("active", "finished"):
            return None
        return blocks[-1][1]

    async def _run(self, search: Search, programs: Sequence[str | None], outputs: dict[str, str]) -> None:
        """Run the new programs side by side, and note their outputs; none for programs without time left."""
        slots = asyncio.Semaphore(min(os.cpu_count() or 1, self._code(self.seconds).processes))  # one program a core

        async def run_program(program: str) -> None:
            async with slots:
                seconds = search.left.get("seconds", self.seconds)
                if seconds <= 0:
                    return
                result = await run_in_thread(self._code(min(self.seconds, seconds)).outcome, program, _NOTHING)
            has_passed = result.outcome is ProgramOutcome.PASSED
            failure = "" if has_passed else result.detail or result.outcome.value
            parts = [part.strip()[: self.characters].replace("```", "'''") for part in (result.output, failure)]
            outputs[program] = "\n".join(part for part in parts if part)

        distinct_programs = [program for program in dict.fromkeys(programs) if program is not None]
        await asyncio.gather(*(run_program(program) for program in distinct_programs if program not in outputs))


async def _append_output(search: Search, t: Trajectory, output: str | None) -> Trajectory:
    """Return a path with the output of its program appended; as it is if the program was not run."""
    if output is None:
        return t
    newline = "" if t.response.endswith("\n") else "\n"
    (extended,) = await search.extend([t], f"{newline}```output\n{output}\n```\n")
    return extended
