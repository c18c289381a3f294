"""The gateway as a process of the operating system."""
