"""Batch experiments: data sets, studies and what runs them, the store of their results; replay, tables, plots and reports."""
