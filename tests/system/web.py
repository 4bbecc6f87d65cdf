"""A gateway to test by HTTP: the node behind it, and callers with nothing but http.client and raw sockets."""

import http.client
import itertools
import json
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.system.harness import DAEMONS, Node

OFF = {"GOQUEUE_GRPC_ADDR": "off", "GOQUEUE_GATEWAY_METRICS_ADDR": "off"}
_numbers = itertools.count(1)


class Answer:
    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of a problem, which it must be: whole, and without our insides."""
        assert self.headers["Content-Type"] == "application/problem+json", self.body
        problem = self.json
        assert {"type", "title", "status", "detail", "code", "retriable"} <= problem.keys() and problem["status"] == self.status
        assert ("Retry-After" in self.headers) == problem["retriable"]
        assert b"Traceback" not in self.body and b'File "' not in self.body
        return str(problem["code"])


class Web:
    """A node with its gateway. `ask` is one request on a connection of its own."""

    def __init__(self, folder: Path, config: str = "", **env: str) -> None:
        given = {**OFF, "GOQUEUE_HTTP_ADDR": "127.0.0.1:0", "GOQUEUE_METRICS_ADDR": "off", **env}
        self.node = Node(folder, daemons=(*DAEMONS, "gateway"), env=given, config=config)

    def start(self) -> "Web":
        self.node.start()
        self.find()
        return self

    def find(self) -> None:
        """Where it listens; after a restart elsewhere."""
        status = self.node.status("gateway")
        assert status is not None
        self.port = int(status.facts["http"].rpartition(":")[2])

    def ask(self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None, timeout: float = 20,
            port: int | None = None, **query: Any) -> Answer:
        line = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)
        try:
            shown = path + ("?" + urlencode(query) if query else "")
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            kind = {"Content-Type": "application/json"} if data is not None else {}
            line.request(method, shown, data, {**kind, **(headers or {})})
            answer = line.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            line.close()

    def get(self, path: str, **query: Any) -> Answer:
        return self.ask("GET", path, **query)

    def post(self, path: str, body: Any, **query: Any) -> Answer:
        return self.ask("POST", path, body, **query)

    def raw(self, *data: bytes, timeout: float = 15) -> socket.socket:
        """A connection on which this was sent."""
        line = socket.create_connection(("127.0.0.1", self.port), timeout)
        for piece in data:
            line.sendall(piece)
        return line

    def asking(self, path: str) -> socket.socket:
        """A connection on which a GET waits for its answer."""
        return self.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    def topic(self, partitions: int = 1, **config: Any) -> str:
        name = f"topic-{next(_numbers)}"
        answer = self.post("/topics", {"name": name, "partitions": partitions, "config": config})
        assert answer.status == 201, answer.body
        return name

    def publish(self, topic: str, *values: str) -> None:
        answer = self.post(f"/topics/{topic}/batch", {"messages": [{"value": value} for value in values]})
        assert answer.status == 200, answer.body

    def stop(self) -> None:
        self.node.stop()


def reply(line: socket.socket, close: bool = True) -> Answer:
    """The answer that comes on a connection."""
    answer = http.client.HTTPResponse(line)
    try:
        answer.begin()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        answer.close()
        if close:
            line.close()


def beside(work: Any, *args: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    return thread
