from ranges import contains, size


def test_the_lower_end():
    assert contains(1, 3, 1)


def test_the_upper_end():
    assert contains(1, 3, 3)


def test_outside():
    assert not contains(1, 3, 0) and not contains(1, 3, 4)


def test_the_size():
    assert size(1, 3) == 3
