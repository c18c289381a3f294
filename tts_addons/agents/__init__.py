"""Workspaces: searches over the states of a repository, which are commits in the run's own repository."""
