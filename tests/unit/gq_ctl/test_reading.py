"""Reading and replaying against hand-made readers: what is present ends where the log ended, what comes begins there."""

import json
from types import SimpleNamespace

import pytest

from gq_ctl import app
from gq_ctl.reading import Reading, stretch
from gq_ctl.units import Position
from gq_proto import codec
from gq_proto.headers import deliver_at_header
from gq_proto.record import DELAYED

DUE_US = 1_700_000_000_000_000


def message(offset, delayed=False):
    headers = codec.encode_headers([deliver_at_header(DUE_US)]) if delayed else b""
    return codec.Record("t", 0, offset, 5, 1, DELAYED if delayed else 0, b"k", b"%d" % offset, headers)


class FakeReader:
    """Hands out batches; a number in place of one: so far it went without a message."""

    def __init__(self, batches, next_offset):
        self.batches, self.next_offset = list(batches), next_offset

    def poll(self, most, timeout=None):
        batch = self.batches.pop(0) if self.batches else []
        if isinstance(batch, int):
            self.next_offset, batch = batch, []
        elif batch:
            self.next_offset = batch[-1].offset + 1
        return batch

    def __iter__(self):
        while batch := self.poll(1):
            yield from batch

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def close(self):
        pass


class FakeClient:
    """One partition with offsets 0 to `end`; `scripts` are the batches of the readers, in the order they are made."""

    def __init__(self, end, *scripts):
        self.end, self.scripts, self.made, self.sent = end, list(scripts), [], []

    def topic(self, name):
        return SimpleNamespace(partitions=[None])

    def partitions(self, name):
        return [SimpleNamespace(partition=0, log_start=0, high_watermark=self.end)]

    def reader(self, topic, partition, from_, stop_at_end=False, include_delayed=False):
        self.made.append((from_, stop_at_end, include_delayed))
        return FakeReader(self.scripts.pop(0), from_)

    def producer(self):
        return self

    def send(self, topic, value, **options):
        self.sent.append((value, options["deliver_at"]))

    def flush(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def offsets(batches):
    return [[one.offset for one in batch] for batch in batches]


def test_what_came_since_is_not_present():
    """A ready record may lie among it: whoever waits for messages must meet that."""
    client = FakeClient(5, [[message(3), message(4), message(5)]], [[message(5)], [message(2)]])
    with Reading(client, "t", None, Position(offset=3)) as reading:
        assert offsets(reading.present(500)) == [[3, 4]]
        assert offsets([reading.coming(500, 0), reading.coming(500, 0)]) == [[5], [2]]
    assert client.made == [(3, True, False), (5, False, False)]


@pytest.mark.parametrize("script", [[[message(7)]], [7]])
def test_nothing_present(script):
    client = FakeClient(5, script, [])
    with Reading(client, "t", None, Position(offset=3), delayed=True) as reading:
        assert [batch for batch in offsets(reading.present(500)) if batch] == [] and reading.coming(500, 0) == []
    assert client.made == [(3, True, True), (5, False, True)], "goes on where the log ended"


def test_a_stretch_ends_before_its_end():
    client = FakeClient(9, [[message(3)], [message(6)], [message(7)]])
    assert [one.offset for one in stretch(client, "t", 0, 3, 7, delayed=True)] == [3, 6] and client.made == [(3, True, True)]


def test_replayed_copies_wait_as_long_as_their_origins(monkeypatch, capfd):
    for argv, delayed, at in (((), False, None), (("--include-delayed",), True, DUE_US / 1e6)):
        client = FakeClient(5, [[message(3), message(4, delayed=True)]])
        monkeypatch.setattr(app.Settings, "client", lambda self, client=client: client)
        assert app.run(["replay", "t", "--to-topic", "u", *argv]) == 0
        assert json.loads(capfd.readouterr().out)["messages"] == 2
        assert client.sent == [(b"3", None), (b"4", at)] and client.made == [(0, True, delayed)]


def test_a_group_gets_delayed_messages_when_they_are_due():
    for argv in (["replay", "t", "--group", "g"], ["consume", "t", "--group", "g"]):
        assert app.run([*argv, "--include-delayed"]) == 2
