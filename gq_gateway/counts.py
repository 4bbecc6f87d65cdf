"""What the gateway counts of its callers' requests, HTTP's by route and gRPC's by method."""

from collections.abc import Iterator
from typing import Final

from gq_run.metrics import GRPC_LATENCY, GRPC_REQUESTS, GRPC_STREAMS, HTTP_LATENCY, HTTP_REQUESTS, Histogram, Sample

OK: Final = "OK"


class Counts:
    """Requests of one route or method: by status, how long they took, and (of streams, whose length says nothing) how many are
    open."""

    def __init__(self, stream: bool = False) -> None:
        self.by_status: dict[int | str, int] = {}
        self.latency = Histogram()
        self.stream, self.open = stream, 0

    def note(self, status: int | str, seconds: float) -> None:
        self.by_status[status] = self.by_status.get(status, 0) + 1
        if not self.stream:
            self.latency.observe(seconds)


class Book:
    """All of them. `route` and `method` make an entry, to be kept by who fills it."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str], Counts] = {}
        self._methods: dict[str, Counts] = {}

    def route(self, method: str, path: str) -> Counts:
        return self._routes.setdefault((method, path), Counts())

    def method(self, name: str, stream: bool) -> Counts:
        return self._methods.setdefault(name, Counts(stream))

    def samples(self) -> Iterator[Sample]:
        for route, counts in self._routes.items():
            for status, count in counts.by_status.items():
                yield HTTP_REQUESTS, (*route, str(status)), count
            if counts.by_status:
                yield HTTP_LATENCY, route, counts.latency
        for name, counts in self._methods.items():
            for status, count in counts.by_status.items():
                yield GRPC_REQUESTS, (name, str(status)), count
            if counts.stream:
                yield GRPC_STREAMS, (name,), counts.open
            elif counts.by_status:
                yield GRPC_LATENCY, (name,), counts.latency
