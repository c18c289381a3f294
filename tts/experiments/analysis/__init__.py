"""Analysis of stored results.

The package has curves, tables, comparisons, replay of recorded samples, and performance models.
"""
