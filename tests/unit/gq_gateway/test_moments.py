"""Durations, times and positions of JSON."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_gateway import moments
from gq_gateway.problems import Refused


@pytest.mark.parametrize(("given_", "seconds"), [
    (0, 0), (1.5, 1.5), ("500ms", 0.5), ("30s", 30), ("5m", 300), ("2h", 7200), ("7d", 604800), ("3", 3),
    ("250us", 0.00025), ("1.5h", 5400)])
def test_durations(given_: Any, seconds: float) -> None:
    assert moments.seconds(given_, "x") == pytest.approx(seconds)


@pytest.mark.parametrize("bad", [-1, "-1s", "", "s", "1 s", "1w", "１s", "1e3", float("nan"), float("inf"), 10**10, "9" * 16])
def test_what_is_no_duration_names_its_field(bad: Any) -> None:
    with pytest.raises(Refused) as raised:
        moments.seconds(bad, "delay")
    assert raised.value.field == "delay"


def test_a_bound_is_held() -> None:
    assert moments.milliseconds("1s", "x", 1000) == 1000
    with pytest.raises(Refused):
        moments.milliseconds("1001ms", "x", 1000)


@pytest.mark.parametrize(("given_", "unix"), [
    (1_700_000_000, 1_700_000_000), ("1700000000.5", 1_700_000_000.5), ("2023-11-14T22:13:20Z", 1_700_000_000),
    ("2023-11-14T23:13:20+01:00", 1_700_000_000), ("2023-11-14", 1_699_920_000), ("2023-11-14T22:13:20", 1_700_000_000)])
def test_times(given_: Any, unix: float) -> None:
    assert moments.unix_seconds(given_, "x") == unix


@pytest.mark.parametrize("bad", ["", "now", "2023-13-01", "yesterday", -1, 1e13, float("nan"), "202x",
                                 "9999-12-31T23:59:59-24:00"])
def test_what_is_no_time(bad: Any) -> None:
    with pytest.raises(Refused):
        moments.unix_seconds(bad, "at")


@pytest.mark.parametrize(("given_", "found"), [
    (7, 7), ("7", 7), ("earliest", "earliest"), ("latest", "latest"), ("@1700000000", 1_700_000_000.0),
    ("2023-11-14T22:13:20Z", 1_700_000_000.0)])
def test_positions(given_: Any, found: Any) -> None:
    assert moments.position(given_, "to") == found
    assert type(moments.position(given_, "to")) is type(found)


@pytest.mark.parametrize("bad", [-1, 2**62, "", "first", "@", "@x", "7.5x", "-1"])
def test_what_is_no_position(bad: Any) -> None:
    with pytest.raises(Refused) as raised:
        moments.position(bad, "to")
    assert raised.value.field == "to"


@given(st.integers(0, 4_000_000_000_000_000))
def test_a_time_that_was_shown_is_read_again(us: int) -> None:
    shown = moments.show_time(us)
    assert datetime.fromisoformat(shown) == datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
    assert moments.unix_seconds(shown, "x") == pytest.approx(us / 1e6)


@given(st.text(max_size=30))
def test_garbage_is_refused_not_raised(text: str) -> None:
    for parse in (moments.seconds, moments.unix_seconds, moments.position):
        try:
            parse(text, "x")
        except Refused:
            pass
