from clamp import clamp


def test_all():
    assert [clamp(value, 1, 3) for value in range(5)] == [1, 1, 2, 3, 3]
