from stats import middle, spread


def test_both():
    assert spread([4]) == 0
    assert middle([8, 6, 4]) == 6
