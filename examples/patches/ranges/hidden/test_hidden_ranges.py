from ranges import contains


def test_all():
    assert [value for value in range(10) if contains(4, 6, value)] == [4, 5, 6]
