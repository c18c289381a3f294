from leap import is_leap


def test_a_fourth_year():
    assert is_leap(2024)


def test_a_century():
    assert not is_leap(1900)


def test_a_fourth_century():
    assert is_leap(2000)
