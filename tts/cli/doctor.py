"""`tts doctor`: what is installed or missing here, or what a server can do.

For what is installed it shows what that would run on, and for what is missing the command that gets it.
"""

from __future__ import annotations

import importlib.util
import math
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tts._core.display import visible
from tts.cli.model_options import Settings, settings_of
from tts.cli.terminal import facts, output

if TYPE_CHECKING:
    from rich.table import Table

    from tts.backends.openai.capabilities import Capabilities

# extra -> distributions; a test holds it equal to pyproject.toml
EXTRAS = {
    "engine": ("torch", "transformers", "safetensors", "gguf", "numba", "pyyaml"),
    "math": ("mpmath",),
    "json": ("jsonschema",),
    "experiments": ("datasets", "matplotlib", "pyarrow", "pyyaml"),
    "math-verify": ("math-verify",),
    "reasoning-gym": ("reasoning-gym",),
    "embeddings": ("sentence-transformers",),
    "telemetry": ("opentelemetry-api",),
    "serve": ("starlette", "uvicorn", "httptools", "jsonschema", "pyyaml"),
    "ray": ("ray",),
    "vllm": ("vllm", "transformers", "safetensors", "gguf"),
    "sandbox": ("llm-sandbox",),
    "trl": ("trl",),
}
_MODULES = {"pyyaml": "yaml", "opentelemetry-api": "opentelemetry"}  # whose names differ from their distributions'


def doctor(
    *,
    url: Annotated[
        str | None, typer.Option(help="Probe the server there instead: what it serves, and what works on it.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Of the server, needed where it serves several; or a record that has a url.")
    ] = None,
    model_option: Settings = None,
) -> None:
    """Show what is installed, which device is there, and which models are present.

    With --url, show what a server can do.
    """
    settings = settings_of(model_option)
    if url is not None or model or settings:
        show_server(model or "", url, settings)
        return
    from tts import __version__
    from tts.cli.models import presence
    from tts.errors import MissingDependency
    from tts.models import registry
    from tts.registry import find_own

    table = facts(columns=3)
    table.add_row("tts", __version__, f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    conflict = find_namesake()
    if conflict:
        table.add_row("", "conflict", conflict)
    table.add_section()
    incomplete = [extra for extra in EXTRAS if not _add_extra(table, extra)]
    table.add_row("device", "", device())
    for name, value in engine():
        table.add_row("", name, value)
    table.add_section()
    try:
        bounds = find_own("tts_addons.code.bounds:bounds")()  # on programs that the verifier `code` runs
    except MissingDependency as failure:
        bounds = ()
        table.add_row("code", "missing", failure.cause)
    for i, bound in enumerate(bounds):
        table.add_row("" if i else "code", bound.name, bound.text)
    table.add_section()
    for i, name in enumerate(registry.names()):
        table.add_row("" if i else "models", name, presence(registry.get(name)))
    output().print(table)
    for extra in incomplete:
        size_note = ""
        if extra == "engine":
            size_note = "  (without a GPU install torch's CPU build first: 0.8 GB in place of 6)"
        typer.echo(f"for {extra}: pip install 'test-time-search[{extra}]'{size_note}")


def find_namesake() -> str:
    """Return the conflict with the distribution TTS (text to speech); "": it is not installed."""
    try:
        version = metadata.version("TTS")
    except metadata.PackageNotFoundError:
        return ""
    folder = Path(__file__).parents[1]
    text = f"TTS {version} (text to speech) has a command tts too"
    names = {path.name for path in folder.parent.iterdir()}
    if "TTS" not in names and folder.with_name("TTS").exists():
        text += ", and on a disk without case its folder TTS is this folder tts, so that imports fail"
    return f"{text}; give each an environment of its own"


def _add_extra(table: Table, extra: str) -> bool:
    """Add a row for each distribution of an extra, and return whether all are installed."""
    versions = {distribution: installed_version(distribution) for distribution in EXTRAS[extra]}
    for i, (distribution, version) in enumerate(versions.items()):
        table.add_row("" if i else extra, distribution, version or "missing")
    table.add_section()
    return None not in versions.values()


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution, without an import of its module; None: it is missing.

    A distribution without metadata is said to be present, of an unknown version.
    """
    module = _MODULES.get(distribution, distribution.replace("-", "_"))
    if importlib.util.find_spec(module) is None:
        return None
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "present, version unknown"


def engine() -> list[tuple[str, str]]:
    """Return a row that says how the engine runs here, or why it does not start; without torch, no row."""
    if installed_version("torch") is None:
        return []
    try:
        from tts.backends.engine.loading import EngineOptions
    except (ImportError, OSError) as failure:
        return [("engine", f"does not start: {failure}")]
    return [("engine", f"attention by the executor {EngineOptions().attention}")]


def device() -> str:
    """Return the device that a model would run on; without torch, only the number of cores is known."""
    cores = f"CPU, {os.cpu_count() or 'unknown'} cores"
    if installed_version("torch") is None:
        return f"{cores} (without torch nothing more is known)"
    try:
        import torch
    # installed, but broken: a library it needs is missing or of another version
    except (ImportError, OSError) as failure:
        return f"{cores}; torch does not start: {failure}"
    if torch.cuda.is_available():
        return ", ".join(f"CUDA: {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count()))
    return f"{cores}, {torch.get_num_threads()} torch threads; no CUDA device"


def shown_lines(capabilities: Capabilities) -> list[tuple[str, str]]:
    """Return the table of a server's capabilities, with the strategies that work and those that do not.

    Those with the best evidence come first, and a strategy that does not work has what it lacks. Strategies that also
    score have a row of their own, since they need a verifier beside the server.
    """
    from tts.search.families import sort_by_evidence
    from tts.search.needs import needs_of
    from tts.search.parts import STRATEGIES
    from tts.search.plan import parse

    runnable: list[str] = []
    scoring: list[str] = []
    not_runnable: list[str] = []
    for name in sort_by_evidence(STRATEGIES.names()):
        needs = needs_of(parse(name).strategy)
        lacking = [need for need in needs.capabilities if getattr(capabilities.caps, need) in ("absent", False)]
        if lacking:
            not_runnable.append(f"{name} ({', '.join(lacking)})")
        elif needs.verifiers:
            scoring.append(name)
        else:
            runnable.append(name)
    return [
        *capabilities.lines(),
        ("strategies", ", ".join(runnable)),
        ("with a verifier", ", ".join(scoring) or "none"),
        ("cannot run", ", ".join(not_runnable) or "none"),
    ]


def show_server(model: str, url: str | None, settings: Mapping[str, Any]) -> None:
    """Probe the server of a model and print its capabilities.

    Args:
        model: The model, as `tts.models.registry.resolve` takes it.
        url: The url of the server; None: the url of the model's record.
        settings: Settings in place of the record's own, by name.

    Raises:
        ConfigError: the server cannot be used; see `tts.backends.openai.probe.probe_server`.
    """
    from tts.backends.openai.access import ServerAccess
    from tts.errors import ConfigError
    from tts.models import registry

    if url is None and not model:
        raise ConfigError(
            "a setting of a model is given, but neither its server nor its name", hint="give --url or --model"
        )
    record = registry.resolve(model, url, settings)
    if record.url is None:
        raise ConfigError(
            f"model is {model!r}, which no server runs, and only servers are probed",
            hint="give --url, or see `tts models`",
        )
    capabilities = ServerAccess.of(record).probe_url(math.inf)
    table = facts()
    for name, value in shown_lines(capabilities):
        if name == "strategies":
            table.add_section()
        table.add_row(name, visible(value))
    output().print(table)
