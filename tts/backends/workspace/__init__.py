"""States of a repository that searches fork: each is a commit in a repository of the run's own."""
