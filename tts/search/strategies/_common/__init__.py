"""Code that families of strategies share: stepwise, guided, particle and judged methods."""
