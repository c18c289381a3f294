"""Keys that are leases.

Agents of a workspace call a model through a gateway, each within what its row may spend.
"""
