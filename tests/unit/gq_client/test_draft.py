"""What an app says of a message, in the record's terms."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gq_client.draft import due_header, headers_of, prepared, priority_of
from gq_proto import codec
from gq_proto import record as r
from gq_proto.errors import BadRecord, TooLarge
from gq_proto.headers import due_of
from gq_proto.limits import DELAY_MS_MAX, USER_HEADERS_MAX

NOW = 1_700_000_000_000_000


def test_priorities_by_number_and_name() -> None:
    assert [priority_of(p) for p in (None, 0, 4, "critical", "normal", "background")] == [2, 0, 4, 0, 2, 4]
    for wrong in (-1, 5, "urgent"):
        with pytest.raises(BadRecord, match="critical, high"):
            priority_of(wrong)


def test_headers_from_mappings_and_pairs_keep_order_and_duplicates() -> None:
    assert headers_of({"b": b"1", "a": "ü"}) == [("b", b"1"), ("a", "ü".encode())]
    assert headers_of([("a", b"1"), ("a", b"2")]) == [("a", b"1"), ("a", b"2")]
    assert headers_of(None) == headers_of({}) == headers_of([]) == []
    with pytest.raises(BadRecord, match="gq-"):
        headers_of({"gq-batch": b""})


@pytest.mark.parametrize(("delay", "deliver_at", "due_us"), [
    (1.5, None, NOW + 1_500_000), (0, None, None), (-3, None, None), (None, None, None),
    (None, NOW / 1e6 + 2, NOW + 2_000_000), (None, NOW / 1e6 - 2, None),
    (None, datetime.fromtimestamp(NOW / 1e6 + 60, UTC), NOW + 60_000_000)])
def test_delays(delay: Any, deliver_at: Any, due_us: int | None) -> None:
    assert due_of(due_header(delay, deliver_at, NOW), NOW) == due_us


TOO_LONG = DELAY_MS_MAX / 1000 + 1


@pytest.mark.parametrize(("delay", "deliver_at"), [(TOO_LONG, None), (None, NOW / 1e6 + TOO_LONG), (1, NOW)])
def test_delays_out_of_range(delay: Any, deliver_at: Any) -> None:
    with pytest.raises(BadRecord):
        due_header(delay, deliver_at, NOW)


def test_a_delayed_message_is_flagged_and_its_header_comes_first() -> None:
    value, raw, priority, flags, packing = prepared(b"v", {"a": b"1"}, "high", 2, None, None, NOW)
    assert (value, priority, flags, packing) == (b"v", 1, r.DELAYED, r.CODEC_NONE)
    assert [name for name, _ in codec.decode_headers(raw)] == [r.DELAY_HEADER, "a"]


@pytest.mark.parametrize(("value", "packed"), [
    (b"x" * 1000, True), ("ü" * 500, True), (b"short", False), (None, False), (b"", False), (bytes(range(256)), False)])
def test_compression_where_it_gains(value: Any, packed: bool) -> None:
    stored, raw, _, flags, packing = prepared(value, None, None, None, None, "zstd", NOW)
    assert bool(flags & r.COMPRESSED) == (packing == r.CODEC_ZSTD) == packed and raw == b""
    if packed:
        assert codec.decompress(stored) == (value.encode() if isinstance(value, str) else value)
    else:
        assert stored is value


def test_headers_at_their_limit_and_one_more() -> None:
    fits = USER_HEADERS_MAX - 2 - 2 - 1 - 2
    assert len(prepared(b"", {"a": b"x" * fits}, None, None, None, None, NOW)[1]) == USER_HEADERS_MAX
    with pytest.raises(TooLarge):
        prepared(b"", {"a": b"x" * (fits + 1)}, None, None, None, None, NOW)
