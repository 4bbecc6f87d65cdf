"""The gateway's application without sockets: an ASGI call by hand, and a client whose answers a test sets.

    rig = Rig()
    rig.client.answers["topics"] = [...]               a value, an exception to raise, or a function of the arguments
    answer = rig.ask("GET", "/topics")                 answer.status, .json, .headers
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from gq_client.routing import Routes
from gq_gateway.app import make_app
from gq_gateway.door import Door
from gq_gateway.gateway import Gateway
from gq_gateway.routes import ROUTES
from gq_gateway.table import Route
from gq_proto.access import Access
from gq_proto.messages import Kind, PartitionMeta, TopicConfig, TopicMeta

BODY_MAX = 4096


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self.body
        return str(self.json["code"])


class FakeClient:
    """`answers` by method, or by Kind for raw calls; `asked` is what was asked, in order."""

    def __init__(self) -> None:
        self.routes = Routes(["ipc://nowhere"])
        self.answers: dict[Any, Any] = {}
        self.asked: list[Any] = []

    def add_topic(self, name: str, partitions: int = 2, id: int = 7) -> TopicMeta:
        topic = TopicMeta(name, id, TopicConfig(), [PartitionMeta("n", 1) for _ in range(partitions)])
        self.routes.add(topic)
        return topic

    async def _answer(self, what: Any, *args: Any) -> Any:
        self.asked.append((what, *args))
        found = self.answers[what]
        if callable(found):
            found = found(*args)
        if asyncio.iscoroutine(found):
            found = await found
        if isinstance(found, BaseException):
            raise found
        return found

    async def call(self, kind: Kind, body: Any, payload: Any = (), **more: Any) -> tuple[Any, Sequence[Any]]:
        found = await self._answer(kind, body)
        return found if isinstance(found, tuple) else (found, [])

    async def run(self, operation: Any, timeout: float | None = None) -> Any:
        """Drive an operation with the answers by Kind."""
        send, value = operation.send, None
        while True:
            try:
                step = send(value)
            except StopIteration as end:
                return end.value
            try:
                send = operation.send
                value = await self._one(step) if not isinstance(step, list) else [await self._one(ask) for ask in step]
            except Exception as error:
                send, value = operation.throw, error

    async def _one(self, ask: Any) -> tuple[Any, Sequence[Any]]:
        return await self.call(ask.kind, ask.body)

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._answer(name, *args, *kwargs.values())


class Delivery:
    """What send() returns: awaited, a place or an error."""

    def __init__(self, outcome: Any) -> None:
        self._outcome = outcome

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome


class FakeProducer:
    """`refuse(value)` may return an error for send(), `fail(value)` one for the delivery."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.refuse: Any = lambda value: None
        self.fail: Any = lambda value: None

    async def send(self, topic: str, value: Any, key: Any = None, headers: Any = None, priority: Any = None, delay: Any = None,
                   deliver_at: Any = None, partition: Any = None) -> Delivery:
        error = self.refuse(value)
        if error:
            raise error
        self.sent.append((topic, value, key, headers, priority, delay, deliver_at, partition))
        return Delivery(self.fail(value) or (partition or 0, len(self.sent) - 1, 1_000_000))


class Rig:
    """`authorized`: what the hook was asked; `verdict`: an error it raises."""

    def __init__(self, routes: Sequence[Route] = ROUTES) -> None:
        self.client = FakeClient()
        self.producer = FakeProducer()
        self.authorized: list[tuple[str, str]] = []
        self.verdict: BaseException | None = None
        self.is_ready = True
        self.taken = 0
        self._routes = routes
        self.drain = False
        self.door = Door()               # open to everyone

    def ask(self, method: str, path: str, body: Any = None, query: str = "", headers: dict[str, str] | None = None, *,
            chunks: Sequence[bytes] | None = None, gone: bool = False) -> Answer:
        """One request. `gone`: its caller leaves as soon as all is sent."""
        return asyncio.run(self.asks(method, path, body, query, headers, chunks=chunks, gone=gone))

    async def asks(self, method: str, path: str, body: Any = None, query: str = "", headers: dict[str, str] | None = None, *,
                   chunks: Sequence[bytes] | None = None, gone: bool = False) -> Answer:
        gateway = self.gateway = self._gateway()
        app = make_app(gateway, BODY_MAX, self._routes)
        given = chunks or [body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()]
        sent = {"host": "x", **({"content-type": "application/json"} if body is not None or chunks else {}), **(headers or {})}
        if chunks is None:
            sent["content-length"] = str(len(given[0]))
        scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
                 "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
                 "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
                 "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}
        events = [{"type": "http.request", "body": chunk, "more_body": at < len(given) - 1} for at, chunk in enumerate(given)]
        out: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if events:
                return events.pop(0)
            if not gone:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(event: dict[str, Any]) -> None:
            out.append(event)

        await app(scope, receive, send)
        await gateway.settle(1.0)
        shown = {name.decode(): value.decode() for name, value in out[0]["headers"]}
        return Answer(out[0]["status"], shown, b"".join(event.get("body", b"") for event in out[1:]))

    def _gateway(self) -> Gateway:
        client: Any = self.client
        gateway = Gateway(client, lambda: self.is_ready, self._took)

        async def authorize(request: Any, verb: str, topic: str = "", group: str = "") -> Access:
            self.authorized.append((verb, topic or group))
            if self.verdict:
                raise self.verdict
            return self.door.admit(request, verb, topic, group)

        producer: Any = self.producer
        gateway.authorize = authorize  # type: ignore[method-assign]
        gateway.producer = lambda acks: gateway.check_open() or producer  # type: ignore[method-assign,func-returns-value]
        if self.drain:
            gateway.draining.set()
        return gateway

    def _took(self) -> None:
        self.taken += 1
