"""Who labelled is told of one who did, whose label is on, and who is known to be the last."""

from __future__ import annotations

import pytest

from broker.forge.base import Labelled
from broker.forge.labels import MOST_PAGES, Step, labelled

ON, OFF = Step("ann", 10.0, put=True), Step("ann", 20.0, put=False)


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([], None),
        ([ON], Labelled("ann", 10.0)),
        ([ON, OFF], None),
        ([ON, Step("tri", 20.0, put=False)], None),
        ([ON, OFF, Step("eve", 30.0, put=True)], Labelled("eve", 30.0)),
        ([ON, Step("eve", 30.0, put=True)], Labelled("eve", 30.0)),
        ([ON, Step("", 30.0, put=True)], None),  # whoever it was, it was not ann
        ([ON, Step("ann", 40.0)], Labelled("ann", 40.0)),
        ([ON, Step("ann", 5.0)], Labelled("ann", 10.0)),
        ([ON, Step("eve", 40.0), Step("", 50.0)], Labelled("ann", 10.0)),
        ([Step("ann", 5.0), OFF, Step("ann", 40.0)], None),
    ],
)
def test_the_last_who_put_it_on_is_told_with_their_last_act(steps, found):
    assert labelled([steps]) == found
    assert labelled([step] for step in steps) == found


def test_a_record_that_is_not_read_to_its_end_names_nobody():
    assert labelled([[ON], *[[]] * (MOST_PAGES - 2)]) is not None
    assert labelled([[ON], *[[]] * (MOST_PAGES - 1)]) is None
