"""The Python client: `Client` blocks, `AsyncClient` is awaited; both drive the same pure session.

    with gq_client.Client() as client:
        client.publish("orders", b"42", key="customer-7")
        with client.producer() as producer:
            producer.send("orders", b"43")
        for message in client.reader("orders", 0, "earliest"):
            print(message.offset, message.value)
        with client.consumer(["orders"], group="billing") as consumer:
            for message in consumer:
                message.ack()

Owns everything an app touches. Decisions live in pure modules: session (requests), routing, batches (a producer's), cursor (a
reader's), consumer; sockets in wire; waiting in line and aio_line. Errors are those of gq_proto.errors.
"""

from typing import TYPE_CHECKING, Any

from gq_client.batch import Published
from gq_client.sync import Client

if TYPE_CHECKING:
    from gq_client.aio import AsyncClient

__all__ = ["AsyncClient", "Client", "Published"]


def __getattr__(name: str) -> Any:
    """asyncio takes longer to import than all the rest: only who asks for AsyncClient pays."""
    if name == "AsyncClient":
        from gq_client.aio import AsyncClient
        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
