#!/usr/bin/env python3
"""GoQueue over gRPC in Python: publish, consume from a group, ack.

    python examples/grpc/python.py [HOST:PORT] [TOPIC]

The stubs come with GoQueue (gq_gateway). Elsewhere make them from the proto file:
    pip install grpcio grpcio-tools
    python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. gq_gateway/goqueue.proto
"""

import sys
from collections.abc import Iterator

import grpc

from gq_gateway import goqueue_pb2 as pb
from gq_gateway.goqueue_pb2_grpc import GoQueueStub

COUNT = 1000


def main(address: str = "127.0.0.1:9000", topic: str = "grpc-python") -> None:
    with grpc.insecure_channel(address) as channel:        # with keys: metadata=[("authorization", "Bearer gq_...")] on each call
        queue = GoQueueStub(channel)
        queue.CreateTopic(pb.CreateTopicRequest(name=topic, partitions=3, if_not_exists=True))
        publish_one(queue, topic)
        publish_many(queue, topic)
        consume(queue, topic, COUNT + 1)
        show_an_error(queue)


def publish_one(queue: GoQueueStub, topic: str) -> None:
    draft = pb.Draft(topic=topic, key=b"customer-7", value=b"hello", headers=[pb.Header(name="content-type", value=b"text/plain")])
    stored = queue.Publish(pb.PublishRequest(message=draft, acks=pb.ACKS_LEADER), timeout=10)
    print(f"published to partition {stored.partition} at offset {stored.offset}")


def publish_many(queue: GoQueueStub, topic: str) -> None:
    """A stream: some messages a request, a result for each message, in order."""
    def requests() -> Iterator[pb.PublishStreamRequest]:
        for first in range(0, COUNT, 50):
            drafts = [pb.Draft(topic=topic, value=b"number %d" % i) for i in range(first, first + 50)]
            yield pb.PublishStreamRequest(messages=drafts)

    results = [result for response in queue.PublishStream(requests(), timeout=60) for result in response.results]
    failed = [result.error for result in results if result.HasField("error")]
    print(f"published {len(results) - len(failed)} more, {len(failed)} failed")


def consume(queue: GoQueueStub, topic: str, count: int) -> None:
    """A subscription is a member of the group for as long as it lasts; what is not acked goes to others when it ends."""
    subscription = queue.Subscribe(pb.SubscribeRequest(group="grpc-example", topics=[topic], client="python.py"), timeout=60)
    done = 0
    for response in subscription:
        for message in response.messages:
            done += bool(message.value)                     # work on it here; pb.NackRequest to have it again later
        if response.messages:
            queue.Ack(pb.AckRequest(receipts=[message.receipt for message in response.messages]))
        if done >= count:
            break
    subscription.cancel()
    print(f"consumed {done}")


def show_an_error(queue: GoQueueStub) -> None:
    """The stable name of an error and whether a retry helps are in the trailers."""
    try:
        queue.DeleteTopic(pb.DeleteTopicRequest(name="no-such-topic"))
    except grpc.RpcError as error:
        trailers = dict(error.trailing_metadata())
        print(f"{error.code().name}: {trailers['goqueue-code']}, retriable {trailers['goqueue-retriable']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
