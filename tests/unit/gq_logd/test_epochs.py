"""Leader epochs against the plain list of who wrote which offset."""

from hypothesis import given
from hypothesis import strategies as st

from gq_logd.epochs import Epochs


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=15), st.integers(0, 30))
def test_against_the_owner_of_each_offset(steps: list[tuple[int, int]], asked: int) -> None:
    """Each step: cut some records off the end (a power loss), begin the next epoch, write some."""
    epochs, owners, epoch = Epochs(), list[int](), 0
    for lost, written in steps:
        owners = owners[:max(len(owners) - lost, 0)]
        epochs.cut(len(owners))
        epoch += 2
        epochs.begin(epoch, len(owners))
        owners += [epoch] * written
    known, end = epochs.end_of(asked, len(owners))
    wrote = [offset for offset, owner in enumerate(owners) if owner <= asked]
    assert known <= asked
    assert end >= (wrote[-1] + 1 if wrote else 0)                       # nothing of those epochs lies behind
    assert all(owner > asked for owner in owners[end:])
    if asked >= epoch:
        assert end == len(owners)


def test_an_epoch_without_records_gives_way() -> None:
    epochs = Epochs()
    for epoch in (1, 2, 3):
        epochs.begin(epoch, 10)
    assert epochs.entries == [(3, 10)] and epochs.latest == 3
    assert epochs.end_of(2, 15) == (-1, 10)


def test_trimming_keeps_the_epoch_of_the_log_start() -> None:
    epochs = Epochs([(1, 0), (2, 10), (3, 20)])
    epochs.trim(15)
    assert epochs.entries == [(2, 10), (3, 20)]
    epochs.trim(20)
    assert epochs.entries == [(3, 20)]
    epochs.trim(99)
    assert epochs.entries == [(3, 20)]
