"""Delays as an app meets them: every way to publish agrees, readers get a message when it is due, cancelling tells the truth."""

import asyncio
import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gq_proto.errors import BadRecord, BadRequest, UnknownPartition, UnknownTopic
from gq_proto.headers import due_of
from gq_proto.limits import DELAY_MS_MAX
from gq_proto.messages import Fate
from gq_proto.record import DELAYED
from tests.system.harness import Node, until

MAX_S = DELAY_MS_MAX / 1000
YEARS_S = 10 * 365 * 86_400
names = (f"delayed-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("delayed"), daemons=("metad", "logd", "delayd")) as made:
        yield made.start()


@pytest.fixture
def topic(node: Node) -> str:
    name = next(names)
    with node.client() as client:
        client.create_topic(name, partitions=1)
    return name


def read(client: Any, topic: str, **options: Any) -> list[Any]:
    with client.reader(topic, 0, stop_at_end=True, **options) as reader:
        return list(reader)


def publish_all_ways(node: Node, topic: str, **when: Any) -> list[type[Exception] | None]:
    """What blocking and awaited, publish and producer make of it."""
    outcomes: list[type[Exception] | None] = []

    async def awaited() -> None:
        async with node.async_client() as client, client.producer() as producer:
            for send in (client.publish, producer.send):
                try:
                    await send(topic, b"v", **when)
                except Exception as error:
                    outcomes.append(type(error))
                else:
                    outcomes.append(None)

    with node.client() as client, client.producer() as producer:
        for send in (client.publish, producer.send):
            try:
                send(topic, b"v", **when)
            except Exception as error:
                outcomes.append(type(error))
            else:
                outcomes.append(None)
    asyncio.run(awaited())
    return outcomes


@pytest.mark.parametrize(("delay", "after_us"), [
    (0, 0), (-1, 0), (-0.001, 0), (-2**63, 0), (0.001, 1_000), (60, 60_000_000), (MAX_S, DELAY_MS_MAX * 1000)])
def test_a_delay_that_is_kept(node: Node, topic: str, delay: float, after_us: int) -> None:
    assert publish_all_ways(node, topic, delay=delay) == [None] * 4
    with node.client() as client:
        found = read(client, topic, include_delayed=True)
        assert [bool(record.flags & DELAYED) for record in found] == [after_us > 0] * 4
        dues = [due_of(record.system_headers, record.timestamp) for record in found]
        assert dues == [record.timestamp + after_us if after_us else None for record in found]
        if not after_us:
            assert len(read(client, topic)) == 4, "they are there at once"


@pytest.mark.parametrize("delay", [MAX_S + 0.001, 2**31 / 1000, (2**32 - 1) / 1000, 2**32 / 1000, 2**31, 2**32 - 1, 2**32, YEARS_S,
                                   2**63, float("nan"), float("inf"), "NaN", "1"])
def test_a_delay_that_is_refused(node: Node, topic: str, delay: Any) -> None:
    assert publish_all_ways(node, topic, delay=delay) == [BadRecord] * 4
    with node.client() as client:
        assert read(client, topic, include_delayed=True) == []
        client.publish(topic, b"fine")
        assert len(read(client, topic)) == 1


@pytest.mark.parametrize("at", ["past", "ahead", "limit", "beyond", "year", "nan"])
def test_a_moment(node: Node, topic: str, at: str) -> None:
    now = time.time()
    moment: Any = {"past": now - 5, "ahead": datetime.now(UTC) + timedelta(hours=1), "limit": now + MAX_S,
                   "beyond": now + MAX_S + 60, "year": now + YEARS_S, "nan": float("nan")}[at]
    refused = at in ("beyond", "year", "nan")
    assert publish_all_ways(node, topic, deliver_at=moment) == [BadRecord if refused else None] * 4
    with node.client() as client:
        found = read(client, topic, include_delayed=True)
        assert len(found) == (0 if refused else 4)
        want = None if at == "past" else round((moment if at == "limit" else moment.timestamp()) * 1e6) if found else None
        assert {due_of(record.system_headers, record.timestamp) for record in found} == ({want} if found else set())


def late(record: Any) -> float:
    """Seconds since it was due; 0 for one that was not delayed."""
    due = due_of(record.system_headers, record.timestamp)
    return time.time() - due / 1e6 if due else 0.0


def test_readers_get_each_message_once_and_not_before_it_is_due(node: Node, topic: str) -> None:
    """Published in another order than due, some before the readers began; one reader begins at the end."""
    delays = [0.9, 0.3, 0.0, 0.6, 0.4, 0.2]
    arrived: dict[str, list[tuple[bytes, float]]] = {"first": [], "latest": [], "awaited": []}

    async def awaited(number: int) -> None:
        async with node.async_client() as client, await client.reader(topic, 0) as reader:
            while len(arrived["awaited"]) < number:
                arrived["awaited"] += [(record.value, late(record)) for record in await reader.poll(timeout=20)]

    with node.client() as client:
        for i, delay in enumerate(delays[:4]):
            client.publish(topic, b"%d" % i, delay=delay)
        with client.reader(topic, 0) as first, client.reader(topic, 0, "latest") as latest:
            for i, delay in enumerate(delays[4:], 4):
                client.publish(topic, b"%d" % i, delay=delay)

            def poll(name: str, reader: Any) -> None:
                arrived[name] += [(record.value, late(record)) for record in reader.poll(timeout=0.02)]

            def all_there() -> bool:
                poll("first", first)
                poll("latest", latest)
                return len(arrived["first"]) >= len(delays) and len(arrived["latest"]) >= len(delays) - 1

            until(all_there, "every message came", 20)
        asyncio.run(awaited(len(delays)))
    for name, number in (("first", 6), ("latest", 5), ("awaited", 6)):
        assert len(arrived[name]) == len({value for value, _ in arrived[name]}) == number, name
        assert all(seconds >= 0 for _, seconds in arrived[name]), name
    due_order = [value for value, _ in arrived["latest"] if value in (b"0", b"3", b"1")]
    assert due_order == [b"1", b"3", b"0"]


def test_listing_cancelling_and_counting_blocking_and_awaited(node: Node, topic: str) -> None:
    async def awaited(places: list[Any]) -> Any:
        async with node.async_client() as client:
            fates = await client.cancel_delayed(topic, places)
            return fates, await client.delayed(topic, limit=2), await client.delay_stats(topic)

    with node.client() as client:
        sent = [client.publish(topic, b"v", key=b"%d" % hours, delay=hours * 3600) for hours in (4, 1, 3, 2)]
        plain = client.publish(topic, b"v")
        page = client.delayed(topic, limit=3)
        assert [row.key for row in page.messages] == [b"1", b"2", b"3"]
        stamped = {place.offset: place.timestamp for place in sent}
        assert [row.due - stamped[row.offset] for row in page.messages] == [hours * 3_600_000_000 for hours in (1, 2, 3)]
        assert [row.key for row in client.delayed(topic, after=page.after).messages] == [b"4"]
        fates, rest, stats = asyncio.run(awaited([sent[1], plain, (0, 10**12), sent[1]]))
        assert fates == [Fate.CANCELLED, Fate.NONE, Fate.NONE, Fate.CANCELLED]
        assert [row.key for row in rest.messages] == [b"2", b"3"] and rest.after is not None
        assert (stats[0].scheduled, stats[0].cancelled) == (3, 1)
        assert client.cancel_delayed(topic, [sent[1]]) == [Fate.ALREADY_CANCELLED]
        assert len(read(client, topic, include_delayed=True)) == 4, "a cancelled one is seen by nobody"
        for wrong, error in (((0, -1), BadRequest), ((0, 2**63), BadRequest), ((1, 0), UnknownPartition)):
            with pytest.raises(error):
                client.cancel_delayed(topic, [sent[0], wrong])
        with pytest.raises(UnknownTopic):
            client.delayed("nowhere")
        assert len(client.delayed(topic).messages) == 3


def test_what_was_just_published_can_be_cancelled(node: Node, topic: str) -> None:
    with node.client() as client:
        for delay in (30, 3600, MAX_S) * 10:
            place = client.publish(topic, b"v", delay=delay)
            assert client.cancel_delayed(topic, [place]) == [Fate.CANCELLED]
        assert read(client, topic, include_delayed=True) == []


def test_a_cancel_that_races_with_the_firing_tells_the_truth(node: Node, topic: str) -> None:
    with node.client() as client:
        with client.producer() as producer:
            delays = [1 + i / 500 for i in range(600)]
            tickets = [producer.send(topic, b"v", delay=delay) for delay in delays]
            sent = [ticket.result(10) for ticket in tickets]
        # Every second one, so long before it is due that about half of the cancels win, however long they take here.
        fates: dict[int, Fate] = {}
        lead = 0.0
        for place, delay in zip(sent[::2], delays[::2], strict=True):
            moment = place.timestamp / 1e6 + delay - lead
            if time.time() > moment:
                continue
            until(lambda moment=moment: time.time() >= moment, "its moment", every=0.0005)  # type: ignore[misc]
            [fates[place.offset]] = client.cancel_delayed(topic, [place])
            lead += 0.002 if fates[place.offset] == Fate.DELIVERED else -0.002
        until(lambda: client.delay_stats(topic)[0].scheduled == 0, "all are decided", 20)
        seen = {record.offset for record in read(client, topic)}
    assert set(fates.values()) == {Fate.CANCELLED, Fate.DELIVERED}, "it was a race"
    for offset, fate in fates.items():
        assert (offset in seen) == (fate == Fate.DELIVERED)
    assert seen >= {place.offset for place in sent[1::2]}
