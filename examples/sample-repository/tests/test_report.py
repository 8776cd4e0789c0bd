from datetime import datetime

from meterkit.readings import Reading
from meterkit.report import bar, line, table

MORNING = Reading(datetime(2024, 3, 1, 8, 0), 21.46)


def test_bar_is_as_long_as_the_share():
    assert bar(25, 0, 100, width=8) == "##......"
    assert bar(100, 0, 100, width=4) == "####"


def test_bar_is_empty_below_the_scale():
    assert bar(-1, 0, 100, width=4) == "...."


def test_line_shows_minute_and_value():
    assert line(MORNING) == "01.03. 08:00      21.5"
    assert line(MORNING, digits=2).endswith("21.46")


def test_table_of_none():
    assert table([]) == "no readings"


def test_table_has_a_line_for_each():
    assert table([MORNING, MORNING]).count("\n") == 1
