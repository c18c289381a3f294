"""Solutions of unknown length: tokens that go into answers, and accuracy as budgets grow."""
