"""What publishing has to ask first: the topic (made when it is not there) and a producer id. Operations, see gq_client.ask."""

from gq_client.admin import Operation
from gq_client.ask import Ask
from gq_client.routing import METAD, Routes
from gq_proto import messages as m
from gq_proto.messages import Kind
from gq_proto.names import check_name


def ensure(routes: Routes, name: str) -> Operation[m.TopicMeta]:
    """A topic that is known already, or is there, or is made with the node's defaults (unless the node refuses to)."""
    if name not in routes.topics:
        check_name("topic", name)
        yield Ask(Kind.METADATA, m.Metadata(routes.version), METAD)
    if name not in routes.topics:
        reply, _ = yield Ask(Kind.CREATE_TOPIC, m.CreateTopic(name, if_not_exists=True, auto=True), METAD)
        routes.add(reply.topic)
    return routes.topic(name)


def news(routes: Routes, name: str) -> Operation[m.TopicMeta]:
    """A topic as it is now: it may have more partitions than we knew."""
    yield Ask(Kind.METADATA, m.Metadata(routes.version), METAD)
    return routes.topic(name)


def new_producer() -> Operation[tuple[int, int]]:
    """(producer id, epoch)."""
    reply, _ = yield Ask(Kind.INIT_PRODUCER, m.InitProducer(), METAD)
    return reply.producer_id, reply.epoch
