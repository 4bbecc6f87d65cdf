"""The table of methods: each of the proto's, with its handler. A method of the proto without one does not start.

Made of the proto's descriptor, so that names and types are said once.
"""

from typing import Any, Final

import grpc
from google.protobuf.message_factory import GetMessageClass

from gq_gateway import goqueue_pb2 as pb
from gq_gateway.gateway import Gateway
from gq_gateway.rpc import guard
from gq_gateway.rpc.groups import Groups
from gq_gateway.rpc.leases import Leases
from gq_gateway.rpc.publish import Publishing
from gq_gateway.rpc.settle import Settling
from gq_gateway.rpc.subscribe import Subscribing
from gq_gateway.rpc.topics import Topics

DESCRIPTOR: Final = pb.DESCRIPTOR.services_by_name["GoQueue"]
NAME: Final = str(DESCRIPTOR.full_name)


class Service:
    """All calls of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        leases = Leases()
        topics, publishing, settling = Topics(gateway), Publishing(gateway), Settling(gateway, leases)
        self.subscribing = Subscribing(gateway, leases)
        self._taken, self._book = gateway.taken, gateway.book
        groups = Groups(gateway)
        self._methods: dict[str, Any] = {
            "CreateTopic": topics.create, "DeleteTopic": topics.delete, "ListTopics": topics.list,
            "Publish": publishing.publish, "PublishStream": publishing.stream,
            "Subscribe": self.subscribing.subscribe,
            "Ack": settling.ack, "Nack": settling.nack, "Reject": settling.reject, "Extend": settling.extend,
            "Settle": settling.stream, "Commit": groups.commit,
            "Join": groups.join, "Poll": groups.poll, "Heartbeat": groups.heartbeat, "Leave": groups.leave,
        }

    def serve(self, server: Any) -> None:
        """Have a server serve it."""
        handlers = {method.name: self.handler(method) for method in DESCRIPTOR.methods}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))
        server.add_registered_method_handlers(NAME, handlers)

    def handler(self, method: Any) -> "grpc.RpcMethodHandler[Any, Any]":
        call = self._methods[method.name]
        reads = guard.reader(GetMessageClass(method.input_type).FromString)
        writes = GetMessageClass(method.output_type).SerializeToString
        counts = self._book.method(method.name, method.server_streaming)
        if method.client_streaming:
            return grpc.stream_stream_rpc_method_handler(guard.stream(call, counts), reads, writes)
        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(guard.stream(call, counts), reads, writes)
        return grpc.unary_unary_rpc_method_handler(guard.unary(call, counts, self._taken), reads, writes)

    async def ended(self) -> None:
        """Once everything that subscribers were handed is given back."""
        await self.subscribing.ended()
