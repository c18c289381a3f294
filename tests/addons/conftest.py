"""The command line in this process, as `tests/cli` has it."""

from tests.cli.conftest import assert_error, plain, requests, solve, tts

__all__ = ["assert_error", "plain", "requests", "solve", "tts"]
