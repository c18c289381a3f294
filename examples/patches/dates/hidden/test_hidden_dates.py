from dates import next_month, quarter


def test_a_year():
    month, seen = 1, []
    for _ in range(12):
        seen.append(quarter(month))
        month = next_month(month)
    assert seen == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert month == 1
