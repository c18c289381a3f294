"""Measurements of the allocator: on a toy world whose truth is known, and on the embedded pair."""
