from dates import is_month, next_month, quarter


def test_the_next_month():
    assert [next_month(month) for month in (1, 11, 12)] == [2, 12, 1]


def test_quarters():
    assert [quarter(month) for month in (1, 3, 4, 12)] == [1, 1, 2, 4]


def test_months():
    assert [number for number in range(15) if is_month(number)] == [*range(1, 13)]
