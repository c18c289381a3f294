"""The HTTP backend beside a server's own batch and beside its_hub, with many requests and with faults."""
