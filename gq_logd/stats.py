"""Plain numbers that the core counts and a scrape reads."""

from gq_run.metrics import Histogram


class PartitionStats:
    """Of one partition since the start."""

    __slots__ = ("append_latency", "bytes_consumed", "bytes_produced", "messages_produced")

    def __init__(self) -> None:
        self.messages_produced = 0
        self.bytes_produced = 0
        self.bytes_consumed = 0
        self.append_latency = Histogram()


class TopicStats:
    """Of one topic since the start."""

    __slots__ = ("errors", "produce_latency")

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}
        self.produce_latency = Histogram()

    def refused(self, error: str) -> None:
        self.errors[error] = self.errors.get(error, 0) + 1
