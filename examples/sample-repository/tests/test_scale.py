import pytest

from meterkit.scale import clamp, fraction, rescale, span, within, wrap


def test_span_is_the_width():
    assert span(-10, 40) == 50


def test_span_refuses_a_scale_upside_down():
    with pytest.raises(ValueError, match="upside down"):
        span(5, 1)


def test_clamp_keeps_a_value_on_the_scale():
    assert clamp(21, 0, 100) == 21
    assert clamp(0, 0, 100) == 0
    assert clamp(100, 0, 100) == 100


def test_clamp_raises_a_value_below_the_scale():
    assert clamp(-5, 0, 100) == 0
    assert clamp(-40, -30, 50) == -30


def test_clamp_lowers_a_value_above_the_scale():
    assert clamp(120, 0, 100) == 100
    assert clamp(7, -3, 3) == 3


def test_within_includes_both_ends():
    assert within(0, 0, 10)
    assert within(10, 0, 10)
    assert not within(11, 0, 10)


def test_fraction_of_the_scale():
    assert fraction(25, 0, 100) == 0.25
    assert fraction(3, 3, 3) == 0.0


def test_rescale_celsius_to_fahrenheit():
    assert rescale(100, (0, 100), (32, 212)) == 212
    assert rescale(50, (0, 100), (32, 212)) == 122


def test_wrap_goes_round_the_dial():
    assert wrap(370) == 10
    assert wrap(-90) == 270
