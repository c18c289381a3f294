"""What every test stands on: no file of the user's own, and which cases `make test` leaves to `make test-slow`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import signal
import zlib
from collections.abc import Generator
from pathlib import Path

import pytest

NUMBERS = itertools.count()
# what users read and run besides the package: documents, examples, notebooks, pages, the commands that measure
DOCS = (
    "benchmarks", "research", "test_documents.py", "documents", "experiments/test_examples.py",
    "experiments/test_first_curve.py", "solver/test_notebooks.py", "test_site.py", "test_gallery.py",
    "addons/gateway/test_docs.py", "cli/test_recorded_page.py", "addons/gateway/test_page.py", "trace/test_html.py",
    "experiments/output/test_report.py",
)  # fmt: skip


# Products of cases, by file or function or functions of a class, of which `make test` runs one in so many; `make test-slow` runs the others.
# The sum of the places of a case's class and values decides, so that each value of each parameter still occurs, with
# others in turn. At least one case of each function stays; where a file is named, its functions begin with different
# cases.
ONE_IN = {
    "allocator/test_performance_file.py::test_no_value_anywhere_is_let_through_or_breaks_what_reads_it": 3,
    "backends/engine/test_draw.py::test_frequencies_follow_the_law": 2,
    "backends/engine/test_draw.py::test_it_is_the_plain_draw": 4,
    "backends/engine/test_failures.py::test_a_pass_that_breaks_once_fails_its_work_and_later_results_are_right": 3,
    "backends/engine/test_halves.py::test_a_path_has_bits_of_its_own": 2,
    "backends/engine/test_linear.py::test_rows_have_their_own_bits": 8,
    "backends/engine/test_logits.py::test_every_shape_of_tree_has_its_laws": 2,
    "backends/engine/test_logits.py::test_greedy_decoding_is_that_of_generate": 4,
    "backends/engine/test_logits.py::test_it_is_no_further_from_float64_than_transformers_is": 3,
    "backends/engine/test_memory.py::test_a_backend_keeps_nothing_of_requests_that_were_cancelled": 3,
    "backends/engine/test_memory.py::test_a_backend_keeps_nothing_when_its_handles_are_gone": 3,
    "backends/engine/test_memory.py::test_a_tiny_pool_gives_what_an_unbounded_one_gives_in_a_bounded_number_of_steps": 3,  # noqa: E501
    "backends/engine/test_memory.py::test_memory_is_empty_after_releases_in_any_order": 4,
    "backends/engine/test_prompts.py::test_bits_depend_on_no_companion_no_order_and_no_step": 2,
    "backends/engine/test_reward_failures.py::test_a_process_models_pass_that_breaks_fails_the_call_leaves_nothing_and_is_made_up_for": 5,  # noqa: E501
    "backends/engine/test_reward_models.py::test_a_process_model_reads_what_a_plain_pass_over_the_whole_path_reads": 3,
    "backends/engine/test_reward_models.py::test_readings_have_the_same_bits_in_any_order_alone_or_together_and_under_pressure": 3,  # noqa: E501
    "backends/engine/test_strict.py::test_a_second_thread_changes_no_bit": 3,
    "backends/engine/test_strict.py::test_a_text_that_is_read_has_the_bits_of_the_same_tokens_drawn": 4,
    "backends/engine/test_strict.py::test_companions_change_no_bit": 4,
    "backends/engine/test_strict.py::test_every_path_of_a_tree_is_its_own": 2,
    "backends/engine/test_strict.py::test_limits_of_a_step_and_sharing_change_no_bit": 4,
    "backends/engine/test_strict.py::test_what_was_evicted_is_computed_again_to_the_same_bits": 3,
    "backends/kernels/test_attention_strict.py": 3,
    "backends/kernels/test_halves.py": 3,
    "backends/kernels/test_lowering.py": 3,
    "backends/openai/test_faults.py::test_a_reply_that_breaks_is_drawn_again_within_its_grant_and_harms_no_other": 2,
    "backends/text/test_stopping_at_text.py::test_pieces_are_those_of_the_task_and_join_to_the_text": 3,
    "backends/transformers/test_transformers.py::test_a_path_sampled_in_pieces_is_the_path_sampled_at_once": 2,
    "budget/test_budget_programs.py::test_most_of_a_budget_of_tokens_is_spent_or_another_reason_is_named": 3,
    "budget/test_cancelled_reads.py": 2,
    "budget/test_hard_limits.py::test_reused_tokens_that_have_a_price_are_granted_before_they_are_used": 3,
    "budget/test_hard_limits_process.py::test_no_limit_is_passed_and_all_books_agree": 3,
    "budget/test_spending.py": 4,
    "budget/test_spending.py::test_on_the_embedded_policy": 8,
    "contracts/test_backends.py": 2,
    "contracts/test_backends.py::TestRepositories": 11,
    "contracts/test_backends.py::TestWorkspace": 7,
    "contracts/test_backends.py::test_a_path_drawn_by_numbers_of_tokens_is_one_plain_sample": 3,
    "contracts/test_backends.py::test_a_path_drawn_step_by_step_is_one_plain_sample": 5,
    "contracts/test_backends.py::test_cancelling_resolves_every_row_and_counts_what_it_cost": 2,
    "contracts/test_bad_input.py::test_a_backend_that_fails_once_in_ten_calls_costs_rows_not_answers": 3,
    "contracts/test_bad_input.py::test_a_budget_of_one_sample_is_one_plain_sample": 3,
    "contracts/test_bad_input.py::test_a_verifier_that_breaks_its_contract_is_the_error_of_a_solution_that_keeps_what_was_found": 6,  # noqa: E501
    "contracts/test_bad_input.py::test_a_width_of_which_the_budget_cannot_pay_one_step_is_a_smaller_width": 6,
    "contracts/test_bad_input.py::test_it_ends_where_steps_are_empty_repeat_the_prompt_or_never_end": 6,
    "contracts/test_bad_input.py::test_unknown_scores_stop_nothing": 2,
    "contracts/test_selections.py::test_it_asks_about_no_candidate_of_which_it_said_that_it_never_would": 4,
    "contracts/test_strategies.py::test_an_answer_comes_whenever_a_plain_sample_gives_one": 2,
    "contracts/test_strategies.py::test_cancellation_keeps_what_was_found": 3,
    "contracts/test_strategies.py::test_it_does_not_depend_on_what_else_is_solved": 3,
    "contracts/test_strategies.py::test_it_fills_its_sizes_from_the_budget_or_says_that_it_cannot": 2,
    "contracts/test_strategies.py::test_no_call_starts_after_the_last_second": 4,
    "contracts/test_strategies.py::test_no_limit_is_passed_and_nothing_stays_held": 4,
    "contracts/test_strategies.py::test_one_seed_gives_one_trace_and_another_seed_another": 2,
    "contracts/test_strategies.py::test_time_alone_bounds_it": 2,
    "contracts/test_tasks.py": 2,
    "contracts/test_verifiers.py": 2,
    "contracts/test_verifiers.py::test_a_small_budget_leaves_scores_unknown_but_is_never_passed": 4,
    "experiments/analysis/test_prefixes.py": 2,
    "experiments/analysis/test_replay.py": 2,
    "laws/test_streams.py::test_a_path_written_in_pieces_is_one_plain_sample": 3,
    "search/algorithms/test_resampling.py::test_every_scheme_is_unbiased": 2,
    "search/stop_rules/test_sequential.py::test_a_sequential_test_errs_at_most_as_often_as_it_states": 4,
    "search/strategies/trees/test_guided.py": 2,
    "search/strategies/trees/test_guided.py::test_solutions_without_a_token_end_the_search_though_no_limit_does": 4,
    "search/strategies/trees/test_guided.py::test_what_is_held_for_the_steps_of_a_path_pays_the_score_of_its_end": 4,
    "search/strategies/trees/test_mcts.py::test_it_finds_more_than_a_plain_sample_does": 2,
    "search/strategies/samples/test_power_sampling.py::test_a_chain_of_few_moves_follows_its_exact_law": 2,
    "addons/code/test_program_aided.py": 2,
    "search/strategies/trees/test_tree_methods_on_engine.py::test_the_process_model_computes_hardly_more_than_what_was_written": 3,  # noqa: E501
    "search/test_half_characters.py": 3,
    "search/test_rows.py": 2,
    "search/test_thought_faults.py": 2,
    "search/test_thoughts.py::test_no_budget_is_passed_and_most_of_it_is_used": 2,
    "search/test_widths.py::test_a_number_of_a_strategy_is_not_laid_out_before_it_is_paid": 16,
    "search/test_widths.py::test_the_greatest_number_is_one_like_others": 10,
    "addons/gateway/test_completions.py::test_a_stream_joins_to_the_reply": 2,
    "statistics/test_coverage.py::test_an_interval_of_95_percent_covers_in_93_to_97": 2,
    "tasks/arithmetic/test_generator.py": 3,
    "tasks/test_math.py::test_an_answer_is_equivalent_to_its_normal_form": 3,
    "tasks/test_math.py::test_exact_rules_work_without_mpmath": 3,
    "tasks/test_math.py::test_what_stays_undecided_without_mpmath_is_different": 3,
    "addons/code/test_bounds.py::test_memory_that_forked_processes_share_counts_once": 2,
    "addons/code/test_cheats.py::test_none_passes_where_calls_are_compared_with_data": 2,
    "addons/code/test_right_programs.py": 3,
    "addons/agents/test_patch_tests.py::test_a_trick_scores_no_more_than_no_patch": 5,
}

# in the background of a shell, where tests of Ctrl-C would wait for ever
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Examples that hypothesis draws: few in `make test`, many in `make test-slow`.
with contextlib.suppress(ImportError):  # absent where only the tests of a GPU run
    from hypothesis import settings

    settings.register_profile("few", max_examples=15, deadline=None)
    settings.register_profile("many", max_examples=300, deadline=None)
    settings.load_profile("few")


class Places:
    """The place of each value of a parameter among all values that it takes, by test, class and parameter, in order of
    appearance.
    """

    def __init__(self) -> None:
        self.seen: dict[tuple[object, ...], list[object]] = {}

    def of(self, value: object, *where: object) -> int:
        values = self.seen.setdefault(where, [])
        at = next((i for i, one in enumerate(values) if one is value), len(values))
        if at == len(values):
            values.append(value)
        return at

    def total(self, item: pytest.Item, where: str) -> int:
        """Return the sum of the places of a case's class and values; those that one decorator gives together count
        once.
        """
        cls = getattr(item, "cls", None)
        params = dict[str, object](item.callspec.params) if hasattr(item, "callspec") else {}  # type: ignore[attr-defined]
        for mark in item.iter_markers("parametrize"):
            names = mark.args[0].replace(",", " ").split() if isinstance(mark.args[0], str) else mark.args[0]
            for name in names[1:]:
                params.pop(name, None)
        return self.of(cls, where) + sum(self.of(value, where, cls, name) for name, value in params.items())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shard", type=_shard, default=(1, 1), metavar="K/N", help="run the K-th of N parts, by the names of the tests"
    )


def _shard(text: str) -> tuple[int, int]:
    """Read K/N. A test stays in its part when others come and go: the part follows from its name alone."""
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 1 <= int(k) <= int(n)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part: K/N with 1 <= K <= N, such as 3/12")
    return int(k), int(n)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of which no test would be run."""
    if "not docs" in config.option.markexpr.split(" and ") and _name(collection_path).startswith(DOCS):
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage once all is collected, and not each time that there is more of it: modules and cases are none.

    They are also kept out of every later garbage collection, which would take longer than many tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # so that extension modules find what is theirs at exit


def _name(path: Path) -> str:
    here = Path(__file__).parent
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of what users read and run as `docs`, and most of a product's cases as `slow`; take one shard."""
    places, names, products = Places(), dict[Path, str](), dict[str, list[tuple[int, pytest.Item]]]()
    functions: dict[str, list[str]] = {}
    for item in items:
        if item.path not in names:
            names[item.path] = _name(item.path)
        name = names[item.path]
        if not name:
            continue
        if name.startswith(DOCS):
            item.add_marker("docs")
        function = getattr(item, "originalname", "")
        test = f"{name}::{function}"
        whole = f"{name}::{item.cls.__name__}" if getattr(item, "cls", None) else ""
        if whole in ONE_IN:
            of_class = functions.setdefault(whole, [])
            if function not in of_class:
                of_class.append(function)
            if of_class.index(function) % ONE_IN[whole]:
                item.add_marker("slow")
            continue
        if (test in ONE_IN or name in ONE_IN) and not item.get_closest_marker("slow"):
            products.setdefault(test, []).append((places.total(item, test), item))
    turns: dict[str, int] = {}
    for test, cases in products.items():
        name = test.partition("::")[0]
        turn = turns[name] = turns.get(name, -1) + 1
        # tests of one file begin with different cases; one case always stays
        first = 0 if test in ONE_IN else cases[turn % len(cases)][0]
        for place, item in cases:
            if (place - first) % ONE_IN.get(test, ONE_IN.get(name, 1)):
                item.add_marker("slow")
    k, n = config.getoption("shard")
    if n > 1:
        shards = [zlib.crc32(item.nodeid.partition("[")[0].encode()) % n + 1 for item in items]
        config.hook.pytest_deselected(items=[item for item, shard in zip(items, shards, strict=True) if shard != k])
        items[:] = [item for item, shard in zip(items, shards, strict=True) if shard == k]


@pytest.fixture(autouse=True)
def users_files(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's files for this test alone, which does not exist at first."""
    home = tmp_path_factory.getbasetemp() / f"user-{next(NUMBERS)}"
    monkeypatch.setenv("TTS_HOME", str(home))
    return home
