"""vLLM's engine in an event loop and a thread of its own, for callers in any event loop.

vLLM computes in a separate process, which imports the main module again. So a script that uses vLLM needs the guard
`if __name__ == "__main__":`.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, suppress
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tts.errors import ConfigError, EngineError, missing_extra

T = TypeVar("T")
_ENDS_S = 20.0  # seconds that closing waits for vLLM's process
STARTER = "TTS_VLLM_STARTER"  # the variable with the id of the process that started vLLM
_SETTINGS = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of a process with threads may never come back
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # the other runner has no logits processors
}


def import_module(module: str) -> Any:
    """Return a module of vLLM, after setting vLLM's environment variables that are not set.

    Raises:
        MissingDependency: vLLM or one of its dependencies is not installed.
        ConfigError: vLLM is installed, but cannot be imported.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as failure:
        raise missing_extra(failure.name or "vllm", "vllm", "the vllm backend") from failure
    except (ImportError, OSError, RuntimeError) as failure:
        raise ConfigError(
            f"vLLM is installed, but cannot be imported: {_first_line(failure)}",
            hint="its build, torch and torchvision must be of versions that match; remove torchvision where it is not "
            "needed",
        ) from failure


class VLLMEngine:
    """A model in vLLM.

    Args:
        arguments: The arguments of vLLM's `AsyncEngineArgs`.
        lora: The folder of an adapter for every request; None: none.

    Attributes:
        context: Most tokens of prompt and path.
        dtype: The dtype of the weights.
        itemsize: The bytes of a weight.
        version: The version of vLLM.

    Raises:
        MissingDependency: vLLM is not installed.
        ConfigError: vLLM does not start with these arguments.
    """

    def __init__(self, arguments: Mapping[str, Any], lora: str | None = None) -> None:
        vllm = import_module("vllm")
        self._tokens = import_module("vllm.inputs.engine").tokens_input
        self._lora: Any = None  # the adapter that is sent with every request
        if lora:
            self._lora = import_module("vllm.lora.request").LoRARequest("adapter", 1, lora)
        self._output_kinds = import_module("vllm.sampling_params").RequestOutputKind
        self._request_numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tts-vllm", daemon=True)
        self._thread.start()
        self.closed = False
        self.version = str(vllm.__version__)

        async def start_vllm() -> Any:
            os.environ[STARTER] = str(os.getpid())  # vLLM's process ends with this one
            engine_class = import_module("vllm.v1.engine.async_llm").AsyncLLM
            return engine_class.from_engine_args(vllm.AsyncEngineArgs(**arguments))

        try:
            self._llm = self.submit(start_vllm()).result()
        except Exception as failure:
            self._stop()
            if isinstance(failure, ConfigError | ImportError):
                raise
            raise ConfigError(
                f"vLLM did not start: {_first_line(failure)}", hint="see vLLM's own messages above"
            ) from failure
        model = self._llm.model_config
        self.context = int(model.max_model_len)
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.itemsize = int(model.dtype.itemsize)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the engine's loop; call from any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def outputs(self, ids: Sequence[int], *, streams: bool, **settings: Any) -> AsyncGenerator[Any]:
        """Yield vLLM's outputs for a prompt, in the engine's loop.

        Closing the generator early ends the request.

        Args:
            ids: The ids of the prompt.
            streams: Whether tokens arrive as they are generated; else all arrive at the end.
            settings: The settings of vLLM's `SamplingParams`.

        Raises:
            EngineError: vLLM failed, or refused the request.
        """
        vllm = import_module("vllm")
        output_kind = self._output_kinds.DELTA if streams else self._output_kinds.FINAL_ONLY
        try:
            params = vllm.SamplingParams(
                temperature=0.0, detokenize=False, output_kind=output_kind, ignore_eos=True, **settings
            )
            stream = self._llm.generate(
                self._tokens(list(ids)), params, self._new_request_id(), lora_request=self._lora
            )
            # without closing, the request would continue until the generator is garbage-collected
            async with aclosing(stream):
                async for output in stream:
                    yield output
        except (EngineError, asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as failure:
            raise _engine_failure(failure) from failure

    async def pool(self, ids: Sequence[int], task: str) -> NDArray[np.float64]:
        """Return the outputs of a pooling model for a prompt, before any activation, in the engine's loop.

        Args:
            ids: The ids of the prompt.
            task: "token_classify" for a row of outputs at each token, or "classify" for one row at the last token.

        Raises:
            EngineError: vLLM failed, or refused the request.
        """
        vllm = import_module("vllm")
        try:
            params = vllm.PoolingParams(task=task, use_activation=False)
            stream = self._llm.encode(self._tokens(list(ids)), params, self._new_request_id())
            [output] = [output async for output in stream]
        except Exception as failure:
            raise _engine_failure(failure) from failure
        return np.atleast_2d(output.outputs.data.double().numpy())

    def _new_request_id(self) -> str:
        return f"tts-{next(self._request_numbers)}"

    def call_in_loop(self, fn: Any, *args: Any) -> None:
        """Call a function in the engine's loop, unless the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(fn, *args)

    def close(self) -> None:
        """End vLLM's process."""
        if self.closed:
            return
        self.closed = True

        async def end_vllm() -> None:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)  # so that the tasks end
            self._llm.shutdown()
            # the engine's destructor calls functions that are gone at the interpreter's end, so it must run before
            self._llm = None

        with suppress(TimeoutError):
            self.submit(end_vllm()).result(_ENDS_S)
        self._stop()

    def _stop(self) -> None:
        """End the engine's loop and thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_ENDS_S)
        if not self._thread.is_alive():
            self._loop.close()


def _engine_failure(failure: Exception) -> EngineError:
    cause = failure.__cause__ or failure
    return EngineError(f"vLLM failed: {type(cause).__name__}: {_first_line(cause)}")


def _first_line(failure: BaseException) -> str:
    return " ".join(str(failure).partition("\n")[0].split())
