"""Cost of everything besides models: search, store, statistics, whole studies."""
