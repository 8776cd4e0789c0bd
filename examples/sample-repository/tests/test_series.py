import pytest

from meterkit.series import differences, longest_rise, median, moving_average, outliers


def test_differences_between_neighbours():
    assert differences([3, 5, 4]) == [2, -1]
    assert differences([]) == []


def test_moving_average_of_two():
    assert moving_average([1, 3, 5, 7], 2) == [2, 4, 6]


def test_moving_average_needs_a_window():
    with pytest.raises(ValueError, match="at least one"):
        moving_average([1], 0)


def test_longest_rise():
    assert longest_rise([1, 2, 3, 2, 3]) == 3
    assert longest_rise([]) == 0


def test_median_of_odd_and_even():
    assert median([5, 1, 3]) == 3
    assert median([4, 1, 3, 2]) == 2.5


def test_outliers_lie_far_from_the_median():
    assert outliers([20, 21, 22, 60], 5) == [60]
