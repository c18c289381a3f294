"""A module that ends the program."""

raise SystemExit(3)
