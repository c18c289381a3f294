"""Running a study: executors of its cells, the runner, progress and forecast."""
