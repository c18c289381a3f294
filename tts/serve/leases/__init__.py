"""Keys that are leases: agents of a workspace call a model through a gateway, each within what its row may spend."""
