from stats import middle, spread


def test_the_spread():
    assert spread([2, 9, 4]) == 7


def test_the_middle():
    assert middle([5, 1, 9, 7, 3]) == 5
