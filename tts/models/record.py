"""The record of a model: what backends, verifiers, budgets and reports read of it before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

Price = int | float | str | Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a model was trained to be asked about its own solution: would it do better if it started over?

    Args:
        question: Appended to a solution, whole or partial.
        yes: Its answer that a new start would do better, one token.
        no: Its answer that a new start would not do better, one token.
    """

    question: str
    yes: str
    no: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """What is known about a model.

    Args:
        name: The name that callers give.
        backend: The backend that runs it unless the caller names another.
        source: Where its weights come from: "none" (no file), "shipped" (in this package), "package" (an installed
            distribution), "folder" or "hub".
        location: The folder (of "shipped": among the shipped files), distribution or Hub name; "" for "none".
        task: The task of problems that name none.
        parameters: Weights that a token passes, for FLOPs; None: read from the model when it is loaded.
        context: Most tokens of prompt and path together; None: read from the model when it is loaded.
        licence: SPDX identifier; "": unknown.
        file: Name of the weight file; "": as the source lays it out.
        sha256: Pinned checksum of `file` in hexadecimal; "": not pinned.
        description: One line for people.
        usd_in: Dollars per million computed tokens; None: no price.
        usd_reused: Dollars per million reused tokens; None: no price.
        usd_out: Dollars per million generated tokens; None: no price.
        usd_cache_write: Dollars per million tokens that the server writes to its cache. Servers choose what they write,
            so every computed token is charged this price where it is higher than `usd_in`, an upper bound; None:
            writing costs nothing beyond `usd_in`.
        usd_batch_in: Dollars per million computed tokens of batches (`tts sample --batch`); None: no price.
        usd_batch_reused: Dollars per million reused tokens of batches; None: as `usd_batch_in`.
        usd_batch_out: Dollars per million generated tokens of batches; None: no price.
        url: The url of a server that runs it; None: the backend runs it in this process.
        replicas: Urls of servers of the same model. Calls go to the next one while the one at `url` fails.
        step: Texts that end a step, at which heads and process models are read: those of the task.
        heads: Value heads on its hidden states, (name, file) each. A file has the tensors "weight" [hidden] and "bias"
            [1]; its path is absolute, or from where this record's own location begins.
        readout: The file of what reads a process model, which writes nothing: a linear head ("weight", "bias") or a
            likelihood ("scale", "shift" of its log-odds). "": it is none.
        process_model: The record, or the name of it, of a process model with this model's tokenizer, served beside it
            as the value head "process"; None: there is none. Only the engine serves heads and process models.
        process_models: Names of the records of further ones, (value head, name) each.
        self_evaluation: What the model was trained to be asked about its own solutions; None: nothing.
        thought: The marks between which it thinks, such as ("<think>", "</think>"); ("", "</think>") where a server's
            template opens the thought, so that texts begin inside of it; None: by its chat template, or as a server
            shows them.
        tokens_per_image: The most input tokens of a picture, which are reserved for each; None: not known, and pictures
            are refused where input tokens are limited.
        expected_tokens: Usual length of its solutions; None: the task's constant, until a search has seen longer or
            shorter ones.
        verifier: What scores its solutions where the caller names nothing; "": nothing does.
        task_verifiers: What does so in its place for problems of a task, (task, verifier) each.
        headers: The headers of each request to its server, (name, value) each, beside the key. `${NAME}` in a value
            stands for a variable of the environment; headers with keys must have one.
        query: The query of each request to its server, (name, value) each, in which `${NAME}` stands for a variable
            too.
        capabilities: The capabilities of its server, (name, value) each, as
            `tts.backends.openai.capabilities.Capabilities` has them. Then it is not probed, and lacks those that are
            not named. (): it is probed.
        options: The options of the backend that runs it, (name, value) each, such as ("device", "cuda"); see its
            `from_record`.
    """

    name: str
    backend: str
    source: Literal["none", "shipped", "package", "folder", "hub"] = "none"
    location: str = ""
    task: str = "text"
    parameters: int | None = None
    context: int | None = None
    licence: str = ""
    file: str = ""
    sha256: str = ""
    description: str = ""
    usd_in: Price | None = None
    usd_reused: Price | None = None
    usd_out: Price | None = None
    usd_cache_write: Price | None = None
    usd_batch_in: Price | None = None
    usd_batch_reused: Price | None = None
    usd_batch_out: Price | None = None
    url: str | None = None
    replicas: tuple[str, ...] = ()
    step: tuple[str, ...] = ("\n",)
    heads: tuple[tuple[str, str], ...] = ()
    readout: str = ""
    process_model: ModelRecord | str | None = None
    process_models: tuple[tuple[str, str], ...] = ()
    self_evaluation: Question | None = None
    thought: tuple[str, str] | None = None
    expected_tokens: int | None = None
    tokens_per_image: int | None = None
    verifier: str = ""
    task_verifiers: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    capabilities: tuple[tuple[str, str | int | float | bool], ...] = ()
    options: tuple[tuple[str, str | int | float], ...] = ()
