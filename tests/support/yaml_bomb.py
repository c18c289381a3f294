"""A YAML text whose aliases stand for more values than memory holds."""

BOMB = (
    "{}: [&a0 [x, x, x, x, x, x, x, x], "
    + ", ".join(f"&a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 12))
    + "]\n"
)
