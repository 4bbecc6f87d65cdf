"""Groups when something breaks: kill -9 of daemons and consumers, power loss, retention, stopped processes."""

import contextlib
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gq_proto import codec, limits
from gq_proto.errors import GoQueueError, StaleReceipt
from gq_proto.messages import Op
from gq_proto.receipt import parse_receipt
from tests.system.groups import (
    FAST,
    Worker,
    dead_letters,
    delete_before,
    drain,
    eventually,
    make_topic,
    members,
    nothing_comes,
    number,
    numbers,
    numbers_of,
    origin,
    part_of,
    put,
    read_all,
    settle_receipt,
    total,
)
from tests.system.harness import Node

HOLES = 200_000
LEASE = 500


@pytest.fixture
def fast(start_node: Callable[..., Node]) -> Node:
    return start_node(config=FAST)


def test_acked_ones_stay_away_and_all_others_come_back_after_kill_9(start_node: Callable[..., Node]) -> None:
    node = start_node(config=FAST + "  maxInFlight: 1000000\n")
    with node.client() as client:
        topic = make_topic(client, "holes", 1)
        put(client, topic, numbers(0, HOLES))
        with client.consumer("holes", "holes-g", ack="manual") as consumer:
            for message in consumer:
                if number(message) % 2:
                    message.ack()
                if number(message) == HOLES - 1:
                    break
            consumer.flush()
        node.crash()
        assert total(client, "holes-g", "lag") == HOLES // 2
        assert journal_bytes(node) < 20 * HOLES // 2, "the state is as large as its holes"
        with client.consumer("holes", "holes-g", ack="manual") as consumer:
            again = drain(consumer, HOLES // 2, 60)
            assert numbers_of(again) == list(range(0, HOLES, 2))
            assert nothing_comes(consumer)
            consumer.flush()
        eventually(lambda: total(client, "holes-g", "lag") == 0, "nothing is left")


def journal_bytes(node: Node) -> int:
    return sum(path.stat().st_size for path in (node.data / "logs" / "__groups").rglob("*.log"))


def test_the_state_does_not_grow_with_the_backlog(fast: Node) -> None:
    node = fast
    with node.client() as client:
        topic = make_topic(client, "backlog", 1)
        put(client, topic, numbers(0, 20_000))
        with client.consumer("backlog", "backlog-g", ack="manual") as consumer:
            drain(consumer, 1000)
            consumer.flush()
            before = journal_bytes(node)
            put(client, topic, numbers(0, 200_000))
            drain(consumer, 1000)
            consumer.flush()
        assert journal_bytes(node) - before < 5_000


def test_power_loss_cuts_acked_messages_off_and_what_comes_in_their_place_is_delivered(fast: Node) -> None:
    node = fast
    with node.client() as client:
        topic = make_topic(client, "cut", 1)
        base = put(client, topic, numbers(0, 60)) - 60
        put(client, topic, numbers(60, 100))
        with client.consumer("cut", "cut-g", ack="manual") as consumer:
            drain(consumer, 100)
            consumer.flush()
        node.kill9()
        cut_log(node, "cut", base + 60)
        node.start()
        put(client, topic, [b"new-%d" % i for i in range(80)])
        expected = [m.value for m in read_all(client, topic)][60:]
        assert expected == [b"new-%d" % i for i in range(80)]
        with client.consumer("cut", "cut-g", ack="manual") as consumer:
            assert [m.value for m in drain(consumer, 80)] == expected
            assert nothing_comes(consumer)


def cut_log(node: Node, topic: str, offset: int) -> None:
    """What a power loss leaves: the log up to `offset`, what is derived from it and its checkpoint as they were or gone."""
    folder: Path = node.data / "logs" / topic / "0"
    log = max(folder.glob("*.log"))
    data = log.read_bytes()
    position = codec.locate(data, 0, offset)
    assert position > 0
    log.write_bytes(data[:position])
    for path in folder.iterdir():
        if path.suffix in (".index", ".timeindex", ".runs", ".due", ".txnindex") or path.name == "checkpoint":
            path.unlink()


@pytest.mark.parametrize("how", ["nack", "expire", "kill"])
def test_the_third_failure_dead_letters_once_over_restarts_and_neighbours_live(fast: Node, how: str) -> None:
    node = fast
    with node.client() as client:
        topic = make_topic(client, "poison", 1, visibilityMs=500 if how == "expire" else 30_000, backoffBaseMs=20)
        base = put(client, topic, numbers(0, LEASE)) - LEASE
        for attempt in (1, 2, 3):
            fail_once(node, client, how, attempt)
            node.crash("groupd")
        letters = eventually(lambda: dead_letters(client, "poison"), "it is in the dead letters", 30)
        with client.consumer("poison", "poison-g") as consumer:
            rest = [number(m) for m in consumer.messages(timeout=1)]
        assert sorted(rest) == [n for n in range(LEASE) if n != 7] or (how == "kill" and 7 not in rest)
        eventually(lambda: total(client, "poison-g", "lag") == 0, "all is done")
        assert len(dead_letters(client, "poison")) == len(letters) == 1
        said = origin(letters[0])
        assert (said["topic"], said["partition"], said["offset"], said["count"], said["group"]) == (
            "poison", "0", str(base + 7), "3", "poison-g")
        assert said["reason"] and abs(int(said["time"]) / 1e6 - time.time()) < 120


def fail_once(node: Node, client: Any, how: str, attempt: int) -> None:
    """Message 7 fails; the others go back uncounted, or are acked by the one that is killed."""
    if how == "kill":
        with Worker(node, "poison", "poison-g", "find 7", session=1.0) as worker:
            assert worker.expect("got")[3] == str(attempt)
            for _ in range(2):
                wait_for_heartbeat(client, "poison-g")
            worker.kill()
        eventually(lambda: not members(client, "poison-g"), "the session ends", 10)
        return
    with client.consumer("poison", "poison-g", ack="manual", hold=how == "expire") as consumer:
        for message in drain(consumer, LEASE, ack=False):
            if number(message) != 7:
                message.release()
                continue
            assert message.delivery == attempt
            if how == "nack":
                message.nack()
    eventually(lambda: total(client, "poison-g", "in_flight") == 0, "nobody holds it any more", 10)


def wait_for_heartbeat(client: Any, group: str) -> None:
    """The only member's next one: it says what was started."""
    ages = [0]

    def heard() -> bool:
        ages.append(members(client, group)[0].age_ms)
        return ages[-1] < ages[-2]
    eventually(heard, "a heartbeat", 10)


def test_a_crash_between_the_steps_of_a_dead_letter_leaves_one_copy(fast: Node) -> None:
    node = fast
    with node.client() as client:
        topic = make_topic(client, "steps", 1, backoffBaseMs=1)
        put(client, topic, numbers(0, 40))
        rng = random.Random(7)
        with client.consumer("steps", "steps-g", ack="manual") as consumer:
            for message in drain(consumer, 40, ack=False):
                message.reject("r")
            for _ in range(6):
                time.sleep(rng.random() * 0.05)      # somewhere among the steps, not for something
                node.crash("groupd")
            eventually(lambda: total(client, "steps-g", "lag") == 0, "all are dead letters", 30)
        assert numbers_of(dead_letters(client, "steps")) == list(range(40))


def test_a_crash_right_behind_the_copy_of_a_dead_letter_leaves_one_copy(fast: Node) -> None:
    """As soon as the copy is in the DLQ's file: groupd has not heard of it, or not written that it is done."""
    node, count = fast, 6
    with node.client() as client:
        topic = make_topic(client, "behind-copy", 1)
        put(client, topic, numbers(0, count))
        with client.consumer("behind-copy", "behind-copy-g", ack="manual", hold=True) as consumer:
            receipts = [m.receipt for m in drain(consumer, count, ack=False)]
        for done, receipt in enumerate(receipts, 1):
            before = dlq_bytes(node, "behind-copy")
            settle_receipt(client, receipt, Op.REJECT)
            end = time.monotonic() + 20
            while dlq_bytes(node, "behind-copy") == before:         # no rest between looks: it is a matter of a millisecond
                assert time.monotonic() < end, "it is copied"
            node.crash("groupd")
            eventually(lambda done=done: total(client, "behind-copy-g", "lag") == count - done, "it is a dead letter")
        assert numbers_of(dead_letters(client, "behind-copy")) == list(range(count))


def dlq_bytes(node: Node, topic: str) -> int:
    return sum(path.stat().st_size for path in (node.data / "logs" / f"{topic}.dlq" / "0").glob("*.log"))


@pytest.mark.quiet
def test_a_killed_client_with_a_parked_poll_gets_no_lease(fast: Node) -> None:
    node = fast
    with node.client() as client:
        topic = make_topic(client, "parked", 1)
        with Worker(node, "parked", "parked-g", mode="shared", session=2.0) as worker, \
                client.consumer("parked", "parked-g", mode="shared", ack="manual") as other:
            eventually(lambda: len(members(client, "parked-g")) == 2, "both are members")
            worker.kill()
            put(client, topic, numbers(0, 10))
            start = time.monotonic()
            assert {m.delivery for m in drain(other, 10)} == {1}
            assert time.monotonic() - start < 1.5, "nothing waited for the dead one's session"


def test_what_a_killed_client_held_comes_back_within_its_session(fast: Node) -> None:
    node = fast
    with node.client() as client:
        topic = make_topic(client, "held", 1, backoffBaseMs=1)
        put(client, topic, numbers(0, 50))
        with Worker(node, "held", "held-g", "hang", session=1.0) as worker:
            worker.expect("got")
            worker.kill()
        with client.consumer("held", "held-g", ack="manual") as consumer:
            start = time.monotonic()
            messages = drain(consumer, 50, 10)
            assert time.monotonic() - start < 4
            assert all(m.delivery == 1 for m in messages if number(m)), "only what was started counts"


def test_a_stopped_consumer_cannot_ack_what_others_have_and_joins_again(fast: Node) -> None:
    node = fast
    with node.client() as client:
        topic = make_topic(client, "stopped", 1, visibilityMs=500, backoffBaseMs=1)
        put(client, topic, numbers(0, 3))
        with Worker(node, "stopped", "stopped-g", "late", session=1.0) as worker:
            assert worker.expect("got")[2] == "0"
            worker.kill(signal.SIGSTOP)
            with client.consumer("stopped", "stopped-g", ack="manual", visibility=30) as other:
                mine = drain(other, 3, 15, ack=False)
                assert numbers_of(mine) == [0, 1, 2]
                worker.kill(signal.SIGCONT)
                worker.go_on()
                assert worker.expect("refused")[1] == "stale_receipt"
                for message in mine:
                    message.ack(sync=True)
            put(client, topic, numbers(3, 4))
            assert worker.expect("got")[2] == "3", "it is a member again"
            worker.go_on()
            assert worker.expect("acked")[1] == "3"


def test_ctrl_c_returns_leases_at_once(fast: Node) -> None:
    node = fast
    with node.client() as client:
        topic = make_topic(client, "interrupt", 1)
        put(client, topic, numbers(0, 100))
        with Worker(node, "interrupt", "interrupt-g", "hang") as worker:
            worker.expect("got")
            worker.kill(signal.SIGINT)
            assert total(client, "interrupt-g", "in_flight") == 0
            with client.consumer("interrupt", "interrupt-g", ack="manual") as consumer:
                assert {m.delivery for m in drain(consumer, 100, 3)} == {1}


@pytest.mark.parametrize("who", ["groupd", "logd", "metad"])
def test_no_ack_is_lost_with_a_daemon_that_is_down_for_a_while(fast: Node, who: str) -> None:
    """What it granted before is in the journal, and acks wait in the client until they are confirmed."""
    node = fast
    with node.client() as client:
        topic = make_topic(client, "steady", 1)
        seen: list[int] = []
        with client.consumer("steady", "steady-g") as consumer:
            for round_ in range(3):
                put(client, topic, numbers(0, 500))
                for message in consumer.messages(timeout=20):
                    seen.append(message.offset)
                    at = len(seen) - 500 * round_
                    if at == 200:
                        eventually(lambda: (p := part_of(client, "steady-g")).in_flight == p.lag, "all are leased")
                    elif at == 202:
                        consumer.flush(20)               # acks are written behind the grants
                    elif at == 250:
                        node.kill9(who)
                    elif at == 400:
                        node.start(who)
                    elif at == 500:
                        break
            assert nothing_comes(consumer)
            consumer.flush(20)
            assert total(client, "steady-g", "lag") == 0, "all is acked"
        assert len(set(seen)) == len(seen) == 1500, "each comes once"


@pytest.mark.parametrize("who", ["groupd", "logd", "metad"])
def test_consumers_work_on_over_a_daemons_crash(fast: Node, who: str) -> None:
    """It falls at any time, perhaps before what it just granted or took is in the journal: that comes again. What it confirmed does
    not."""
    node = fast
    with node.client() as client:
        topic = make_topic(client, "crash", 2)
        seen: set[tuple[int, int]] = set()
        confirmed: set[tuple[int, int]] = set()

        def take(message: Any) -> None:
            where = message.partition, message.offset
            assert where not in confirmed, f"{where} comes again, and its ack was confirmed"
            seen.add(where)
            if message.offset % 20:
                message.ack()
                return
            with contextlib.suppress(StaleReceipt):      # the crash took its lease, and somebody has it anew: us
                message.ack(sync=True)
                confirmed.add(where)

        with client.consumer("crash", "crash-g", ack="manual") as consumer:
            for round_ in range(3):
                for partition in range(2):
                    put(client, topic, numbers(0, 500), partition)
                crashed = False
                for message in consumer.messages(timeout=20):
                    take(message)
                    if len(seen) == 1000 * round_ + 300 and not crashed:
                        crashed = True
                        node.crash(who)
                    if len(seen) == 1000 * (round_ + 1):
                        break
            end = time.monotonic() + 20
            while total(client, "crash-g", "lag"):
                assert time.monotonic() < end, "all is acked"
                for message in consumer.messages(timeout=0.2):
                    take(message)
                consumer.flush(20)
        assert len(seen) == 3000 and len(confirmed) > 100


@pytest.mark.quiet
def test_a_slow_message_does_not_bring_its_neighbours_twice(start_node: Callable[..., Node]) -> None:
    """Its time runs out, the unstarted rest of the lease goes back and comes again at once, to the same consumer, which hears only
    with its next heartbeat, seconds later, that the first lease is over."""
    node = start_node()
    with node.client() as client:
        topic = make_topic(client, "neighbours", visibilityMs=300, backoffBaseMs=1)
        put(client, topic, numbers(0, 300))
        handed: list[tuple[int, int]] = []
        with client.consumer("neighbours", "neighbours-g") as consumer:
            for message in consumer.messages(timeout=1):
                handed.append((number(message), message.delivery))
                if handed[-1] == (5, 1):
                    eventually(lambda: len(consumer._core.held) > 1, "the work takes so long that the rest is leased anew")
            consumer.flush()
        assert sorted(n for n, delivery in handed if delivery == 1) == list(range(300))
        assert total(client, "neighbours-g", "lag") == 0


def test_what_retention_took_is_skipped_and_said(fast: Node) -> None:
    node = fast
    with node.client() as client:
        topic = make_topic(client, "fallen", 1, segmentBytes=65_536)
        base = put(client, topic, [b"x" * 1000] * 50) - 50
        for _ in range(19):
            end = put(client, topic, [b"x" * 1000] * 50)
        with client.consumer("fallen", "fallen-g", ack="manual", max_poll=100) as consumer:
            held = drain(consumer, 100, ack=False)
            start = delete_before(client, topic, 0, 500)
            assert 0 < start <= 500
            eventually(lambda: part_of(client, "fallen-g").committed >= start, "the group goes on at the log start", 10)
            for message in held:
                message.ack()
            rest: list[int] = []
            while not set(range(start, end)) <= set(rest):
                rest += [m.offset for m in drain(consumer, 1)]
            consumer.flush()
            part = eventually(lambda: (p := part_of(client, "fallen-g")).lag == 0 and p, "lag is none", 10)
            rest += [m.offset for m in held]
            assert len(set(rest)) == len(rest), "what is gone is not tried again"
            assert part.expired == start - base and part.skipped_to == start, "what was leased is counted, too"


def test_members_that_come_and_go_leave_one_owner_each(fast: Node) -> None:
    node = fast
    rng = random.Random(11)
    with node.client() as client:
        topic = make_topic(client, "storm", 8)
        team: list[Any] = []
        for _ in range(60):
            if team and rng.random() < 0.45:
                team.pop(rng.randrange(len(team))).close()
            else:
                team.append(client.consumer("storm", "storm-g"))
        if not team:
            team.append(client.consumer("storm", "storm-g"))

        def owned() -> bool:
            return sorted(a.partition for m in team for a in m.assignment) == list(range(8))
        eventually(owned, "every partition has exactly one owner within three heartbeats", 2.0)
        for partition in range(8):
            put(client, topic, numbers(0, 5), partition)
        got = [m for member in team for m in drain(member, 5 * len(member.assignment))]
        assert len({(m.partition, m.offset) for m in got}) == 40
        for member in team:
            member.close()


def test_a_journal_that_lost_its_end_counts_though_groupd_lived_on(fast: Node) -> None:
    """Logd alone loses power: what groupd has in mind is ahead of what the log kept, and must not be told any more."""
    node = fast
    with node.client() as client:
        topic = make_topic(client, "behind", 1)
        put(client, topic, numbers(0, 10))
        with client.consumer("behind", "behind-g", ack="manual", hold=True) as consumer:
            receipts = [m.receipt for m in drain(consumer, 10, ack=False)]
        eventually(lambda: not members(client, "behind-g"), "it left")
        folder = node.data / "logs" / "__groups" / str(parse_receipt(receipts[0]).groups_partition)
        log = max(folder.glob("*.log"))
        kept = log.stat().st_size
        assert [settle_receipt(client, receipt).error for receipt in receipts[:5]] == [0] * 5
        assert total(client, "behind-g", "lag") == 5 and log.stat().st_size > kept
        groupd = node.pid("groupd")
        node.kill9("logd")
        with log.open("r+b") as file:
            file.truncate(kept)
        for path in folder.iterdir():
            if path.suffix in (".index", ".timeindex", ".runs") or path.name == "checkpoint":
                path.unlink()
        node.start("logd")
        eventually(lambda: total(client, "behind-g", "lag") == 10, "the acks that are gone do not count")
        assert [settle_receipt(client, receipt).error for receipt in receipts[:7]] == [0] * 7
        assert node.pid("groupd") == groupd
        node.crash("groupd")
        assert total(client, "behind-g", "lag") == 3


def test_groups_whose_journal_is_damaged_say_so_and_the_others_go_on(fast: Node) -> None:
    with fast.client() as client:
        topic = make_topic(client, "t")
        put(client, topic, numbers(0, 20))
        with client.consumer("t", "g", ack="manual") as consumer:
            for _ in range(10):
                drain(consumer, 1)
                consumer.flush()
    fast.terminate()
    journal = max((fast.data / "logs" / "__groups").glob("*/*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 1
    journal.write_bytes(data)
    assert journal.parent.name == str(coordinator("g"))
    only_the_groups_of_this_journal_wait(fast, r"journal cannot be read: .* is damaged at position .*; restore it from a copy")
    assert journal.read_bytes()[:len(data)] == data


def test_a_journal_that_a_newer_release_wrote_is_left_to_it(fast: Node) -> None:
    with fast.client() as client:
        put(client, make_topic(client, "t"), numbers(0, 20))
        with client.consumer("t", "g", ack="manual") as consumer:
            drain(consumer, 5)
            consumer.flush()
    fast.terminate()
    journal = fast.data / "logs" / "__groups" / str(coordinator("g")) / f"{0:020}.log"
    builder = codec.BatchBuilder()
    builder.add(b"g", b"\x92\x7a\x01")               # an entry with a tag that this release does not know
    frame, end = bytearray(builder.seal()), codec.scan(journal.read_bytes()).next_offset
    codec.stamp(frame, end, int(time.time() * 1e6), internal=True)
    with journal.open("ab") as file:
        file.write(frame)
    only_the_groups_of_this_journal_wait(fast, rf"record {end} of it was not written by .*: start the newer gq_groupd")


def coordinator(group: str) -> int:
    return codec.partition_of(group.encode(), limits.GROUPS_PARTITIONS)


def only_the_groups_of_this_journal_wait(node: Node, why: str) -> None:
    """Group g's journal cannot be read; topic t has 20 messages."""
    node.start(wait=False)
    eventually(lambda: "the journal cannot be read: its groups wait" in node.log("groupd"), "groupd says so")
    node.wait_ready()
    status = node.status("groupd")
    assert status and f"partitions [{coordinator('g')}] cannot be read" in status.detail
    with node.client(timeout=1.0) as client:
        with pytest.raises(GoQueueError, match=why):
            total(client, "g", "lag")
        other = next(name for name in map(str, range(50)) if coordinator(name) != coordinator("g"))
        with client.consumer("t", other, ack="manual") as consumer:
            assert numbers_of(drain(consumer, 20)) == list(range(20))
