"""Kernels of the engine, each beside its plain reference.

The kernels compute attention over a tree, rotary positions, norms, and the draw of a token.
"""
