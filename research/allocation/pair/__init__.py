"""The allocator on the embedded pair.

What the allocator goes by is fitted on the validation split. What it reaches is measured on the test split.
"""
