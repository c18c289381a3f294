from leap import is_leap


def test_two_centuries():
    assert [year for year in range(1896, 2105, 4) if not is_leap(year)] == [1900, 2100]
    assert not any(is_leap(year) for year in range(2001, 2004))
