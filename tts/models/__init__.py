"""Records of models: what `--model NAME` takes, where the weights come from and what may be done with them."""
