"""The record of a model: data for backends, verifiers, budgets and reports before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

Price = int | float | str | Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A trained question to a model about its own solution: would a new start do better?

    Args:
        question: The text that is appended to a solution, whole or partial.
        yes: The answer that a new start would do better, one token.
        no: The answer that a new start would not do better, one token.
    """

    question: str
    yes: str
    no: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRecord:
    """A record of a model.

    Args:
        name: The name that callers give.
        backend: The backend that runs the model unless the caller names another.
        source: The source of the weights: "none" (no file), "shipped" (in this package), "package" (an installed
            distribution), "folder" or "hub".
        location: The folder (of "shipped": among the shipped files), distribution or Hub name; "" for "none".
        task: The task of problems that name no task.
        parameters: The number of weights that a token passes, for FLOPs; None: read from the model when it is loaded.
        context: The most tokens of prompt and path together; None: read from the model when it is loaded.
        licence: The SPDX identifier; "": unknown.
        file: The name of the weight file; "": the usual file of the source.
        sha256: The pinned checksum of `file` in hexadecimal; "": not pinned.
        description: A line for people.
        usd_in: Dollars per million computed tokens; None: no price.
        usd_reused: Dollars per million reused tokens; None: no price.
        usd_out: Dollars per million generated tokens; None: no price.
        usd_cache_write: Dollars per million tokens that the server writes to its cache. Servers choose what they write,
            so every computed token is charged this price where it is higher than `usd_in`, an upper bound; None:
            writing costs nothing beyond `usd_in`.
        usd_batch_in: Dollars per million computed tokens of batches (`tts sample --batch`); None: no price.
        usd_batch_reused: Dollars per million reused tokens of batches; None: the price `usd_batch_in`.
        usd_batch_out: Dollars per million generated tokens of batches; None: no price.
        url: The url of a server that runs the model; None: the backend runs it in this process.
        replicas: Urls of servers of the same model. Calls go to the next one while the one at `url` fails.
        step: The texts that end a step of the task, at which heads and process models score a solution.
        heads: The value heads on the model's hidden states, (name, file) each. A file has the tensors "weight" [hidden]
            and "bias" [1]. Its path is absolute, or begins in the model's folder (of "shipped": the shipped files).
        readout: The file that turns a process model's output into scores: a linear head ("weight", "bias") or a
            likelihood ("scale", "shift" of its log-odds). "": this is no process model.
        process_model: The record or name of a process model with this model's tokenizer, served beside it as the value
            head "process"; None: there is none. Only the engine serves heads and process models.
        process_models: The names of further process models, (value head, name) each.
        self_evaluation: The trained question about the model's own solutions; None: there is none.
        thought: The marks around a thought, such as ("<think>", "</think>"). ("", "</think>"): the server's template
            opens the thought, so texts begin inside of it. None: the marks of the chat template, or of the server.
        tokens_per_image: The most input tokens of a picture, which are reserved for each picture; None: not known, and
            pictures are refused where input tokens are limited.
        expected_tokens: The usual length of a solution; None: the task's constant, until a search has seen other
            lengths.
        verifier: The default verifier of the model's solutions; "": there is none.
        task_verifiers: The default verifiers of single tasks, in place of `verifier`, (task, verifier) each.
        headers: The headers of each request to the server, (name, value) each, beside the key. `${NAME}` in a value
            stands for a variable of the environment. Headers with keys must have such a variable.
        query: The query of each request to the server, (name, value) each, in which `${NAME}` stands for a variable
            too.
        capabilities: The capabilities of the server, (name, value) each, with the names of
            `tts.backends.openai.capabilities.Capabilities`. The server lacks all others; (): it is probed for them.
        options: The options of the backend, (name, value) each, such as ("device", "cuda"); see its `from_record`.
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
