"""Metrics: every name is declared here, once; cores count plain numbers, which are read when somebody scrapes.

    class LogCore:                                     daemon.metrics.add(core.samples)
        def samples(self) -> Iterator[Sample]:
            for p in self.partitions:
                yield LOG_SIZE_BYTES, (p.topic, str(p.number)), p.size_bytes

A source yields (metric, label values in the metric's order, value); value is a number, or a Histogram for one that is declared
as such. Sources run on the loop's thread and touch no file: keep them O(partitions). No I/O, no prometheus_client here:
exporter.py makes text of it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

LATENCY_BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Metric:
    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


class Histogram:
    """Counts per bucket: `counts[i]` values <= bounds[i] and above the one before, the last those above all."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """`count` times `value`."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count


Sample = tuple[Metric, tuple[str, ...], float | Histogram]
Source = Callable[[], Iterable[Sample]]


class Registry:
    """The sources of one daemon."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        self._sources.append(source)

    def collect(self) -> dict[Metric, list[tuple[tuple[str, ...], float | Histogram]]]:
        """A copy of all that is counted at this moment. On the loop's thread."""
        found: dict[Metric, list[tuple[tuple[str, ...], float | Histogram]]] = {}
        for source in self._sources:
            for metric, labels, value in source():
                assert len(labels) == len(metric.labels), metric.name
                assert isinstance(value, Histogram) == (metric.kind == HISTOGRAM), metric.name
                found.setdefault(metric, []).append((labels, _copy(value) if isinstance(value, Histogram) else value))
        return found


def _copy(value: Histogram) -> Histogram:
    copy = Histogram(value.bounds)
    copy.counts, copy.sum = list(value.counts), value.sum
    return copy


DECLARED: dict[str, Metric] = {}


def _declare(name: str, kind: str, help: str, *labels: str) -> Metric:
    assert name.startswith("goqueue_") and name not in DECLARED
    DECLARED[name] = Metric(name, kind, help, labels)
    return DECLARED[name]


# -- logd ------------------------------------------------------------------------------------
_TP: Final = ("topic", "partition")
LOG_SIZE_BYTES = _declare("goqueue_log_size_bytes", GAUGE, "Bytes a partition has on disk", *_TP)
LOG_SEGMENTS = _declare("goqueue_log_segments_total", GAUGE, "Segments a partition has on disk", *_TP)
LOG_APPEND_LATENCY = _declare("goqueue_log_append_latency_seconds", HISTOGRAM, "Time of one append to a partition's log", *_TP)
MESSAGES_PRODUCED = _declare("goqueue_messages_produced_total", COUNTER, "Messages appended", "topic")
BYTES_PRODUCED = _declare("goqueue_bytes_produced_total", COUNTER, "Bytes of messages appended", "topic")
PRODUCE_ERRORS = _declare("goqueue_produce_errors_total", COUNTER, "Batches refused", "topic", "error_type")
PRODUCE_LATENCY = _declare("goqueue_produce_latency_seconds", HISTOGRAM, "From a batch's arrival to its reply", "topic")
BYTES_CONSUMED = _declare("goqueue_bytes_consumed_total", COUNTER, "Bytes of messages fetched", "topic")
PARTITION_LEADER = _declare("goqueue_partition_leader", GAUGE, "1 on the node that leads the partition", *_TP, "node")
REPLICATION_LAG = _declare("goqueue_replication_lag_messages", GAUGE, "Messages a follower is behind", *_TP, "follower")

# -- groupd ------------------------------------------------------------------------------------
_GT: Final = ("group", "topic")
MESSAGES_CONSUMED = _declare("goqueue_messages_consumed_total", COUNTER, "Messages acked", *_GT)
CONSUMER_LAG = _declare("goqueue_consumer_lag", GAUGE, "Deliverable messages that are not acked", *_GT, "partition")
VISIBILITY_TIMEOUTS = _declare("goqueue_visibility_timeout_total", COUNTER, "Messages that came back unacked in time", *_GT)
DLQ = _declare("goqueue_dlq_total", COUNTER, "Messages that went to the dead letter queue", "topic")
REDELIVERIES = _declare("goqueue_redeliveries_total", COUNTER, "Messages handed out again", *_GT)
REBALANCE_DURATION = _declare("goqueue_rebalance_duration_seconds", HISTOGRAM, "From a change of members to the new assignment",
                              "group")
END_TO_END_LATENCY = _declare("goqueue_end_to_end_latency_seconds", HISTOGRAM, "From a message's arrival to its ack; delayed ones "
                              "and those that arrived before groupd looked not counted", *_GT)
COMMIT_LATENCY = _declare("goqueue_commit_latency_seconds", HISTOGRAM, "From acks' arrival to their reply", "group")
IN_FLIGHT = _declare("goqueue_messages_in_flight", GAUGE, "Messages leased", *_GT, "partition")
MESSAGES_READY = _declare("goqueue_messages_ready", GAUGE, "Messages waiting to be leased", *_GT, "partition")
MESSAGES_RETRYING = _declare("goqueue_messages_retrying", GAUGE, "Messages waiting for their next attempt", *_GT, "partition")
MESSAGES_EXPIRED = _declare("goqueue_messages_expired_total", COUNTER, "Messages lost to retention before they were acked", *_GT)
_PRIORITY: Final = (*_GT, "partition", "priority")
PRIORITY_READY = _declare("goqueue_priority_ready", GAUGE, "Messages of a priority waiting to be leased", *_PRIORITY)
PRIORITY_IN_FLIGHT = _declare("goqueue_priority_in_flight", GAUGE, "Messages of a priority leased", *_PRIORITY)
PRIORITY_ENQUEUED = _declare("goqueue_priority_enqueued_total", COUNTER, "Messages of a priority that came", *_PRIORITY)
PRIORITY_DEQUEUED = _declare("goqueue_priority_dequeued_total", COUNTER, "Messages of a priority acked or dead", *_PRIORITY)
PRIORITY_SERVED = _declare("goqueue_priority_last_served_seconds", GAUGE, "Since a message of a priority was handed out",
                           *_PRIORITY)
GROUP_MEMBERS = _declare("goqueue_group_members", GAUGE, "Members of a group", "group")

# -- delayd ------------------------------------------------------------------------------------
DELAY_SCHEDULED = _declare("goqueue_delay_scheduled", GAUGE, "Delayed messages that wait for their time", *_TP)
DELAY_OVERDUE = _declare("goqueue_delay_overdue", GAUGE, "Delayed messages that are due and not yet made ready", *_TP)
DELAY_READY = _declare("goqueue_delay_ready_total", COUNTER, "Delayed messages that came due", "topic")
DELAY_CANCELLED = _declare("goqueue_delay_cancelled_total", COUNTER, "Delayed messages that were cancelled", "topic")
DELAY_EXPIRED = _declare("goqueue_delay_expired_total", COUNTER, "Delayed messages that retention took before their time", "topic")
DELAY_LATENESS = _declare("goqueue_delay_lateness_seconds", HISTOGRAM, "From due to the ready record in the log", "topic")
CLOCK_JUMPS = _declare("goqueue_delay_clock_jumps_total", COUNTER, "How often the wall clock was set")

# -- metad ------------------------------------------------------------------------------------
NODES = _declare("goqueue_nodes_total", GAUGE, "Daemons registered", "status")
LEADER_ELECTION = _declare("goqueue_leader_election_seconds", HISTOGRAM, "From the loss of a leader to the next one")
TOPICS = _declare("goqueue_topics", GAUGE, "Topics, internal ones included")
METADATA_VERSION = _declare("goqueue_metadata_version", GAUGE, "Grows with every change of the metadata")

# -- gateway -----------------------------------------------------------------------------------
HTTP_REQUESTS = _declare("goqueue_http_requests_total", COUNTER, "Requests answered", "method", "path", "status")
HTTP_LATENCY = _declare("goqueue_http_request_seconds", HISTOGRAM, "From a request's last byte to its answer", "method", "path")
HTTP_CONNECTIONS = _declare("goqueue_http_connections", GAUGE, "Connections of callers")
HTTP_WAITING = _declare("goqueue_http_polls_waiting", GAUGE, "Long polls that wait for messages")
GRPC_REQUESTS = _declare("goqueue_grpc_requests_total", COUNTER, "Calls that ended; a stream is one", "method", "status")
GRPC_LATENCY = _declare("goqueue_grpc_request_seconds", HISTOGRAM, "From a unary call's request to its answer", "method")
GRPC_STREAMS = _declare("goqueue_grpc_streams", GAUGE, "Streaming calls that are open", "method")

# -- every daemon ------------------------------------------------------------------------------
UPTIME = _declare("goqueue_uptime_seconds", GAUGE, "Since the daemon started", "daemon")
REQUESTS = _declare("goqueue_requests_total", COUNTER, "Requests taken", "daemon")
REFUSED = _declare("goqueue_requests_refused_total", COUNTER, "Requests answered with an error, and what was no request", "daemon")
DENIED = _declare("goqueue_requests_denied_total", COUNTER, "Requests without a valid key, or without the right to what they ask",
                  "daemon", "reason")
UNSENT = _declare("goqueue_replies_unsent_total", COUNTER, "Replies whose caller was gone or did not read", "daemon")
