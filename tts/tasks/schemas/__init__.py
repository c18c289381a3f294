"""JSON schemas from callers and clients.

Their cost is bounded, in steps and in a process that can be killed.
"""
