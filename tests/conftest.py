"""What every test stands on: no file of the user's own, and which cases `make test` leaves to `make test-slow`."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import pytest

NUMBERS = itertools.count()
DOCS = (  # what users read and run besides the package: documents, examples, notebooks, pages, the commands that measure
    "benchmarks", "research", "test_documents.py", "experiments/test_examples.py", "experiments/test_first_curve.py",
    "solver/test_notebooks.py", "test_site.py", "serve/test_docs.py",
    "serve/test_page.py", "trace/test_html.py", "experiments/output/test_report.py",
)  # fmt: skip


# Products of cases, by folder, file or function, of which `make test` runs one in so many; `make test-slow` runs the others. The sum of a
# case's indices decides, so that each value of each parameter still occurs, with others in turn.
ONE_IN = {
    "backends/engine/test_failures.py::test_a_pass_that_breaks_once_fails_its_work_and_later_results_are_right": 3,
    "backends/engine/test_linear.py::test_rows_have_their_own_bits": 4,
    "backends/engine/test_logits.py::test_greedy_decoding_is_that_of_generate": 2,
    "backends/engine/test_reward_failures.py::test_a_process_models_pass_that_breaks_fails_the_call_leaves_nothing_and_is_made_up_for": 3,
    "backends/kernels/test_attention_strict.py": 3,
    "backends/kernels/test_attention_two_level.py": 3,
    "budget/test_budget_programs.py::test_most_of_a_budget_of_tokens_is_spent_or_another_reason_is_named": 3,
    "budget/test_hard_limits_process.py::test_no_limit_is_passed_and_all_books_agree": 3,
    "budget/test_spending.py": 2,
    "contracts/test_backends.py::test_a_path_drawn_by_numbers_of_tokens_is_one_plain_sample": 2,
    "contracts/test_backends.py::test_a_path_drawn_step_by_step_is_one_plain_sample": 3,
    "contracts/test_bad_input.py::test_a_verifier_that_breaks_its_contract_is_the_error_of_a_solution_that_keeps_what_was_found": 2,
    "contracts/test_bad_input.py::test_a_width_of_which_the_budget_cannot_pay_one_step_is_a_smaller_width": 3,
    "contracts/test_bad_input.py::test_it_ends_where_steps_are_empty_repeat_the_prompt_or_never_end": 3,
    "contracts/test_selections.py::test_it_asks_about_no_candidate_of_which_it_said_that_it_never_would": 4,
    "contracts/test_strategies.py::test_no_call_starts_after_the_last_second": 2,
    "contracts/test_verifiers.py::test_a_small_budget_leaves_scores_unknown_but_is_never_passed": 4,
    "experiments/analysis/test_prefixes.py": 2,
    "experiments/analysis/test_replay.py": 2,
    "search/stop_rules/test_sequential.py::test_a_sequential_test_errs_at_most_as_often_as_it_states": 4,
    "search/strategies/test_guided.py": 2,
    "search/test_half_characters.py": 2,
    "tasks/arithmetic/test_generator.py": 3,
    "verifiers/code/test_right_programs.py": 3,
}  # fmt: skip

# Examples that hypothesis draws: few in `make test`, many in `make test-slow`.
with contextlib.suppress(ImportError):  # absent where only the tests of a GPU run
    from hypothesis import settings

    settings.register_profile("few", max_examples=25, deadline=None)
    settings.register_profile("many", max_examples=300, deadline=None)
    settings.load_profile("few")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of what users read and run as `docs`, and most of a product's cases as `slow`."""
    here, classes = Path(__file__).parent, dict[str, list[object]]()
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        name = item.path.relative_to(here).as_posix()
        if name.startswith(DOCS):
            item.add_marker("docs")
        of_file, own, case = classes.setdefault(name, []), getattr(item, "cls", None), getattr(item, "callspec", None)
        if own not in of_file:
            of_file.append(own)  # classes of one contract have other cases each
        every = ONE_IN.get(f"{name}::{getattr(item, 'originalname', '')}") or ONE_IN.get(name, 1)
        if case is not None and (sum(case.indices.values()) + of_file.index(own)) % every:
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def users_files(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's files for this test alone, which does not exist at first."""
    home = tmp_path_factory.getbasetemp() / f"user-{next(NUMBERS)}"
    monkeypatch.setenv("TTS_HOME", str(home))
    return home
