from datetime import datetime

import pytest

from meterkit.readings import LogError, Reading, gaps, parse_line, parse_log

LOG = """
# cellar
2024-03-01 09:00 21.9

2024-03-01 08:00 21.5
2024-03-01 12:30 20.0
"""


def test_line_becomes_a_reading():
    assert parse_line("2024-03-01 08:00 21.5") == Reading(datetime(2024, 3, 1, 8, 0), 21.5)


@pytest.mark.parametrize("text", ["", "2024-03-01 21.5", "2024-03-01 08:00 warm", "yesterday 08:00 1"])
def test_line_that_is_no_reading_is_refused(text):
    with pytest.raises(LogError):
        parse_line(text)


def test_log_is_sorted_and_skips_comments():
    assert [reading.value for reading in parse_log(LOG)] == [21.5, 21.9, 20.0]


def test_gaps_are_found():
    readings = parse_log(LOG)
    assert gaps(readings, 60) == [(readings[1], readings[2])]
    assert gaps(readings, 600) == []
