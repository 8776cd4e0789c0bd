"""Floors keep places for the better classes, and never close a small endpoint to the others."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pool.admission.classes import RANKS, Classes
from pool.config import AdmissionConfig, ClassConfig

CLASSES = Classes(AdmissionConfig())


def test_lower_class_leaves_the_places_that_better_ones_have_not_taken() -> None:
    held = [0, 0, 0, 0]
    assert CLASSES.reserved(RANKS["interactive"], 40, held) == 0
    assert CLASSES.reserved(RANKS["default"], 40, held) == 4
    assert CLASSES.reserved(RANKS["bulk"], 40, held) == 8
    assert CLASSES.reserved(RANKS["bulk"], 40, [0, 9, 1, 0]) == 3


def test_endpoint_with_few_places_is_open_to_everybody() -> None:
    assert CLASSES.reserved(RANKS["bulk"], 1, [0, 0, 0, 0]) == 0
    assert CLASSES.reserved(RANKS["bulk"], 9, [0, 0, 0, 0]) == 0


def test_floors_that_leave_nothing_to_the_lowest_class_are_refused() -> None:
    most = ClassConfig(floor=0.5, queue=1, timeout=1, ageing=1)
    with pytest.raises(ValidationError, match="less than a tenth"):
        AdmissionConfig(interactive=most, default=most)
