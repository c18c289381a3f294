"""Kernels of the engine, each beside its plain reference: attention over a tree, rotary positions, norms, the draw of a
token.
"""
