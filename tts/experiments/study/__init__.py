"""The definition of a study: its file, its configuration, its cells, and the snapshot of a run."""
