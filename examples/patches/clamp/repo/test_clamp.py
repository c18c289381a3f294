from clamp import clamp


def test_inside():
    assert clamp(3, 1, 5) == 3


def test_above():
    assert clamp(9, 1, 5) == 5
