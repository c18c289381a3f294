"""JSON schemas from callers and clients: what they may cost is bounded, in steps and in a process that can be
killed.
"""
