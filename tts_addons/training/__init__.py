"""Searches as rows for trainers.

The package has records of searches, filters of their samples, forms of rows, and files with a card.
"""
