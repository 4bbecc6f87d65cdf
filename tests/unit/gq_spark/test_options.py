"""What a reader may be asked for, and what it says to anything else."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from gq_proto.errors import BadName, BadRequest
from gq_spark.options import EARLIEST, LATEST, Options, microseconds, parse


def test_defaults():
    assert parse({"path": "/d"}) == Options(("/d",))
    assert parse({"path": "/d"}).starting == EARLIEST and parse({"path": "/d"}, streaming=True).starting == LATEST


def test_all_of_them_whatever_their_case():
    said = parse({"PATH": "/a, /b", "Topic": "orders,pay*", "startingoffsets": '{"orders": {"0": 5, "1": -1}}',
                  "endingOffsets": "Latest", "isolation": "READ_UNCOMMITTED", "includedelayed": "true", "includeControl": "True",
                  "failOnDataLoss": "false", "pushFilters": "true", "minPartitions": "8"})
    assert said == Options(("/a", "/b"), ("orders", "pay*"), {"orders": {0: 5, 1: LATEST}}, LATEST, None, None, False, True, True,
                           False, True, 8)
    assert parse({"path": '["/a,b", "/c"]'}).paths == ("/a,b", "/c")
    assert parse({"path": "file:///a"}).paths == ("/a",)
    assert parse({"paths": '["/a", "/b"]'}).paths == ("/a", "/b")
    assert parse({"path": "/d", "maxOffsetsPerTrigger": "10"}, streaming=True).max_offsets == 10


@pytest.mark.parametrize(("text", "us"), [
    ("1800000000", 1_800_000_000_000_000), ("1800000000.000001", 1_800_000_000_000_001), ("0", 0),
    ("2027-01-15T08:00:00Z", 1_800_000_000_000_000), ("2027-01-15T09:30:00.000001+01:30", 1_800_000_000_000_001),
])
def test_times(text, us):
    assert parse({"path": "/d", "startingTimestamp": text}).starting_us == us
    assert parse({"path": "/d", "endingTimestamp": text}).ending_us == us


def test_microseconds_are_exact():
    moment = datetime(9999, 1, 1, tzinfo=UTC) + timedelta(microseconds=123457)
    assert microseconds(moment) % 1_000_000 == 123457
    assert microseconds(datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)) == -1
    assert microseconds(datetime(2027, 1, 15, 9, tzinfo=timezone(timedelta(hours=1)))) == 1_800_000_000_000_000


@pytest.mark.parametrize(("given", "text"), [
    ({}, "option path: name a data directory"), ({"path": "/a,,/b"}, "option path"), ({"path": "[1"}, "option path is not JSON"),
    ({"startingOffset": "latest"}, "option startingOffset is unknown: there are path"),
    ({"maxOffsetsPerTrigger": "1"}, "option maxOffsetsPerTrigger is for spark.readStream only"),
    ({"startingOffsets": "newest"}, "option startingOffsets is not JSON"),
    ({"startingOffsets": '{"t": 5}'}, "use earliest, latest or"), ({"startingOffsets": '{"t": {"0": -3}}'}, "use earliest"),
    ({"endingOffsets": '{"t": {"0": 1.5}}'}, "option endingOffsets: use"), ({"startingOffsets": "[]"}, "use earliest"),
    ({"startingTimestamp": "2027-01-15T08:00:00"}, "use RFC 3339 with a zone"), ({"endingTimestamp": "nan"}, "is no time"),
    ({"startingTimestamp": "1e300"}, "is no time"),
    ({"startingTimestamp": "1", "startingOffsets": "latest"}, "exclude each other"),
    ({"isolation": "dirty"}, "use read_committed or read_uncommitted"), ({"includeDelayed": "yes"}, "use true or false"),
    ({"minPartitions": "-1"}, "a whole number from 0"), ({"minPartitions": "many"}, "a whole number"),
    ({"minPartitions": "9" * 5000}, "a whole number"), ({"path": '["/a", 5]'}, "option path: name a data directory"),
    ({"path": "[" * 100_000}, "option path is not JSON"), ({"startingOffsets": '{"t": {"-1": 5}}'}, "use earliest"),
])
def test_what_is_refused(given, text):
    with pytest.raises(BadRequest, match=text):
        parse(given if not given or "path" in given else {"path": "/d", **given})


def test_a_stream_has_no_end():
    for name in ("endingOffsets", "endingTimestamp", "pushFilters"):
        with pytest.raises(BadRequest, match=f"option {name} is for spark.read only"):
            parse({"path": "/d", name: "1"}, streaming=True)
    with pytest.raises(BadRequest, match="a whole number from 1"):
        parse({"path": "/d", "maxOffsetsPerTrigger": "0"}, streaming=True)


def test_a_topic_is_a_name_or_a_pattern():
    with pytest.raises(BadName, match="bad topic name"):
        parse({"path": "/d", "topic": "a/b"})
    assert parse({"path": "/d", "topic": "a?, [bc]*"}).topics == ("a?", "[bc]*")
