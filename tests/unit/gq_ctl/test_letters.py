from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq_ctl import letters, redrive
from gq_proto import codec
from gq_proto.errors import UnknownGroup, UnknownTopic
from gq_proto.message import Record
from gq_proto.messages import PartitionMeta, TopicConfig, TopicMeta


@given(st.integers(0, 30), st.integers(0, 40), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), max_size=6))
def test_holes_are_what_no_range_covers(low, high, found):
    acked, end = [], 0
    for gap, count in found:
        acked += (end + gap, count)
        end += gap + count
    covered = {offset for start, count in zip(acked[::2], acked[1::2]) for offset in range(start, start + count)}
    expected = [offset for offset in range(low, high) if offset not in covered]
    assert [offset for start, stop in letters.holes(low, high, acked) for offset in range(start, stop)] == expected


@given(st.lists(st.integers(0, 50)))
def test_ranges_cover_exactly_the_offsets(offsets):
    found = redrive.ranges(offsets)
    assert [o for low, high in found for o in range(low, high)] == sorted(set(offsets))
    assert all(a[1] < b[0] for a, b in pairwise(found))


def letter(offset, origin, group="g", topic="t", time=100):
    headers = codec.encode_headers([("gq-dlq-topic", topic.encode()), ("gq-dlq-partition", b"1"), ("gq-dlq-offset", b"%d" % origin),
                                    ("gq-dlq-count", b"3"), ("gq-dlq-reason", "müde".encode()), ("gq-dlq-time", b"%d" % time),
                                    ("gq-dlq-group", group.encode()), ("own", b"1")])
    return letters.of(Record("t.dlq", 0, offset, 5, 2, 0, b"k", b"v%d" % offset, headers))


def test_a_letter_says_where_it_came_from():
    found = letter(7, 42)
    assert found[1:] == ("t", 1, 42, 3, "müde", 100, "g") and found.message.offset == 7
    assert letters.of(Record("t.dlq", 0, 1))[1:] == ("", -1, -1, -1, "", -1, "")


class Fake:
    """A client that notes what is asked of it."""

    def __init__(self, log_start=0, created=0, groups=("g", letters.BOOKS)):
        self.groups, self.marks, self.sent = groups, [], []
        self.topics = {name: TopicMeta(name, id_, TopicConfig(), [PartitionMeta("n", 1)] * 2, created_us=created)
                       for name, id_ in (("t", 11), ("t.dlq", 12))}
        self.log_start = log_start

    def topic(self, name):
        if name not in self.topics:
            raise UnknownTopic(name)
        return self.topics[name]

    def partitions(self, name):
        self.topic(name)
        return [SimpleNamespace(partition=number, log_start=self.log_start) for number in range(2)]

    def mark(self, group, marks, create=False):
        if group not in self.groups:
            raise UnknownGroup(group)
        self.marks += [(group, m.topic_id, m.partition, m.ack, m.low, m.high, create) for m in marks]

    def producer(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def send(self, topic, value, **options):
        self.sent.append((topic, value, options["key"], options["headers"], options["priority"]))

    def flush(self):
        self.sent.append("flushed")


def test_redrive_reopens_the_origins_and_then_acks_the_letters():
    client = Fake()
    done = redrive.Redrive(client, "t", False)
    done.run([letter(5, 40), letter(6, 41), letter(9, 50)])
    assert client.marks == [("g", 11, 1, False, 40, 42, False), ("g", 11, 1, False, 50, 51, False),
                            (letters.BOOKS, 12, 0, True, 5, 7, True), (letters.BOOKS, 12, 0, True, 9, 10, True)]
    assert (done.redriven, done.published, client.sent) == (3, 0, [])


@pytest.mark.parametrize(("client", "why"), [
    (Fake(log_start=41), "fell off the log"), (Fake(created=101), "made anew"), (Fake(groups=(letters.BOOKS,)), "no such group"),
])
def test_what_has_no_origin_any_more_is_published_before_it_is_acked(client, why):
    done = redrive.Redrive(client, "t", False)
    done.run([letter(5, 40)])
    assert client.sent == [("t", b"v5", b"k", [("own", b"1")], 2), "flushed"], why
    assert client.marks == [(letters.BOOKS, 12, 0, True, 5, 6, True)]
    assert (done.redriven, done.published) == (0, 1)


def test_publish_never_asks_the_group():
    client = Fake()
    done = redrive.Redrive(client, "t", True)
    done.run([letter(5, 40)])
    assert (done.redriven, done.published) == (0, 1) and client.marks[0][0] == letters.BOOKS
