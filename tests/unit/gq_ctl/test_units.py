from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_ctl import units
from gq_proto.limits import DELAY_MS_MAX

NOW = 1_700_000_000_000_000


@pytest.mark.parametrize(("text", "ms"), [
    ("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("7d", 604_800_000), ("1h30m", 5_400_000),
    ("30", 30_000), ("0", 0), ("0.5", 500), ("1.5s", 1500), (" 2s ", 2000), ("1w", 604_800_000), ("500us", 0),
])
def test_durations(text, ms):
    assert units.duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "s", "-1s", "5 m", "5x", "1h-3m", "1h30", "٣s", "1e3", "ms5", "5mm"])
def test_what_is_no_duration_is_named(text):
    with pytest.raises(ValueError, match="is not a duration: write 500ms"):
        units.duration_ms(text)


@pytest.mark.parametrize(("text", "ms"), [
    ("-1", 0), ("-1s", 0), ("-1000000d", 0), ("0", 0), ("-0", 0), ("1ms", 1), ("0.001", 1), ("1us", 1), ("1500us", 2),
    ("1.0004s", 1001), ("7d18h24m48.64s", DELAY_MS_MAX), ("671088640ms", DELAY_MS_MAX), ("671088.64", DELAY_MS_MAX),
])
def test_delays_are_never_cut_short_and_less_than_none_is_now(text, ms):
    assert units.delay_ms(text) == ms


TOO_LONG_MS = [DELAY_MS_MAX + 1, 2**31, 2**32 - 1, 2**32, 10 * 365 * 86_400_000]


@pytest.mark.parametrize("ms", TOO_LONG_MS)
def test_delays_that_are_too_long(ms):
    for parse in (lambda: units.delay_ms(f"{ms}ms"), lambda: units.delay_ms(f"{ms // 1000}.{ms % 1000:03}"),
                  lambda: units.delay_of(ms), lambda: units.delay_of(float(ms))):
        with pytest.raises(ValueError, match=r"too long: at most 671088640ms"):
            parse()
    for text in (f"+{ms}ms", units.show_time(NOW + ms * 1000), f"{(NOW + ms * 1000) / 1e6:.3f}"):
        with pytest.raises(ValueError, match=r"too far ahead: at most 671088640ms"):
            units.deliver_at_us(text, NOW)


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "-", "--1s", "+1s", "1e3", "1y", "soon", ""])
def test_what_is_no_delay_is_named(text):
    with pytest.raises(ValueError, match="is not a duration"):
        units.delay_ms(text)


@pytest.mark.parametrize("number", [2**63, 10**400])
def test_numbers_that_fit_nowhere(number):
    for parse in (units.duration_ms, units.delay_ms):
        with pytest.raises(ValueError, match="is longer than 3000 years"):
            parse(str(number))
    for text in (f"{number}", f"@{number}", f"{number}.5"):
        with pytest.raises(ValueError, match="is after the year 9999"):
            units.deliver_at_us(text, NOW)


@pytest.mark.parametrize("ms", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_none(ms):
    with pytest.raises(ValueError, match="is not a delay"):
        units.delay_of(ms)


def test_times_to_wait_for():
    assert units.deliver_at_us("+671088640ms", NOW) == NOW + DELAY_MS_MAX * 1000
    assert units.deliver_at_us("-1h", NOW) < NOW and units.deliver_at_us("0", NOW) == 0


@pytest.mark.parametrize(("text", "size"), [
    ("0", 0), ("1024", 1024), ("64KiB", 65536), ("64k", 65536), ("64KB", 64_000), ("1.5MiB", 1_572_864), ("1G", 2**30),
    ("10 MB", 10**7),
])
def test_sizes(text, size):
    assert units.size_bytes(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "-1", "1XB", "1 2"])
def test_what_is_no_size_is_named(text):
    with pytest.raises(ValueError, match="is not a size"):
        units.size_bytes(text)


def test_unlimited_is_minus_one():
    parse = units.unlimited(units.size_bytes)
    assert [parse("unlimited"), parse("-1"), parse("1k")] == [-1, -1, 1024]


@pytest.mark.parametrize(("text", "us"), [
    ("2026-05-01T12:00:00Z", 1_777_636_800_000_000), ("2026-05-01T12:00:00.123456+02:00", 1_777_629_600_123_456),
    ("1700000000", NOW), ("1700000000.25", NOW + 250_000), ("@1700000000", NOW), ("1700000000.1234567", NOW + 123_456),
    ("-1h", NOW - 3_600_000_000), ("+5m", NOW + 300_000_000), ("now", NOW), ("-100000d", 0),
])
def test_times(text, us):
    assert units.time_us(text, NOW) == us


def test_a_date_without_a_zone_is_local():
    local = datetime(2026, 5, 1).astimezone()
    assert units.time_us("2026-05-01", NOW) == int(local.timestamp()) * 1_000_000


@pytest.mark.parametrize("text", ["", "-", "yesterday", "2026-13-01", "12:00", "--1h", "@", "1e9"])
def test_what_is_no_time_is_named(text):
    with pytest.raises(ValueError, match="is not a"):
        units.time_us(text, NOW)


def test_positions():
    assert units.position("17", NOW) == units.Position(offset=17)
    assert units.position("1700000000", NOW).offset == 1_700_000_000
    assert units.position("@1700000000", NOW).time_us == NOW
    assert units.position("latest", NOW).name == "latest"
    assert units.position("-1h", NOW).time_us == NOW - 3_600_000_000
    with pytest.raises(ValueError, match="is not a position: write an offset"):
        units.position("newest", NOW)


def test_priorities():
    assert [units.priority(text) for text in ("0", "critical", "Normal", "4")] == [0, 0, 2, 4]
    for text in ("5", "-1", "urgent", ""):
        with pytest.raises(ValueError, match="is not a priority"):
            units.priority(text)


@given(st.integers(0, 4_000_000_000_000_000))
def test_a_shown_time_parses_back(us):
    assert units.time_us(units.show_time(us), NOW) == us


@given(st.integers(0, 10**12))
def test_a_shown_duration_is_that_duration_but_for_small_units(ms):
    shown = units.duration_ms(units.show_duration(ms))
    assert shown <= ms < shown + max(1000, shown // 20 + 60_000)


def test_shown_sizes():
    shown = [units.show_size(n) for n in (-1, 0, 1023, 1024, 1536, 3 * 2**40)]
    assert shown == ["unlimited", "0 B", "1023 B", "1 KiB", "1.5 KiB", "3.0 TiB"]
