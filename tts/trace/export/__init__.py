"""Searches as rows for trainers: records of searches, filters of their samples, forms of rows, and files with a
card.
"""
