"""Analysis of stored results: curves, tables, comparisons, replay of recorded samples, performance models."""
