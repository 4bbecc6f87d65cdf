"""Single system headers."""

import pytest

from gq_proto.errors import BadRecord
from gq_proto.headers import DELAY_US_MAX, check_user, delay_header, deliver_at_header, due_of, user_headers


def test_due():
    assert due_of([delay_header(5)], 100) == 105
    assert due_of([("gq-x", b""), deliver_at_header(7)], 100) == 7
    assert due_of([("delay", b"")], 100) is None
    with pytest.raises(BadRecord):
        due_of([("gq-delay", b"1")], 0)


def test_bounds():
    delay_header(DELAY_US_MAX)
    for delay in (-1, DELAY_US_MAX + 1):
        with pytest.raises(BadRecord):
            delay_header(delay)
    for due in (-1, 2**62):
        with pytest.raises(BadRecord):
            deliver_at_header(due)


def test_names_of_the_system():
    mixed = [("gq-x", b""), ("a", b""), ("GQ-x", b"")]
    assert user_headers(mixed) == [("a", b""), ("GQ-x", b"")]
    check_user(user_headers(mixed))
    with pytest.raises(BadRecord, match="gq-x"):
        check_user(mixed)
