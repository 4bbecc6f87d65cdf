"""Groups on real daemons: leases, acks, retries, offsets, as apps meet them."""

import asyncio
import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gq_client import Client
from gq_client.routing import To
from gq_proto.errors import ModeMismatch, StaleReceipt, Unavailable
from gq_proto.limits import GROUPS_PARTITIONS
from gq_proto.messages import Kind, ListGroups, Op
from gq_proto.receipt import parse_receipt
from tests.system.groups import (
    FAST,
    dead_letters,
    delete_topic,
    describe,
    drain,
    eventually,
    make_topic,
    mark,
    members,
    nothing_comes,
    number,
    numbers,
    numbers_of,
    origin,
    pause_group,
    put,
    settle_receipt,
    total,
)
from tests.system.harness import Node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Node(tmp_path_factory.mktemp("groups"), config=FAST) as made:
        yield made.start()


@pytest.fixture
def client(node: Node) -> Any:
    with node.client() as client:
        yield client


def test_a_group_gets_everything_once_in_order(client: Any) -> None:
    topic = make_topic(client, "plain", 3)
    for partition in range(3):
        put(client, topic, numbers(0, 2000), partition)
    with client.consumer("plain", "plain-g", ack="manual") as consumer:
        messages = drain(consumer, 6000)
        consumer.flush()
    for partition in range(3):
        assert [m.value for m in messages if m.partition == partition] == numbers(0, 2000)
    assert {m.delivery for m in messages} == {1}
    assert all(p.committed == p.end for p in describe(client, "plain-g").partitions)
    assert total(client, "plain-g", "lag") == total(client, "plain-g", "in_flight") == 0


def test_499_of_500(client: Any) -> None:
    topic = make_topic(client, "most")
    put(client, topic, numbers(0, 500))
    with client.consumer("most", "most-g", ack="manual") as consumer:
        messages = drain(consumer, 500, ack=False)
        for message in messages:
            if number(message) != 321:
                message.ack()
    with client.consumer("most", "most-g", ack="manual") as consumer:
        assert numbers_of(drain(consumer, 1)) == [321]
        assert nothing_comes(consumer)


def test_auto_acks_when_the_next_is_asked_for(client: Any) -> None:
    topic = make_topic(client, "auto")
    put(client, topic, numbers(0, 10))
    with pytest.raises(RuntimeError), client.consumer("auto", "auto-g") as consumer:
        for message in consumer:
            if number(message) == 4:
                raise RuntimeError("the app fails")
    with client.consumer("auto", "auto-g") as consumer:
        seen = []
        for message in consumer:
            seen.append(number(message))
            if number(message) == 7:
                break
    assert seen == [4, 5, 6, 7]
    with client.consumer("auto", "auto-g", ack="none") as consumer:
        assert numbers_of(drain(consumer, 2, ack=False)) == [8, 9]
    assert total(client, "auto-g", "lag") == 0


@pytest.mark.quiet
def test_nack_backs_off_doubling_and_does_not_spin(client: Any) -> None:
    topic = make_topic(client, "backoff", maxRetries=5, backoffBaseMs=100)
    offset = put(client, topic, [b"bad"]) - 1
    times: list[float] = []
    with client.consumer("backoff", "backoff-g", ack="manual") as consumer:
        for delivery in range(1, 6):
            message = drain(consumer, 1, ack=False)[0]
            times.append(time.monotonic())
            assert message.delivery == delivery
            message.nack(sync=True)
        gaps = [b - a for a, b in itertools.pairwise(times)]
        for gap, wait in zip(gaps, (0.1, 0.2, 0.4, 0.8), strict=True):
            assert wait <= gap < wait + 0.5
        letter = eventually(lambda: dead_letters(client, "backoff"), "the fifth failure is the last")[0]
    assert origin(letter) | {"time": "", "reason": ""} == {
        "topic": "backoff", "partition": "0", "offset": str(offset), "count": "5", "group": "backoff-g", "time": "", "reason": ""}
    assert letter.value == b"bad" and letter.key == b"k"


@pytest.mark.quiet
def test_nack_with_a_delay_waits_that_long(client: Any) -> None:
    topic = make_topic(client, "delayed-nack", backoffBaseMs=1)
    put(client, topic, [b"x"])
    with client.consumer("delayed-nack", "delayed-nack-g", ack="manual") as consumer:
        drain(consumer, 1, ack=False)[0].nack(0.7, sync=True)
        start = time.monotonic()
        assert drain(consumer, 1)[0].delivery == 2
        assert 0.69 <= time.monotonic() - start < 1.5


def test_reject_goes_straight_to_the_dead_letters_with_headers_and_redrive_brings_it_back(client: Any) -> None:
    topic = make_topic(client, "reject", 2)
    from gq_proto import codec
    headers = codec.encode_headers([("a", b"1"), ("a", b"2")])
    offset = put(client, topic, [b"zero", b"one"], 1, headers) - 1
    with client.consumer("reject", "reject-g", ack="manual") as consumer:
        for message in drain(consumer, 2, ack=False):
            if message.offset == offset:
                message.reject("no such customer", sync=True)
            else:
                message.ack()
        letter = eventually(lambda: dead_letters(client, "reject"), "a dead letter")[0]
        assert (letter.partition, letter.value, letter.headers) == (1, b"one", [("a", b"1"), ("a", b"2")])
        assert origin(letter)["reason"] == "no such customer" and origin(letter)["offset"] == str(offset)
        eventually(lambda: total(client, "reject-g", "lag") == 0, "the origin is done with")
        assert mark(client, "reject-g", topic, 1, False, offset, offset + 1) == 1
        again = drain(consumer, 1)[0]
        assert (again.offset, again.delivery) == (offset, 1)
    assert len(dead_letters(client, "reject")) == 1


@pytest.mark.quiet
def test_a_lease_expires_with_nobody_there(client: Any) -> None:
    topic = make_topic(client, "unattended", visibilityMs=300)
    put(client, topic, numbers(0, 3))
    with client.consumer("unattended", "unattended-g", ack="manual", hold=True) as consumer:
        drain(consumer, 3, ack=False)
        assert total(client, "unattended-g", "in_flight") == 3
    eventually(lambda: total(client, "unattended-g", "in_flight") == 0, "leases expire by themselves", 5)
    assert total(client, "unattended-g", "lag") == 3


def test_receipts_outlive_their_process_and_late_ones_count_until_the_redelivery(client: Any) -> None:
    topic = make_topic(client, "receipts", visibilityMs=300, backoffBaseMs=1)
    put(client, topic, numbers(0, 3))
    with client.consumer("receipts", "receipts-g", ack="manual", hold=True) as consumer:
        receipts = {number(m): m.receipt for m in drain(consumer, 3, ack=False)}
    for field, wrong in (("random", 1), ("delivery", 2), ("partition", 1), ("group_number", 10**6), ("lease", 1)):
        forged = parse_receipt(receipts[0])._replace(**{field: wrong}).text()
        assert settle_receipt(client, forged).error == StaleReceipt.code, f"another {field} than was given out"
    assert settle_receipt(client, receipts[0]).error == 0
    eventually(lambda: total(client, "receipts-g", "in_flight") == 0, "the leases lapse", 5)
    assert settle_receipt(client, receipts[1]).error == 0, "late, but nobody else has it"
    with client.consumer("receipts", "receipts-g", ack="manual", visibility=30) as other:
        message = drain(other, 1, ack=False)[0]
        assert (number(message), message.delivery) == (2, 2)
        assert settle_receipt(client, receipts[2]).error == StaleReceipt.code
        assert settle_receipt(client, receipts[2], Op.NACK).error == StaleReceipt.code
        message.ack(sync=True)
    assert total(client, "receipts-g", "lag") == 0


def test_a_receipt_of_a_topic_made_anew_is_refused(client: Any) -> None:
    topic = make_topic(client, "anew")
    put(client, topic, [b"old"])
    with client.consumer("anew", "anew-g", ack="manual", hold=True) as consumer:
        receipt = drain(consumer, 1, ack=False)[0].receipt
    delete_topic(client, "anew")
    topic = make_topic(client, "anew")
    put(client, topic, [b"new"])
    assert settle_receipt(client, receipt).error != 0
    with client.consumer("anew", "anew-g", ack="manual") as consumer:
        assert [m.value for m in drain(consumer, 1)] == [b"new"]


@pytest.mark.quiet
def test_slow_work_keeps_its_lease_and_a_long_message_loses_only_itself(client: Any) -> None:
    topic = make_topic(client, "slow", visibilityMs=1500, backoffBaseMs=5000)
    put(client, topic, numbers(0, 100))
    handed: list[tuple[int, int]] = []
    with client.consumer("slow", "slow-g") as consumer:
        for message in consumer.messages(timeout=1):
            handed.append((number(message), message.delivery))
            time.sleep(3 if number(message) == 50 and message.delivery == 1 else 0.03)   # this is the work
    assert [n for n, delivery in handed if delivery == 1] == list(range(100))
    assert [n for n, delivery in handed if delivery > 1] in ([], [50]), "the long one may come again, no other"


@pytest.mark.quiet
def test_extend_keeps_a_message(client: Any) -> None:
    topic = make_topic(client, "extend", visibilityMs=300, backoffBaseMs=1)
    put(client, topic, [b"x"])
    with client.consumer("extend", "extend-g", ack="manual") as consumer:
        message = drain(consumer, 1, ack=False)[0]
        message.extend(30, sync=True)
        assert nothing_comes(consumer, 0.8)
        message.ack(sync=True)
    assert total(client, "extend-g", "lag") == 0


def test_release_is_uncounted_and_at_once(client: Any) -> None:
    topic = make_topic(client, "release", backoffBaseMs=10_000)
    put(client, topic, [b"x"])
    with client.consumer("release", "release-g", ack="manual") as consumer:
        drain(consumer, 1, ack=False)[0].release(sync=True)
        assert drain(consumer, 1, 2)[0].delivery == 1


def test_paused_groups_and_consumers_get_nothing(client: Any) -> None:
    topic = make_topic(client, "pause")
    put(client, topic, numbers(0, 2))
    with client.consumer("pause", "pause-g", ack="manual") as consumer:
        drain(consumer, 2)
        pause_group(client, "pause-g", True)
        put(client, topic, numbers(2, 4))
        assert nothing_comes(consumer)
        assert describe(client, "pause-g").paused
        pause_group(client, "pause-g", False)
        assert numbers_of(drain(consumer, 2)) == [2, 3]
        consumer.pause()
        put(client, topic, numbers(4, 6))
        assert nothing_comes(consumer)
        consumer.resume()
        assert numbers_of(drain(consumer, 2)) == [4, 5]


def test_partitioned_members_share_partitions_and_the_idle_take_over(client: Any) -> None:
    topic = make_topic(client, "shares", 2)
    with client.consumer("shares", "shares-g") as a, client.consumer("shares", "shares-g") as b:
        def owned() -> bool:
            return sorted(x.partition for c in (a, b) for x in c.assignment) == [0, 1] and len(a.assignment) == 1
        eventually(owned, "one partition each")
        with client.consumer("shares", "shares-g") as idle:
            eventually(lambda: len(members(client, "shares-g")) == 3, "a third member")
            assert idle.assignment == []
            a.close()
            eventually(lambda: len(idle.assignment) == len(b.assignment) == 1, "the idle one takes over")
            assert sorted(x.partition for c in (idle, b) for x in c.assignment) == [0, 1]
            for partition in range(2):
                put(client, topic, numbers(0, 5), partition)
            got: list[Any] = []
            for consumer in (idle, b):
                got += drain(consumer, 5 * len(consumer.assignment))
            assert len({(m.partition, m.offset) for m in got}) == 10


def test_in_shared_mode_all_work_on_one_partition(client: Any) -> None:
    topic = make_topic(client, "crowd")
    put(client, topic, numbers(0, 600))
    seen: list[list[int]] = [[], [], []]
    together = threading.Barrier(3)

    def work(i: int) -> None:
        with client.consumer("crowd", "crowd-g", mode="shared", max_poll=20) as consumer:
            for message in consumer.messages(timeout=1.5):
                seen[i].append(number(message))
                if len(seen[i]) in (1, 40):
                    together.wait(20)            # nobody goes on before the others have as much

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(itertools.chain(*seen)) == list(range(600))
    assert min(map(len, seen)) >= 40, "all work"
    with pytest.raises(ModeMismatch), client.consumer("crowd", "crowd-g", mode="partitioned") as consumer:
        consumer.poll(1, timeout=5)


def test_commit_reset_and_replay(client: Any) -> None:
    topic = make_topic(client, "rewind")
    end = put(client, topic, numbers(0, 100))
    base = end - 100
    with client.consumer("rewind", "rewind-g", ack="manual") as consumer:
        drain(consumer, 100)
        consumer.flush()
        assert mark(client, "rewind-g", topic, 0, False, base + 40, base + 50) == 10
        assert numbers_of(drain(consumer, 10)) == list(range(40, 50))
        assert nothing_comes(consumer)
        mark(client, "rewind-g", topic, 0, True, 0, base + 90)
        mark(client, "rewind-g", topic, 0, False, base + 90, -1)
        assert total(client, "rewind-g", "lag") == 10
        assert numbers_of(drain(consumer, 10)) == list(range(90, 100))
    mark(client, "new-g", topic, 0, True, 0, base + 97, create=True)
    with client.consumer("rewind", "new-g", ack="manual") as consumer:
        assert numbers_of(drain(consumer, 3)) == [97, 98, 99]


def test_a_new_group_may_start_at_the_end_or_at_a_time(client: Any) -> None:
    topic = make_topic(client, "begin")
    put(client, topic, numbers(0, 5))
    middle = time.time() + 0.0005
    eventually(lambda: time.time() > middle + 0.002, "the clock moves on")
    put(client, topic, numbers(5, 10))
    with client.consumer("begin", "late-g", start="latest", ack="manual") as late, \
            client.consumer("begin", "middle-g", start=middle + 0.001, ack="manual") as timed:
        assert numbers_of(drain(timed, 5)) == [5, 6, 7, 8, 9]
        assert nothing_comes(late)
        put(client, topic, numbers(10, 12))
        assert numbers_of(drain(late, 2)) == [10, 11]


def test_consuming_does_not_create_a_topic_but_waits_for_it(client: Any) -> None:
    with client.consumer("not-yet", "not-yet-g", ack="manual") as consumer:
        assert nothing_comes(consumer)
        topic = make_topic(client, "not-yet")
        put(client, topic, [b"x"])
        assert [m.value for m in drain(consumer, 1)] == [b"x"]


def test_asyncio(node: Node) -> None:
    with node.client() as client:
        topic = make_topic(client, "aio", 2)
        for partition in range(2):
            put(client, topic, numbers(0, 300), partition)

    async def run() -> list[Any]:
        got: list[Any] = []
        async with node.async_client() as client, client.consumer("aio", "aio-g", ack="manual") as consumer:
            async for message in consumer:
                got.append(message)
                if len(got) % 100:
                    message.ack()
                else:
                    await message.ack(sync=True)
                if len(got) == 600:
                    break
            await consumer.flush()
            assert await consumer.poll(1, timeout=0.2) == []
        return got

    got = asyncio.run(asyncio.wait_for(run(), 30))
    assert len({(m.partition, m.offset) for m in got}) == 600
    with node.client() as client:
        assert total(client, "aio-g", "lag") == 0


def test_exports_say_what_the_group_knows(node: Node, client: Any) -> None:
    topic = make_topic(client, "seen")
    base = put(client, topic, numbers(0, 10)) - 10
    with client.consumer("seen", "seen-g", ack="manual") as consumer:
        for message in drain(consumer, 10, ack=False):
            if number(message) not in (3, 7):
                message.ack()
        consumer.flush()
        path = node.data / "offsets" / "seen-g" / "seen-0.offset"

        def exported() -> Any:
            return json.loads(path.read_text()) if path.exists() else {}
        eventually(lambda: exported().get("ackedAhead") == [[base + 4, base + 7], [base + 8, base + 10]],
                   "the export follows", 10)
        assert exported()["committed"] == base + 3
    group = json.loads((node.data / "meta" / "consumer_groups" / "seen-g.json").read_text())
    assert group["group"] == "seen-g" and group["topics"] == ["seen"]


def test_every_group_is_listed_with_its_lag(client: Any) -> None:
    topic = make_topic(client, "listed")
    put(client, topic, numbers(0, 7))
    names = [f"listed-{i}" for i in range(20)]
    for name in names:
        mark(client, name, topic, 0, True, 0, 0, create=True)
    reply, _ = client.call(Kind.LIST_GROUPS, ListGroups(), to=To.group(names[0]))
    one = {group.group for group in reply.groups}
    everywhere = set()
    for partition in range(GROUPS_PARTITIONS):
        reply, _ = client.call(Kind.LIST_GROUPS, ListGroups(), to=To.groups(partition))
        everywhere |= {group.group for group in reply.groups if group.group in names and group.lag == 7}
    assert names[0] in one and everywhere == set(names)


def test_no_node_is_an_error_not_a_wait(tmp_path: Path) -> None:
    with Client(data_dir=str(tmp_path)) as client, client.consumer("t", "g") as consumer, pytest.raises(Unavailable):
        consumer.poll(1, timeout=30)


def test_lag_is_what_a_count_by_hand_says(client: Any) -> None:
    topic = make_topic(client, "lag", 2)
    todo: list[set[int]] = [set(), set()]      # offsets

    def check() -> None:
        by_hand = len(todo[0]) + len(todo[1])
        eventually(lambda: total(client, "lag-g", "lag") == by_hand, f"lag is {by_hand}, not {total(client, 'lag-g', 'lag')}", 5)

    for round_ in range(4):
        for partition in range(2):
            count = 50 * (round_ + 1)
            end = put(client, topic, numbers(0, count), partition)
            todo[partition] |= set(range(end - count, end))
        with client.consumer("lag", "lag-g", ack="manual") as consumer:
            for message in drain(consumer, 60, ack=False):
                if (message.offset + round_) % 3:
                    message.ack()
                    todo[message.partition].remove(message.offset)
            consumer.flush()
            check()
        check()
    high = end - 10
    mark(client, "lag-g", topic, 0, False, 10, 40)
    todo[0] |= set(range(10, 40))
    check()
    mark(client, "lag-g", topic, 1, True, 0, high)
    todo[1] -= set(range(high))
    check()
