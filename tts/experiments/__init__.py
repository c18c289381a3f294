"""The place of batch experiments (configuration, runner, store, replay, fits, plots, reports). None is here yet."""
