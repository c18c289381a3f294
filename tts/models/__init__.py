"""Records of models: the names that `--model` takes, where their weights are, and their licences."""
