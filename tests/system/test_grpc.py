"""The gRPC service against real daemons: what callers see of topics, messages, leases and errors, and of a gateway that stops.

`rpc` is one node with its gateway for all tests of the module; each test has topics and groups of its own.
"""

import contextlib
import itertools
import os
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from gq_gateway import goqueue_pb2 as pb
from gq_gateway import goqueue_pb2_grpc
from gq_proto.errors import UnknownGroup
from tests.system.harness import DAEMONS, Died, Node, free_port, until

OFF = {"GOQUEUE_HTTP_ADDR": "off", "GOQUEUE_GATEWAY_METRICS_ADDR": "off", "GOQUEUE_METRICS_ADDR": "off"}
MESSAGE_MAX = 2 << 20
_numbers = itertools.count(1)


class Rpc:
    """A node with its gateway, and callers of it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        env = {**OFF, "GOQUEUE_GRPC_ADDR": f"127.0.0.1:{self.port}", "GOQUEUE_GRPC_MAX_MESSAGE_BYTES": str(MESSAGE_MAX)}
        self.node = Node(folder, daemons=(*DAEMONS, "gateway"), env=env)
        self._channels: list[Any] = []

    @property
    def channel(self) -> Any:
        """A connection of its own."""
        made = grpc.insecure_channel(f"127.0.0.1:{self.port}", options=[("grpc.use_local_subchannel_pool", 1)])
        self._channels.append(made)
        return made

    def stub(self, channel: Any = None) -> Any:
        return goqueue_pb2_grpc.GoQueueStub(channel or self.channel)

    def topic(self, partitions: int = 1, **config: Any) -> str:
        name = f"topic-{next(_numbers)}"
        self.stub().CreateTopic(pb.CreateTopicRequest(name=name, partitions=partitions, config=pb.TopicConfig(**config)))
        return name

    def publish(self, topic: str, *values: bytes) -> None:
        producer = self.node.client().producer()
        for value in values:
            producer.send(topic, value)
        producer.close()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self.node.stop()


@pytest.fixture(scope="module")
def rpc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rpc]:
    made = Rpc(tmp_path_factory.mktemp("rpc"))
    try:
        made.node.start()
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def refused(status: grpc.StatusCode, code: str, retriable: bool = False) -> Iterator[None]:
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error: Any = caught.value
    trailers = {key: value for key, value in error.trailing_metadata() if key.startswith("goqueue-")}
    expected = {"goqueue-code": code, "goqueue-retriable": str(retriable).lower()}
    assert (error.code(), trailers) == (status, expected), error.details()


def take(call: Any, count: int, timeout: float = 10.0) -> list[Any]:
    """So many messages of a subscription."""
    out: list[Any] = []
    end = time.monotonic() + timeout
    while len(out) < count:
        assert time.monotonic() < end, f"{len(out)} of {count} messages in {timeout} s"
        out += next(call).messages
    return out


def subscribe(stub: Any, topic: str, group: str, **more: Any) -> Any:
    """A subscription whose member the group has."""
    call = stub.Subscribe(pb.SubscribeRequest(group=group, topics=[topic], **more), timeout=30)
    assert next(call).member
    return call


def receipts(messages: list[Any]) -> list[str]:
    return [message.receipt for message in messages]


# -- topics and errors -------------------------------------------------------------------------

def test_topics_are_made_listed_and_deleted(rpc: Rpc) -> None:
    stub = rpc.stub()
    config = pb.TopicConfig(retention_ms=5_000_000, max_retries=7)
    made = stub.CreateTopic(pb.CreateTopicRequest(name="made", partitions=2, config=config))
    assert (made.topic.name, made.topic.partitions, made.topic.config.max_retries, made.topic.config.segment_bytes) == (
        "made", 2, 7, 64 << 20)
    assert stub.CreateTopic(pb.CreateTopicRequest(name="made", if_not_exists=True)).topic == made.topic
    with refused(grpc.StatusCode.ALREADY_EXISTS, "already_exists"):
        stub.CreateTopic(pb.CreateTopicRequest(name="made"))
    names = [topic.name for topic in stub.ListTopics(pb.ListTopicsRequest()).topics]
    assert "made" in names and names == sorted(names) and not any(name.startswith("__") for name in names)
    assert any(topic.name == "__groups" for topic in stub.ListTopics(pb.ListTopicsRequest(internal=True)).topics)
    stub.DeleteTopic(pb.DeleteTopicRequest(name="made"))
    with refused(grpc.StatusCode.NOT_FOUND, "unknown_topic"):
        stub.DeleteTopic(pb.DeleteTopicRequest(name="made"))


INVALID, MISSING, FAILED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)


@pytest.mark.parametrize("method, request_, status, code", [
    ("CreateTopic", pb.CreateTopicRequest(name="größe"), INVALID, "bad_name"),
    ("CreateTopic", pb.CreateTopicRequest(name="x", partitions=-3), INVALID, "bad_request"),
    ("Publish", pb.PublishRequest(message=pb.Draft(topic="a b")), INVALID, "bad_name"),
    ("Publish", pb.PublishRequest(message=pb.Draft(topic="big", value=bytes(1 << 20) + b"x")), INVALID, "too_large"),
    ("Publish", pb.PublishRequest(message=pb.Draft(topic="big", partition=99)), MISSING, "unknown_partition"),
    ("Publish", pb.PublishRequest(message=pb.Draft(topic="big", headers=[pb.Header(name="gq-x")])), INVALID, "bad_record"),
    ("Join", pb.JoinRequest(group="g", topics=["nowhere"]), MISSING, "unknown_topic"),
    ("Subscribe", pb.SubscribeRequest(group="g", topics=["nowhere"]), MISSING, "unknown_topic"),
    ("Subscribe", pb.SubscribeRequest(group="..", topics=["big"]), INVALID, "bad_name"),
    ("Poll", pb.PollRequest(group="none", member="m"), MISSING, "unknown_group"),
    ("Heartbeat", pb.HeartbeatRequest(group="none", member="m"), MISSING, "unknown_group"),
    ("Commit", pb.CommitRequest(group="g", positions=[pb.Position(topic="nowhere")]), MISSING, "unknown_topic"),
    ("Heartbeat", pb.HeartbeatRequest(group="here", member="nobody"), FAILED, "unknown_member"),
    ("Join", pb.JoinRequest(group="here", topics=["big"], mode=pb.MODE_PARTITIONED), FAILED, "mode_mismatch"),
    ("Ack", pb.AckRequest(receipts=["x"]), INVALID, "bad_request"),
    ("Ack", pb.AckRequest(receipts=["big:0:1:1:AAYAAAABAAZhU8gdy8s0sepG"]), FAILED, "stale_receipt"),
])
def test_what_is_wrong_has_its_status_and_trailers(rpc: Rpc, method: str, request_: Any, status: Any, code: str) -> None:
    stub = rpc.stub()
    stub.CreateTopic(pb.CreateTopicRequest(name="big", partitions=1, if_not_exists=True))
    stub.Join(pb.JoinRequest(group="here", topics=["big"], mode=pb.MODE_SHARED))
    with refused(status, code):
        answer = getattr(stub, method)(request_)
        if method == "Subscribe":
            next(answer)


def test_a_request_above_the_bound_is_refused_and_the_connection_lives(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic(max_message_bytes=8 << 20)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Publish(pb.PublishRequest(message=pb.Draft(topic=topic, value=bytes(MESSAGE_MAX + 1))))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
    assert stub.Publish(pb.PublishRequest(message=pb.Draft(topic=topic, value=bytes(MESSAGE_MAX - 4096)))).offset >= 0


def test_reflection_and_health_are_on(rpc: Rpc) -> None:
    channel = rpc.channel
    database = ProtoReflectionDescriptorDatabase(channel)
    assert {"goqueue.v1.GoQueue", "grpc.health.v1.Health"} <= set(database.get_services())
    assert "gq_gateway/goqueue.proto" in database.FindFileContainingSymbol("goqueue.v1.GoQueue").name
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", "goqueue.v1.GoQueue"):
        assert health.Check(health_pb2.HealthCheckRequest(service=name)).status == health_pb2.HealthCheckResponse.SERVING


def test_an_address_that_was_asked_for_and_is_taken_is_why_it_does_not_start(rpc: Rpc, tmp_path: Path) -> None:
    other = Node(tmp_path / "other", daemons=(), env={**OFF, "GOQUEUE_GRPC_ADDR": f"127.0.0.1:{rpc.port}"})
    with other, pytest.raises(Died, match=r"(?s)exited 1:.*}\ngq_gateway: grpc\.address: cannot listen at 127"):
        other.start("gateway")


def test_a_garbled_message_is_an_error_of_that_call_alone(rpc: Rpc) -> None:
    channel = rpc.channel
    call = channel.unary_unary("/goqueue.v1.GoQueue/Publish", request_serializer=None,
                               response_deserializer=GetMessageClass(pb.PublishResponse.DESCRIPTOR).FromString)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "bad_request"):
        call(b"\xff\xff\xff")
    assert rpc.stub(channel).ListTopics(pb.ListTopicsRequest())


# -- publishing ------------------------------------------------------------------------------------

def test_what_is_published_is_what_a_client_reads(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic()
    drafts = [pb.Draft(topic=topic, value=b"", key=b"", priority=pb.PRIORITY_CRITICAL), pb.Draft(topic=topic),
              pb.Draft(topic=topic, value=b"\xff\x00", key=b"k", headers=[pb.Header(name="a", value=b"1"), pb.Header(name="a")],
                       partition=0)]
    made = [stub.Publish(pb.PublishRequest(message=draft, acks=pb.ACKS_ALL)) for draft in drafts]
    assert [one.offset for one in made] == list(range(made[0].offset, made[0].offset + 3))
    with rpc.node.client().reader(topic, 0, stop_at_end=True) as reader:
        found = list(reader)
    assert [(one.key, one.value, one.priority, one.headers) for one in found] == [
        (b"", b"", 0, []), (None, None, 2, []), (b"k", b"\xff\x00", 2, [("a", b"1"), ("a", b"")])]
    assert [one.timestamp for one in found] == [one.timestamp_us for one in made]
    assert stub.Publish(pb.PublishRequest(message=drafts[0], acks=pb.ACKS_NONE)).offset == -1


def test_a_delayed_message_comes_when_it_is_due(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic()
    call = subscribe(stub, topic, "delayed")
    start = time.monotonic()
    stub.Publish(pb.PublishRequest(message=pb.Draft(topic=topic, value=b"later", delay_ms=400)))
    assert take(call, 1)[0].value == b"later" and 0.4 <= time.monotonic() - start < 5
    call.cancel()


def test_a_stream_has_a_result_for_each_message_in_order(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic(partitions=3)

    def requests() -> Iterator[Any]:
        for i in range(500):
            yield pb.PublishStreamRequest(messages=[pb.Draft(topic=topic, key=b"%d" % j, value=b"%d" % i) for j in range(7)])
            if i == 250:
                yield pb.PublishStreamRequest(messages=[pb.Draft(topic="bad name"), pb.Draft(topic=topic, partition=77)])

    results = [result for response in stub.PublishStream(requests(), timeout=30) for result in response.results]
    assert len(results) == 3502
    errors = {i: result.error.code for i, result in enumerate(results) if result.HasField("error")}
    assert errors == {1757: "bad_name", 1758: "unknown_partition"}
    good = [result for result in results if not result.HasField("error")]
    for j in range(7):
        mine = good[j::7]
        assert len({one.partition for one in mine}) == 1
        assert all(a.offset < b.offset for a, b in itertools.pairwise(mine))
    assert len({(one.partition, one.offset) for one in good}) == 3500


def test_one_at_a_time_on_a_stream_does_not_wait_for_company(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic()
    sending: queue.Queue[Any] = queue.Queue()
    call = stub.PublishStream(iter(sending.get, None), timeout=30)
    times = []
    for i in range(50):
        start = time.monotonic()
        sending.put(pb.PublishStreamRequest(messages=[pb.Draft(topic=topic, value=b"%d" % i)]))
        assert next(call).results[0].offset >= 0
        times.append(time.monotonic() - start)
    sending.put(None)
    assert next(call, None) is None
    assert sorted(times)[10] < 0.1


# -- consuming by a stream ---------------------------------------------------------------------------

def test_subscribe_and_each_way_to_settle(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic(max_retries=3, backoff_base_ms=10)
    rpc.publish(topic, *[b"%d" % i for i in range(6)])
    call = subscribe(stub, topic, "ways")
    messages = take(call, 6)
    assert [(one.value, one.delivery, one.topic) for one in messages] == [(b"%d" % i, 1, topic) for i in range(6)]
    given = receipts(messages)
    assert list(stub.Ack(pb.AckRequest(receipts=given[:2])).results) == [pb.SettleResult(), pb.SettleResult()]
    stub.Extend(pb.ExtendRequest(receipts=[given[2]], for_ms=60_000))
    stub.Reject(pb.RejectRequest(receipts=[given[3]], reason="broken"))
    stub.Nack(pb.NackRequest(receipts=[given[4]], delay_ms=0))
    [again] = take(call, 1)
    assert (again.value, again.delivery) == (b"4", 2)
    requests = [pb.SettleRequest(receipts=[given[2], given[4]]), pb.SettleRequest(receipts=[given[5]], op=pb.OP_RELEASE),
                pb.SettleRequest(receipts=[again.receipt])]
    results = list(stub.Settle(iter(requests)))
    codes = [result.error.code for response in results for result in response.results]
    assert codes == ["", "stale_receipt", "", ""]
    [back] = take(call, 1)
    assert (back.value, back.delivery) == (b"5", 1)
    stub.Ack(pb.AckRequest(receipts=[back.receipt, given[0]]))
    call.cancel()
    until(lambda: not rpc.node.client().describe_group("ways").partitions[0].lag, "all are acked, the rejected one is buried")
    with rpc.node.client().reader(f"{topic}.dlq", 0, stop_at_end=True) as letters:
        assert [letter.value for letter in letters] == [b"3"]


def test_what_a_subscriber_had_is_others_at_once_when_it_goes_away(rpc: Rpc) -> None:
    topic = rpc.topic()
    rpc.publish(topic, *[b"%d" % i for i in range(20)])
    channel = rpc.channel
    leaving = rpc.stub(channel)
    messages = take(subscribe(leaving, topic, "leaving"), 20)
    leaving.Ack(pb.AckRequest(receipts=receipts(messages[:5])))
    channel.close()
    start = time.monotonic()
    call = subscribe(rpc.stub(), topic, "leaving")
    rest = take(call, 15)
    assert time.monotonic() - start < 3
    assert [(one.value, one.delivery) for one in rest] == [(b"%d" % i, 1) for i in range(5, 20)]
    call.cancel()


def test_a_receipt_is_good_on_any_connection_and_after_its_subscriber_left(rpc: Rpc) -> None:
    topic = rpc.topic()
    rpc.publish(topic, b"a", b"b")
    call = subscribe(rpc.stub(), topic, "late")
    messages = take(call, 2)
    rpc.stub().Ack(pb.AckRequest(receipts=[messages[0].receipt]))
    call.cancel()
    rpc.stub().Ack(pb.AckRequest(receipts=[messages[1].receipt]))
    assert [part.lag for part in rpc.node.client().describe_group("late").partitions] == [0]


def in_flight(rpc: Rpc, group: str) -> int:
    with contextlib.suppress(UnknownGroup):           # it has not joined yet
        return sum(part.in_flight for part in rpc.node.client().describe_group(group).partitions)
    return 0


def test_a_slow_reader_is_sent_a_bounded_amount_and_holds_up_nobody(rpc: Rpc) -> None:
    topic = rpc.topic()
    rpc.publish(topic, *[bytes(2000)] * 20_000)
    slow = subscribe(rpc.stub(), topic, "slow")
    until(lambda: in_flight(rpc, "slow"), "messages are on their way to who reads none")
    start = time.monotonic()
    quick, stub = subscribe(rpc.stub(), topic, "quick"), rpc.stub()
    done = 0
    while done < 20_000:
        messages = take(quick, 1)
        done += len(messages)
        stub.Ack(pb.AckRequest(receipts=receipts(messages)))
    assert time.monotonic() - start < 15
    [part] = rpc.node.client().describe_group("slow").partitions
    assert part.in_flight <= 1000 and part.committed <= 1
    assert resident_mb(rpc.node.pid("gateway")) < 400
    slow.cancel()
    quick.cancel()


def test_no_more_is_sent_than_may_be_in_flight(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic()
    rpc.publish(topic, *[b"%d" % i for i in range(10)])
    call = subscribe(stub, topic, "few", max_in_flight=3)
    got: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=lambda: pump(call, got), daemon=True).start()
    first = [got.get(timeout=5) for _ in range(3)]
    with pytest.raises(queue.Empty):
        got.get(timeout=0.3)
    stub.Ack(pb.AckRequest(receipts=[first[1].receipt]))
    assert got.get(timeout=5).value == b"3"
    call.cancel()


def pump(call: Any, out: "queue.Queue[Any]") -> None:
    with contextlib.suppress(grpc.RpcError):
        for response in call:
            for message in response.messages:
                out.put(message)


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


# -- consuming step by step --------------------------------------------------------------------------

def test_join_poll_heartbeat_leave_and_commit(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic(partitions=2)
    joined = stub.Join(pb.JoinRequest(group="steps", topics=[topic], mode=pb.MODE_PARTITIONED))
    assert [(one.topic, one.partition) for one in joined.assignment] == [(topic, 0), (topic, 1)] and joined.heartbeat_ms == 3000
    me = {"group": "steps", "member": joined.member}
    for i in range(6):
        stub.Publish(pb.PublishRequest(message=pb.Draft(topic=topic, value=b"%d" % i, partition=i % 2)))
    found: list[Any] = []
    while len(found) < 6:
        found += stub.Poll(pb.PollRequest(**me, wait_ms=5000)).messages
    assert sorted(one.value for one in found) == [b"%d" % i for i in range(6)]
    assert stub.Heartbeat(pb.HeartbeatRequest(**me)).generation == joined.generation
    stub.Leave(pb.LeaveRequest(**me))
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "unknown_member"):
        stub.Poll(pb.PollRequest(**me))
    assert [one.error.code for one in stub.Ack(pb.AckRequest(receipts=receipts(found))).results] == [""] * 6
    assert sum(part.lag for part in rpc.node.client().describe_group("steps").partitions) == 0
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "mode_mismatch"):
        stub.Join(pb.JoinRequest(group="steps", topics=[topic], mode=pb.MODE_SHARED))
    acked = stub.Commit(pb.CommitRequest(group="committed", positions=[pb.Position(topic=topic, partition=1, offset=3)])).acked
    assert list(acked) == [2]


def silent_s(rpc: Rpc, group: str) -> float:
    """For how long nothing was heard of its only member, at least."""
    [member] = rpc.node.client().describe_group(group).members
    return member.age_ms / 1000


@pytest.mark.quiet
def test_a_poll_that_is_given_up_costs_nobody_a_message(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic()
    me = {"group": "given-up", "member": stub.Join(pb.JoinRequest(group="given-up", topics=[topic])).member}
    start = time.monotonic()
    assert not stub.Poll(pb.PollRequest(**me), timeout=0.7).messages        # its deadline comes before wait_ms
    assert time.monotonic() - start < 0.7
    start = time.monotonic()
    left = stub.Poll.future(pb.PollRequest(**me, wait_ms=20_000))
    until(lambda: time.monotonic() - start > silent_s(rpc, "given-up"), "the poll has reached the group's coordinator")
    left.cancel()
    rpc.publish(topic, b"for the next one")
    start = time.monotonic()
    [message] = stub.Poll(pb.PollRequest(**me, wait_ms=5000)).messages
    assert (message.value, message.delivery) == (b"for the next one", 1) and time.monotonic() - start < 1


# -- when things stop --------------------------------------------------------------------------------

def test_a_deadline_is_kept_when_the_log_does_not_answer(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic()
    stub.Publish(pb.PublishRequest(message=pb.Draft(topic=topic)))
    rpc.node.freeze("logd")
    try:
        start = time.monotonic()
        with pytest.raises(grpc.RpcError) as caught:
            stub.Publish(pb.PublishRequest(message=pb.Draft(topic=topic)), timeout=0.5)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]
        assert time.monotonic() - start < 2
    finally:
        rpc.node.thaw("logd")


def test_a_stream_goes_on_when_the_log_is_killed_and_comes_back(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic()

    def requests() -> Iterator[Any]:
        for i in range(2000):
            if i == 500:
                threading.Thread(target=lambda: rpc.node.crash("logd")).start()
            time.sleep(0.0005)
            yield pb.PublishStreamRequest(messages=[pb.Draft(topic=topic, value=b"%d" % i)])

    results = [result for response in stub.PublishStream(requests(), timeout=30) for result in response.results]
    assert [result.error.code for result in results] == [""] * 2000
    rpc.node.wait_ready("logd")
    with rpc.node.client().reader(topic, 0, stop_at_end=True) as reader:
        assert [message.value for message in reader] == [b"%d" % i for i in range(2000)]


def test_acks_wait_for_a_coordinator_that_is_killed_and_comes_back(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic()
    rpc.publish(topic, *[b"%d" % i for i in range(3000)])
    call = subscribe(stub, topic, "crash")
    seen: set[bytes] = set()
    crash = None
    while len(seen) < 3000:
        messages = take(call, 1, timeout=30)
        seen |= {message.value for message in messages}
        if crash is None:
            crash = threading.Thread(target=lambda: rpc.node.crash("groupd"))
            crash.start()
        requests = iter([pb.SettleRequest(receipts=receipts(messages))])
        codes = {result.error.code for response in stub.Settle(requests, timeout=30) for result in response.results}
        assert codes <= {"", "stale_receipt"}               # stale: the coordinator forgot the newest leases, it comes again
    call.cancel()
    assert crash
    crash.join()
    info = rpc.node.client().describe_group("crash")
    assert [part.lag for part in info.partitions] == [0]


def test_a_gateway_that_stops_says_so_and_another_one_goes_on(rpc: Rpc) -> None:
    stub, topic = rpc.stub(), rpc.topic()
    rpc.publish(topic, b"a", b"b", b"c")
    call = subscribe(stub, topic, "over")
    messages = take(call, 3)
    stub.Ack(pb.AckRequest(receipts=[messages[0].receipt]))
    member = stub.Join(pb.JoinRequest(group="polls", topics=[topic])).member
    polled = stub.Poll(pb.PollRequest(group="polls", member=member, max_messages=1, wait_ms=5000)).messages
    idle = stub.Join(pb.JoinRequest(group="idle", topics=[rpc.topic()])).member
    waiting = stub.Poll.future(pb.PollRequest(group="idle", member=idle, wait_ms=30_000))
    sending: queue.Queue[Any] = queue.Queue()
    stream = stub.PublishStream(iter(sending.get, None))
    sending.put(pb.PublishStreamRequest(messages=[pb.Draft(topic=topic, value=b"d")]))
    assert next(stream).results[0].offset >= 0
    start = time.monotonic()
    assert rpc.node.terminate("gateway") == {"gateway": 0}
    assert time.monotonic() - start < 5
    assert end_of(call) == end_of(stream) == grpc.StatusCode.UNAVAILABLE
    sending.put(None)
    assert not waiting.result().messages
    rpc.node.start("gateway")
    stub = rpc.stub()
    stub.Ack(pb.AckRequest(receipts=[messages[1].receipt, polled[0].receipt]))
    call = subscribe(stub, topic, "over")
    assert [(one.value, one.delivery) for one in take(call, 2)] == [(b"c", 1), (b"d", 1)]
    call.cancel()
    assert stub.Heartbeat(pb.HeartbeatRequest(group="polls", member=member)).assignment


def end_of(call: Any) -> Any:
    """Its status, once everything that was sent before is read."""
    with pytest.raises(grpc.RpcError):
        for _ in call:
            pass
    return call.code()
