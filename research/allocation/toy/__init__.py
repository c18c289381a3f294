"""The allocator on a toy world of known truth: `python -m research.allocation.toy`."""
