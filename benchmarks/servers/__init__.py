"""The HTTP backend beside a server's own batch and beside its_hub; many requests in flight; a faulty server."""
