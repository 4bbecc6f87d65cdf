import pytest

from gq_groupd import tables


@pytest.mark.parametrize("table", [tables.MESSAGE, tables.GROUP, tables.PART, tables.DEAD])
def test_every_state_that_is_reached_is_declared(table: tables.Table) -> None:
    for events in table.values():
        assert set(events.values()) <= table.keys()


def test_an_unknown_pair_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        tables.step(tables.DEAD, "idle", "finish")
