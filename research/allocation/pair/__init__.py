"""The allocator on the embedded pair: what it goes by is fitted on the validation split, what it reaches is measured on
the test split.
"""
