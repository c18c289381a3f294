from digits import digit_sum, last, rest


def test_both():
    assert (last(90), rest(90)) == (0, 9)
    assert digit_sum(987) == 24
