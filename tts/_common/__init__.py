"""Reading of what people write, and rules for files, errors and places."""
