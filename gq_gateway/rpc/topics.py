"""CreateTopic, DeleteTopic, ListTopics."""

from gq_gateway import goqueue_pb2 as pb
from gq_gateway.gateway import Gateway
from gq_gateway.rpc.convert import config_of, topic_of
from gq_gateway.rpc.guard import Caller
from gq_proto.names import is_internal


class Topics:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def create(self, request: pb.CreateTopicRequest, caller: Caller) -> pb.CreateTopicResponse:
        await self._gateway.authorize(caller, "admin", request.name)
        made = await self._gateway.client.create_topic(
            request.name, partitions=request.partitions, replication_factor=request.replication_factor,
            config=config_of(request.config), if_not_exists=request.if_not_exists)
        return pb.CreateTopicResponse(topic=topic_of(made))

    async def delete(self, request: pb.DeleteTopicRequest, caller: Caller) -> pb.DeleteTopicResponse:
        await self._gateway.authorize(caller, "admin", request.name)
        await self._gateway.client.delete_topic(request.name)
        return pb.DeleteTopicResponse()

    async def list(self, request: pb.ListTopicsRequest, caller: Caller) -> pb.ListTopicsResponse:
        access = await self._gateway.authorize(caller, "any")
        found = [topic for topic in await self._gateway.client.topics()
                 if (request.internal or not is_internal(topic.name)) and access.sees(topic.name)]
        return pb.ListTopicsResponse(topics=[topic_of(topic) for topic in sorted(found, key=lambda topic: topic.name)])
