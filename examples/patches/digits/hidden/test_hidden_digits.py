from digits import last, rest, sum_of_two


def test_both():
    assert (last(90), rest(90)) == (0, 9)
    assert sum_of_two(98) == 17
