from ledger import total


def test_total_of_nothing_is_two_things_at_once():
    assert total([]) == 0
    assert total([]) == 1
