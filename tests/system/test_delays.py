"""Delays with all daemons: on time, in order, once, over kills, without an index, and as groups see them."""

import itertools
import json
import random
import resource
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from gq_proto import control
from gq_proto import messages as m
from gq_proto import record as rec
from gq_proto.control import ControlType
from tests.system.groups import describe, put, read_all
from tests.system.harness import Node, free_port, until

TICK_S = 0.010
DEADLINES = 10_000
BUSY_S = 1.0             # what a machine that does other things as well may add
names = (f"delays-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def node(shared_node: Node) -> Iterator[Node]:
    yield shared_node


@pytest.fixture
def topic(node: Node) -> str:
    return make(node)


def make(node: Node, count: int = 1, **config: Any) -> str:
    name = next(names)
    with node.client() as client:
        client.create_topic(name, partitions=count, config=config)
    return name


class Taker:
    """A consumer on a thread: values and times of arrival, everything acked."""

    def __init__(self, node: Node, topic: str, group: str = "g", **options: Any) -> None:
        self.client = node.client()
        self.consumer = self.client.consumer([topic], group, ack="manual", **options)
        self.got: list[tuple[bytes, float]] = []
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Taker":
        self._take(0.1)                      # a member from here on
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._ended:
            self._take(0.2)

    def _take(self, timeout: float) -> None:
        for message in self.consumer.poll(500, timeout=timeout):
            self.got.append((bytes(message.value), time.time()))
            message.ack()

    def __exit__(self, *error: object) -> None:
        self._ended = True
        self._thread.join(10)
        self.consumer.close()
        self.client.close()

    @property
    def values(self) -> list[bytes]:
        return [value for value, _ in self.got]

    def wait(self, count: int, timeout: float = 20.0) -> "Taker":
        until(lambda: len(self.got) >= count, f"{count} messages", timeout, 0.005)
        return self

    def check(self, dues: list[float]) -> list[float]:
        """Each message (its value is its number) came once and not before its time; how late each was."""
        assert sorted(map(int, self.values)) == list(range(len(dues)))
        late = [at - dues[int(value)] for value, at in self.got]
        assert min(late) >= 0, f"{min(late)} s early"
        return late


def ready_records(node: Node, topic: str, partition: int = 0) -> list[tuple[float, list[int]]]:
    """(stamp, ranges) of each ready record in the files of the log."""
    found = []
    for path in sorted((node.data / "logs" / topic / str(partition)).glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            _, _, flags, _, _, timestamp, _, _, key, value, headers = rec.HEADER.unpack_from(data, at)
            key, value = 0 if key == rec.KEY_NULL else key, 0 if value == rec.VALUE_NULL else value
            at += rec.HEADER_SIZE
            if flags & rec.CONTROL and data[at : at + key] == control.control_key(ControlType.DELAY_READY):
                found.append((timestamp / 1e6, control.decode_body(ControlType.DELAY_READY, data[at + key : at + key + value])))
            at += key + value + headers
    return found  # type: ignore[return-value]


def ready_at(node: Node) -> float:
    """When delayd last said that it is."""
    lines = [json.loads(line) for line in node.log("delayd").splitlines() if '"message":"ready"' in line]
    return datetime.fromisoformat(lines[-1]["time"]).timestamp()


# -- on time ------------------------------------------------------------------------------------

def test_never_early_at_the_edges_of_ticks_on_an_idle_topic(node: Node, topic: str) -> None:
    with Taker(node, topic) as taker, node.client() as client:
        dues, due_of = [], {}
        for number in range(60):
            tick = int(time.time() / TICK_S) + 4 + number % 3
            due_us = tick * 10_000 + (-1, 0, 1, 5_000, 9_999)[number % 5]
            dues.append(due_us / 1e6)
            place = client.publish(topic, b"%d" % number, deliver_at=due_us / 1e6)
            due_of[place.offset] = due_us / 1e6
        late = taker.wait(60).check(dues)
        assert sorted(late)[30] < 2 * TICK_S + BUSY_S
    # Messages take a while to arrive, longer than a tick on a busy machine: what was written too early would not be seen by that.
    early = [stamp - due_of[offset] for stamp, ranges in ready_records(node, topic) for low, count in zip(ranges[::2], ranges[1::2])
             for offset in range(low, low + count) if stamp < due_of[offset]]
    assert not early, f"{min(early)} s early"


def test_four_delays_are_delivered_in_due_order(node: Node, topic: str) -> None:
    with Taker(node, topic) as taker, node.client() as client:
        for turn in range(3):
            now = time.time() + 0.1
            for delay in (40, 10, 30, 20):
                client.publish(topic, b"%d" % (turn * 100 + delay), deliver_at=now + delay / 1000)
            taker.wait(4 * turn + 4)
        assert [int(value) for value in taker.values] == [turn * 100 + delay for turn in range(3) for delay in (10, 20, 30, 40)]


def test_many_at_once_with_others_between(node: Node) -> None:
    topic, chance = make(node, 3), random.Random(7)
    dues: list[float] = []
    with Taker(node, topic) as taker, node.client() as client:
        start = time.time()
        with client.producer() as producer:
            for number in range(2_000):
                due = start + chance.choice([0.0, chance.uniform(0.3, 1.5)])
                dues.append(due)
                producer.send(topic, b"%d" % number, deliver_at=due)
        taker.wait(2_000).check(dues)
        stats = client.delay_stats(topic)
        assert sum(part.scheduled for part in stats) == 0 and sum(part.ready for part in stats) > 900


# -- over kills ------------------------------------------------------------------------------------

@pytest.mark.parametrize("killed", [("delayd",), ()], ids=["delayd", "everything"])
def test_what_comes_due_while_daemons_are_down_goes_out_once_when_they_are_back(start_node: Callable[..., Node],
                                                                                killed: tuple[str, ...]) -> None:
    node = start_node()
    topic, chance = make(node, 2), random.Random(11)
    start = time.time()
    dues = [start + 0.8 + chance.uniform(0, 8.0) for _ in range(DEADLINES)]
    with node.client() as client, client.producer() as producer:
        for number, due in enumerate(dues):
            producer.send(topic, b"%d" % number, deliver_at=due, key=b"%d" % number)
    until(lambda: time.time() > start + 1.3, "some were due")
    node.kill9(*killed)
    down = time.time()
    until(lambda: time.time() > down + 1.0, "some come due meanwhile")
    node.start()
    back = ready_at(node)
    with Taker(node, topic) as taker:
        taker.wait(DEADLINES).check(dues)
    stamps = {(partition, offset): stamp for partition in range(2) for stamp, ranges in ready_records(node, topic, partition)
              for low, count in zip(ranges[::2], ranges[1::2]) for offset in range(low, low + count)}
    named = sum(map(sum, (ranges[1::2] for partition in range(2) for _, ranges in ready_records(node, topic, partition))))
    assert len(stamps) == named == DEADLINES, "each is named once"
    with node.client() as client:
        due_of = {(number, message.offset): dues[int(message.value)] for number in range(2)
                  for message in read_all(client, client.topic(topic), number)}
    meanwhile = [stamps[place] for place, due in due_of.items() if down + 0.1 < due < back]
    later = [stamps[place] - due for place, due in due_of.items() if due > back + 0.1]
    assert len(meanwhile) > 100 and len(later) > 100
    assert max(meanwhile) <= back + 2 * TICK_S + BUSY_S and max(later) <= 2 * TICK_S + BUSY_S
    assert max(meanwhile) >= down + 1.0


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
def test_an_index_that_is_lost_or_damaged_is_made_good_from_the_log(start_node: Callable[..., Node], damage: str) -> None:
    node = start_node(daemons=("metad", "logd", "delayd"))
    topic = make(node)
    with node.client() as client:
        with client.producer() as producer:
            for number in range(300):
                producer.send(topic, b"%d" % number, delay=3600 + number)
        client.publish(topic, b"soon", delay=0.05)
        until(lambda: client.delay_stats(topic)[0].ready == 1, "one was due")
        client.cancel_delayed(topic, [(0, offset) for offset in range(20, 70)])
        expected = client.delayed(topic, limit=1_000).messages
        assert len(expected) == 250
        node.terminate("delayd")
        [file] = (node.data / "delays").rglob("*.index")
        raw = bytearray(file.read_bytes())
        if damage == "gone":
            shutil.rmtree(node.data / "delays")
        else:
            raw[100] ^= damage == "flipped"
            file.write_bytes(raw[: len(raw) // 2] if damage == "cut" else raw)
        node.start("delayd")
        assert client.delayed(topic, limit=1_000).messages == expected
        assert client.cancel_delayed(topic, [(0, 20), (0, expected[0].offset)]) == [m.Fate.ALREADY_CANCELLED, m.Fate.CANCELLED]
        node.crash("delayd")
        assert len(client.delayed(topic, limit=1_000).messages) == 249
        client.delete_topic(topic)
        until(lambda: not list((node.data / "delays").rglob("*.index")), "the index of a deleted topic goes with it")


def test_logd_is_killed_again_and_again(start_node: Callable[..., Node]) -> None:
    node = start_node()
    topic = make(node)
    start = time.time()
    dues = [start + 0.5 + number / 250 for number in range(1_000)]
    with node.client() as client, client.producer() as producer:
        for number, due in enumerate(dues):
            producer.send(topic, b"%d" % number, deliver_at=due)
    with Taker(node, topic) as taker:
        for _ in range(2):
            taker.wait(len(taker.got) + 100)
            node.crash("logd")
        until(lambda: len(set(taker.values)) == 1_000, "everything came, some of it twice perhaps")
        assert min(at - dues[int(value)] for value, at in taker.got) >= 0
    named = [offset for _, ranges in ready_records(node, topic) for low, count in zip(ranges[::2], ranges[1::2])
             for offset in range(low, low + count)]
    assert len(named) == len(set(named)) == 1_000


# -- as groups see them ---------------------------------------------------------------------------------

def test_a_delayed_message_holds_up_nothing_and_comes_to_who_was_there_before_it_was_due(node: Node, topic: str) -> None:
    with node.client() as client:
        delayed = client.publish(topic, b"later", delay=4.0)
        with client.producer() as producer:
            for number in range(5_000):
                producer.send(topic, b"%d" % number)
        with Taker(node, topic, "early") as early:
            early.wait(5_000)
            until(lambda: describe(client, "early").partitions[0].committed > 5_000, "acked")
            part = describe(client, "early").partitions[0]
            assert part.lag == 0 and part.acked_ahead == [], "nothing is pinned meanwhile"
            with Taker(node, topic, "made-meanwhile", start="latest") as meanwhile:
                assert time.time() < delayed.timestamp / 1e6 + 3.9, "this machine is too slow for this test"
                early.wait(5_001)
                meanwhile.wait(1)
                assert early.values[-1] == b"later" and meanwhile.values == [b"later"]
        until(lambda: all(p.lag == 0 for p in describe(client, "early").partitions), "acked")
        with Taker(node, topic, "after", start="latest") as after:
            last = client.publish(topic, b"end")
            assert after.wait(1).values == [b"end"] and last.offset > delayed.offset
        at = client.offset_for_time(topic, 0, delayed.timestamp + 4_000_000)
        assert at > 5_000, "its place in time is its ready record"
        client.reset("early", topic, 0, at)
        with Taker(node, topic, "early") as again:
            assert again.wait(2).values == [b"later", b"end"]


def test_a_million_are_acked_behind_one_that_waits_for_days(start_node: Callable[..., Node]) -> None:
    node = start_node()
    topic, count = make(node), 1_000_000
    with node.client() as client:
        client.publish(topic, b"later", delay=7 * 86_400)
        end = put(client, client.topic(topic), (b"%d" % number for number in range(count)))
        with client.consumer([topic], "g", ack="manual") as consumer:
            taken = 0
            while messages := consumer.poll(500, timeout=5) if taken < count else []:
                taken += len(messages)
                for message in messages:
                    message.ack()
            consumer.flush(30)
        assert taken == count
        for _ in range(2):
            part = describe(client, "g").partitions[0]
            assert (part.committed, part.lag, part.acked_ahead, part.in_flight) == (end, 0, [], 0)
            node.crash("groupd")
        assert client.delay_stats(topic)[0].scheduled == 1
        journal = sum(path.stat().st_size for path in (node.data / "logs" / "__groups").rglob("*.log"))
        assert journal < count, f"{journal} bytes are left of a state that is next to nothing"


def test_groupd_restarts_between_ready_and_ack(start_node: Callable[..., Node]) -> None:
    node = start_node()
    topic = make(node)
    with node.client() as client:
        for number in range(20):
            client.publish(topic, b"%d" % number, delay=0.3)
        with client.consumer([topic], "g", ack="manual") as consumer:
            got = []
            until(lambda: got.extend(consumer.poll(10, timeout=1.0)) or len(got) >= 10, "leased, not acked")
            node.crash("groupd")
        with Taker(node, topic) as taker:
            until(lambda: {int(value) for value in taker.values} == set(range(20)), "nothing is lost", 40)


def test_ready_records_that_find_no_room_are_written_once_there_is_some(start_node: Callable[..., Node]) -> None:
    """The first few fit, the next does not; those that were written are not written again."""
    node = start_node()
    topic, count, due = make(node), 100, time.time() + 1.5
    with node.client() as client, client.producer() as producer:
        for number in range(count):
            producer.send(topic, b"%d " % number + b"x" * 1000, deliver_at=due + number * 2 * TICK_S)
        producer.flush()
    [log] = (node.data / "logs" / topic / "0").glob("*.log")
    unlimited = resource.prlimit(node.pid("logd"), resource.RLIMIT_FSIZE, (log.stat().st_size + 500, resource.RLIM_INFINITY))
    with Taker(node, topic) as taker:
        until(lambda: time.time() > due + count * 2 * TICK_S + BUSY_S, "all are due", 20)
        assert 0 < len(taker.got) < count
        resource.prlimit(node.pid("logd"), resource.RLIMIT_FSIZE, unlimited)
        assert [int(value.split()[0]) for value in taker.wait(count).values] == list(range(count))
    named = [offset for _, ranges in ready_records(node, topic) for low, n in zip(ranges[::2], ranges[1::2])
             for offset in range(low, low + n)]
    assert len(named) == len(set(named)) == count


def test_what_is_scheduled_is_told_in_status_and_statistics(node: Node) -> None:
    topic = make(node, 2)
    with node.client() as client:
        for number in range(10):
            client.publish(topic, b"%d" % number, delay=60, partition=number % 2)
        client.publish(topic, b"now", delay=0.02, partition=0)
        until(lambda: [(part.scheduled, part.ready) for part in client.delay_stats(topic)] == [(5, 1), (5, 0)], "known and ready")
        first, second = client.delay_stats(topic)
        assert first.overdue == 0
        assert 0 <= first.lateness_p50_us <= first.lateness_p99_us < (2 * TICK_S + BUSY_S) * 1e6 and second.lateness_p50_us == -1
        assert time.time() + 50 < first.next_due_us / 1e6 < time.time() + 61
        status = node.status("delayd")
        assert status and status.facts["scheduled"] >= 10 and status.facts["unread"] == 0


def test_retention_by_size_takes_what_waits_and_says_so(start_node: Callable[..., Node]) -> None:
    address = f"127.0.0.1:{free_port()}"
    node = start_node(daemons=("metad", "logd", "delayd"), env={"GOQUEUE_DELAYD_METRICS_ADDR": address})
    topic = make(node, segmentBytes=65_536, retentionBytes=131_072)
    with node.client() as client:
        for number in range(5):
            client.publish(topic, b"%d" % number, delay=600)
        until(lambda: client.delay_stats(topic)[0].scheduled == 5, "scheduled")
        with client.producer() as producer:
            for _ in range(600):
                producer.send(topic, bytes(1_000))
        until(lambda: client.delay_stats(topic)[0].expired == 5, "expired", 20)
        assert client.delayed(topic).messages == [] and client.cancel_delayed(topic, [(0, 1)]) == [m.Fate.NONE]
        client.publish(topic, b"now", delay=0.02)
        client.publish(topic, b"later", delay=60)
        until(lambda: [(part.ready, part.scheduled) for part in client.delay_stats(topic)] == [(1, 1)], "one ready, one waits")
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    place = f'partition="0",topic="{topic}"'
    for line in (f"goqueue_delay_scheduled{{{place}}} 1.0", f"goqueue_delay_overdue{{{place}}} 0.0",
                 f'goqueue_delay_ready_total{{topic="{topic}"}} 1.0', f'goqueue_delay_cancelled_total{{topic="{topic}"}} 0.0',
                 f'goqueue_delay_expired_total{{topic="{topic}"}} 5.0',
                 f'goqueue_delay_lateness_seconds_count{{topic="{topic}"}} 1.0', "goqueue_delay_clock_jumps_total 0.0"):
        assert line in lines, "\n".join(line for line in lines if "delay" in line)
