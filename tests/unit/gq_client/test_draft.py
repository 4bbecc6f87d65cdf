"""What an app says of a message, in the record's terms."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_client.draft import due_header, headers_of, prepared, priority_of
from gq_proto import codec
from gq_proto import record as r
from gq_proto.errors import BadRecord, TooLarge
from gq_proto.headers import due_of
from gq_proto.limits import DELAY_MS_MAX, USER_HEADERS_MAX

NOW = 1_700_000_000_000_000


def test_priorities_by_number_and_name() -> None:
    assert [priority_of(p) for p in (None, 0, 4, "critical", "normal", "background")] == [2, 0, 4, 0, 2, 4]
    for wrong in (-1, 5, 1.5, "urgent"):
        with pytest.raises(BadRecord, match="critical, high"):
            priority_of(wrong)


def test_headers_from_mappings_and_pairs_keep_order_and_duplicates() -> None:
    assert headers_of({"b": b"1", "a": "ü"}) == [("b", b"1"), ("a", "ü".encode())]
    assert headers_of([("a", b"1"), ("a", b"2")]) == [("a", b"1"), ("a", b"2")]
    assert headers_of(None) == headers_of({}) == headers_of([]) == []
    with pytest.raises(BadRecord, match="gq-"):
        headers_of({"gq-batch": b""})


MAX_S = DELAY_MS_MAX / 1000
YEARS_S = 10 * 365 * 86_400
NAN = float("nan")
INF = float("inf")
HALF_A_DAY = timedelta(hours=12)
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.decimals() | st.fractions() | st.text() | st.datetimes()


@pytest.mark.parametrize(("delay", "after_us"), [
    (None, None), (0, None), (0.0, None), (-0.0, None), (-1, None), (-3.5, None), (-1e300, None), (-2**63, None), (1e-9, None),
    (0.001, 1_000), (1.5, 1_500_000), (Decimal("0.001"), 1_000), (Fraction(1, 8), 125_000), (MAX_S, DELAY_MS_MAX * 1000)])
def test_a_delay_counts_from_the_record_and_none_or_less_means_now(delay: Any, after_us: int | None) -> None:
    found = due_header(delay, None, NOW)
    assert due_of(found, 5) == (None if after_us is None else 5 + after_us)
    assert [name for name, _ in found] == ([] if after_us is None else [r.DELAY_HEADER])


@pytest.mark.parametrize("ahead_us", [1_000, 2_000_000, DELAY_MS_MAX * 1000])
def test_a_moment_ahead_is_kept_to_the_microsecond(ahead_us: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=NOW + ahead_us)
    for said in (moment, moment.astimezone(timezone(timedelta(hours=5, minutes=30))), moment.astimezone().replace(tzinfo=None),
                 Decimal(NOW + ahead_us) / 1_000_000, (NOW + ahead_us) / 1e6):
        found = due_header(None, said, NOW)
        assert found == [(r.DELIVER_AT_HEADER, r.DELAY_VALUE.pack(NOW + ahead_us))]


@pytest.mark.parametrize("moment", [NOW / 1e6, NOW / 1e6 - 2, 0, -1, -YEARS_S, datetime(1901, 1, 1, tzinfo=UTC),
                                    datetime.fromtimestamp(NOW // 10**6, UTC)])
def test_a_moment_that_is_past_means_now(moment: Any) -> None:
    assert due_header(None, moment, NOW) == []


TOO_LONG_MS = (DELAY_MS_MAX + 1, 2**31, 2**32 - 1, 2**32, YEARS_S * 1000, 2**63, 10**5000)


@pytest.mark.parametrize("number", range(len(TOO_LONG_MS)))
def test_what_the_wheel_does_not_hold_is_refused(number: int) -> None:
    too_long = Fraction(TOO_LONG_MS[number], 1000)
    with pytest.raises(BadRecord, match=r"too long: at most 671088\.64 seconds"):
        due_header(too_long, None, NOW)         # type: ignore[arg-type]
    with pytest.raises(BadRecord, match=r"too far ahead: at most 671088\.64 seconds"):
        due_header(None, NOW // 10**6 + too_long, NOW)      # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [NAN, INF, -INF, 1e308, "NaN", "5", b"5", "", True, [1], 1j, Decimal("NaN"), Decimal("-Infinity"),
                                   timedelta(seconds=1), object()])
def test_what_is_no_number_is_refused(wrong: Any) -> None:
    for delay, deliver_at in ((wrong, None), (None, wrong)):
        with pytest.raises(BadRecord, match="is not a number of seconds"):
            due_header(delay, deliver_at, NOW)


def test_times_outside_the_calendar_and_two_answers_to_one_question() -> None:
    for wrong in (datetime.max.replace(tzinfo=timezone(-HALF_A_DAY)), datetime.min.replace(tzinfo=timezone(HALF_A_DAY))):
        with pytest.raises(BadRecord, match="is not a time"):
            due_header(None, wrong, NOW)
    with pytest.raises(BadRecord, match="exclude each other"):
        due_header(0, NOW, NOW)


@given(ANYTHING, st.booleans())
def test_whatever_is_given_is_kept_or_refused(said: Any, absolute: bool) -> None:
    try:
        due = due_of(due_header(None, said, NOW) if absolute else due_header(said, None, NOW), NOW)
    except BadRecord as e:
        assert "\n" not in e.message and len(e.message) < 200
    else:
        assert due is None or NOW < due <= NOW + DELAY_MS_MAX * 1000


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
