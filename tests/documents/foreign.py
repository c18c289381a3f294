"""Names in documents that the repository does not define: of other software, of files of users, of what is gone."""

from __future__ import annotations

from collections.abc import Mapping

# page -> reason -> names; a name with a point at its end stands for all below it
FOREIGN: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "README.md": {"other libraries": ("MCTS(n_iters=)", "ainfer(budget=)", "its_hub[iaas]")},
    "CONTRIBUTING.md": {
        "beginnings of names": ("num_", "log_"),
        "a build makes it": ("build/site",),
    },
    "research/README.md": {
        "files of published data sets, below TTS_DATA_DIR": (
            "TTS_DATA_DIR/pools",
            "qwen25math/math_cot_100_n8_rm.jsonl",
            "evaluation/data/eval_rm_maj_example/math_cot_100.jsonl",
            "tot/game24_gpt4_{cot_n100,io_n100,tot_b5}.json",
            "logs/game24",
            "faithful_cot/date_code002_LtM_n40.jsonl",
            "codet/humaneval_codegen16b_n100_{solutions,tests}.jsonl",
            "codet/HumanEval_for_code_generation.jsonl",
            "CodeT/data",
        ),
    },
    "docs/decisions/searches.md": {"gone, as the decision says": ("Search.sampling_at", "score_affordable")},
    "docs/decisions/reserving.md": {"gone, as the decision says": ("Meter", "Grant", "Accounting")},
    "docs/decisions/verifiers.md": {"asyncio's": ("CancelledError",)},
    "docs/explanation/engine_departures.md": {
        "torch's": ("_int_mm",),
        "of the first design": ("priority",),
    },
    "docs/explanation/engine_speed_avx2.md": {
        "vLLM's": ("disable_cascade_attn",),
        "llama.cpp's": ("llama_memory_seq_cp",),
    },
    "docs/explanation/library.md": {"asyncio's": ("call_soon_threadsafe",)},
    "docs/explanation/verifiers.md": {"of a problem's test": ("f(arguments) == data",)},
    "docs/explanation/security_programs.md": {"a command of Windows": ("taskkill /F",)},
    "docs/how-to/answers.md": {"mathematics": ("vmatrix",)},
    "docs/how-to/math_verify.md": {"mathematics": ("f(x)", "f(y)")},
    "docs/how-to/clients/smolagents.md": {"smolagents'": ("LogLevel.OFF",)},
    "docs/how-to/clusters.md": {"Ray's": ("RAY_ADDRESS",)},
    "docs/how-to/gateway.md": {"of client libraries": ("client.", "litellm.")},
    "docs/how-to/gateway_requests.md": {"vLLM's": ("structured_outputs.json",)},
    "docs/how-to/gateway_operation.md": {
        "HTTP's": ("Host", "Origin", "application/json"),
        "the shell's": ("ulimit -n",),
    },
    "docs/how-to/gateway_evaluation.md": {
        "lm-evaluation-harness's": ("batch_size", "tokenized_requests", "sums.yaml", "lines.yaml"),
        "inspect_ai's": ('Task(dataset=…, solver=generate(), scorer=pattern(r"A: (-?\\d+)"))',),
        "LiteLLM's": ("litellm.",),
    },
    "docs/how-to/install.md": {"pip's": ("--no-deps",), "a build makes it": ("dist/",)},
    "docs/how-to/recorded.md": {
        "lm-evaluation-harness's": ("--log_samples",),
        "of logs that other programs write": ("result.json", "agent/trajectory.json"),
    },
    "docs/how-to/servers/README.md": {"a user's file": ("models.json",)},
    "docs/how-to/servers/failures.md": {"a header of HTTP": ("Retry-After",)},
    "docs/how-to/servers/llama_cpp.md": {
        "llama.cpp's": ("--interrupt_requests", "--model_alias", "--n_ctx", "--n_threads"),
        "the compiler's": ("CFLAGS", "CXXFLAGS", "-mno-amx-int8 -mno-amx-tile -mno-amx-bf16"),
    },
    "docs/how-to/servers/sglang.md": {"SGLang's": ("--enable-cache-report", "--reasoning-parser")},
    "docs/how-to/servers/vllm.md": {
        "vLLM's": (
            "--enable-prompt-tokens-details",
            "--generation-config",
            "--served-model-name",
            "--max-model-len",
            "--dtype",
            "--enforce-eager",
            "--block-size",
            "--stream-interval",
            "--reasoning-parser",
            "--api-key",
        ),
    },
    "docs/how-to/forks.md": {"in the cache's folder": ("tts/workspaces",)},
    "docs/how-to/study_results.md": {"a study makes it": ("styles.json",)},
    "docs/how-to/workspaces.md": {
        "Python's": ("os._exit(0)", "sitecustomize.py"),
        "pytest's": ("*_test.py", "setup.cfg", "tox.ini", "pytest.ini"),
        "a user's files": ("patches/", "patches/leap/", "patches/leap/repo/", "patches/leap/hidden/", "leap.py"),
    },
    "docs/results/servers.md": {"packages of other projects": ("httpcore", "sniffio")},
    "docs/tutorials/process_model.md": {"an export makes it": ("steps.md",)},
    "tts_addons/agents/store.py": {"in the cache's folder": ("tts/workspaces",)},
    "tts_addons/logs/layouts.py": {"of search-and-learn": ("scripts/test_time_compute.py",)},
    "docs/explanation/peers.md": {
        "files, names and options of the libraries that the page compares": (
            "its_hub/core/algorithms",
            "AbstractScalingAlgorithm.ainfer",
            "self_consistency.py",
            "bon.py",
            "beam_search.py",
            "core/lms/openai_lm.py",
            "integration/iaas",
            "integration/ext_proc",
            "treequest/algos",
            "ask_batch",
            "treequest/vis",
            "known_approaches",
            "optillm/plugins",
            "--best-of-n",
            "--simulations",
            "--rstar-num-rollouts",
            "inference.py",
            "approach",
            "src/sal/config.py",
            "gpu_memory_utilization",
            "recipes/training",
            "reasoners/algorithm",
            "MCTS(n_iters=10, depth_limit=5)",
            "reasoners/lm",
            "adaptive_self_consistency.py",
            "beta_self_consistency.py",
            "planning_wrapper.py",
            "verifiers.v1",
            "env.py",
            "rollout.py",
            "harnesses",
            "llm_verifier.select",
            "track",
            "scorio.",
            "bayes",
            "bayes_ci",
            "scorio.rank",
        ),
    },
}

# page -> reason -> keys of YAML; a block that has one of them is not ours
FOREIGN_YAML: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "docs/how-to/clients/litellm.md": {"LiteLLM's": ("model_list",)},
    "docs/how-to/gateway_evaluation.md": {"lm-evaluation-harness's": ("dataset_path",)},
    "docs/how-to/gateway_requests.md": {"of a request of Responses": ("include",)},
}


def foreign_names() -> dict[str, frozenset[str]]:
    """Return the foreign names of each page."""
    return {page: frozenset(name for names in reasons.values() for name in names) for page, reasons in FOREIGN.items()}
