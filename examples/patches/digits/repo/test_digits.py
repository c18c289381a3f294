from digits import last, rest


def test_the_last_digit():
    assert last(47) == 7


def test_the_other_digits():
    assert rest(471) == 47
