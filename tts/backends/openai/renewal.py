"""A second probe of a server that refuses a call which its probed capabilities promise.

The search continues with the new capabilities.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tts._core.threads import run_in_thread
from tts.backends.openai.capabilities import Capabilities
from tts.backends.openai.kept_capabilities import LOG, KeptCapabilities
from tts.errors import TTSError


class Renewal:
    """Probes a server again, once, in a thread, when it breaks what its capabilities promise.

    Args:
        root: Base url of the API, for messages.
        kept: The file of the capabilities, which is dropped; None: there is no file.
        probe: Returns new capabilities; None: there is no second probe.
        found: Called with the new capabilities, in the event loop.
    """

    def __init__(
        self,
        root: str,
        kept: KeptCapabilities | None,
        probe: Callable[[], Capabilities] | None,
        found: Callable[[Capabilities], None],
    ) -> None:
        self._root = root
        self._kept = kept
        self._probe = probe
        self._found = found
        self._task: asyncio.Task[None] | None = None  # the probe, once it has begun

    def begin(self, why: str) -> None:
        """Drop the file of capabilities, and begin the probe, unless this was done before.

        Args:
            why: The server's refusal in one line, for the log.
        """
        if self._kept is not None:
            self._kept.drop(f"{self._root} refused a call ({why})")
            self._kept = None  # so that the file is dropped once
        if self._probe is not None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._probe))

    async def wait_for_end(self, why: str) -> None:
        """Begin the probe as `begin` does, and wait for its end."""
        self.begin(why)
        if self._task is not None:
            await asyncio.shield(self._task)

    async def _run(self, probe: Callable[[], Capabilities]) -> None:
        try:
            self._found(await run_in_thread(probe))
        except TTSError as failure:
            LOG.warning("%s could not be probed again: %s", self._root, failure.cause)

    def close(self) -> None:
        """Stop waiting for the probe."""
        if self._task is not None:
            self._task.cancel()
