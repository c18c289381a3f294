"""Batch experiments. Here so far: data sets (`datasets/`); to come: configuration, runner, store, replay, fits, plots and reports."""
