"""Metrics: the specification's names, what a scrape reads, and that no scraper holds up the loop."""

import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gq_proto.errors import Forbidden, Unauthorized, Unavailable
from gq_run import exporter
from gq_run import metrics as m
from gq_run.exporter import Exporter, render
from gq_run.loop import Loop

# SPEC's paragraph "Metrics", names and labels
SPECIFIED = """
goqueue_log_size_bytes{topic,partition} goqueue_log_segments_total{topic,partition}
goqueue_log_append_latency_seconds{topic,partition} goqueue_messages_produced_total{topic}
goqueue_bytes_produced_total{topic} goqueue_produce_errors_total{topic,error_type} goqueue_produce_latency_seconds{topic}
goqueue_messages_consumed_total{group,topic} goqueue_consumer_lag{group,topic,partition}
goqueue_visibility_timeout_total{group,topic} goqueue_dlq_total{topic} goqueue_partition_leader{topic,partition,node}
goqueue_replication_lag_messages{topic,partition,follower} goqueue_rebalance_duration_seconds{group}
goqueue_nodes_total{status}
"""
UNLABELLED = """goqueue_bytes_consumed_total goqueue_end_to_end_latency_seconds goqueue_commit_latency_seconds
goqueue_redeliveries_total goqueue_leader_election_seconds"""


def test_the_specified_names_and_labels_are_declared() -> None:
    for name, labels in re.findall(r"(\w+)\{([\w,]+)\}", SPECIFIED):
        assert m.DECLARED[name].labels == tuple(labels.split(",")), name
    assert set(UNLABELLED.split()) <= m.DECLARED.keys()
    assert all(metric.kind == m.COUNTER or not name.endswith("_total") or name in SPECIFIED for name, metric in m.DECLARED.items())


def test_histograms_count_per_bucket() -> None:
    histogram = m.Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.5):
        histogram.observe(value)
    histogram.observe(9.0, 3)
    assert histogram.counts == [2, 1, 4] and histogram.sum == 32.5


@pytest.fixture
def registry() -> m.Registry:
    made, histogram = m.Registry(), m.Histogram((0.001, 1.0))
    histogram.observe(0.5, 2)
    histogram.observe(5)
    made.add(lambda: [(m.MESSAGES_PRODUCED, ("a",), 3), (m.LOG_SEGMENTS, ("a", "0"), 2)])
    made.add(lambda: [(m.MESSAGES_PRODUCED, ("b\"\n",), 4), (m.PRODUCE_LATENCY, ("a",), histogram)])
    return made


def test_text(registry: m.Registry) -> None:
    lines = render(registry.collect()).decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'goqueue_messages_produced_total{topic="a"} 3.0',
        'goqueue_messages_produced_total{topic="b\\"\\n"} 4.0',
        'goqueue_log_segments_total{partition="0",topic="a"} 2.0',
        'goqueue_produce_latency_seconds_bucket{le="0.001",topic="a"} 0.0',
        'goqueue_produce_latency_seconds_bucket{le="1.0",topic="a"} 2.0',
        'goqueue_produce_latency_seconds_bucket{le="+Inf",topic="a"} 3.0',
        'goqueue_produce_latency_seconds_count{topic="a"} 3.0',
        'goqueue_produce_latency_seconds_sum{topic="a"} 6.0',
    ]
    assert "# TYPE goqueue_messages_produced_total counter" in lines
    assert "# TYPE goqueue_log_segments_total gauge" in lines


def test_a_collected_histogram_is_a_copy() -> None:
    registry, histogram = m.Registry(), m.Histogram()
    registry.add(lambda: [(m.LEADER_ELECTION, (), histogram)])
    [(_, copy)] = registry.collect()[m.LEADER_ELECTION]
    histogram.observe(1)
    assert isinstance(copy, m.Histogram) and sum(copy.counts) == 0


def test_a_wrong_sample_is_a_bug() -> None:
    for sample in ((m.MESSAGES_PRODUCED, (), 1), (m.MESSAGES_PRODUCED, ("a",), m.Histogram()), (m.PRODUCE_LATENCY, ("a",), 1)):
        registry = m.Registry()
        registry.add(lambda sample=sample: [sample])    # type: ignore[misc]
        with pytest.raises(AssertionError):
            registry.collect()


# -- over HTTP ---------------------------------------------------------------------------

@pytest.fixture
def served(loop: Loop, registry: m.Registry) -> Iterator[tuple[Exporter, list[bool]]]:
    ready = [False]
    made = Exporter(loop, registry, "127.0.0.1", 0, lambda: ready[0])
    yield made, ready
    made.close()


def get(loop: Loop, made: Exporter, path: str, turn_until: Callable[..., None],
        headers: dict[str, str] | None = None) -> tuple[int, str]:
    answers: list[tuple[int, str]] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(f"http://{made.address}{path}", headers=headers or {})
            with urllib.request.urlopen(request, timeout=10) as response:
                answers.append((response.status, response.read().decode()))
        except urllib.error.HTTPError as e:
            answers.append((e.code, e.read().decode()))
            e.close()

    thread = threading.Thread(target=ask)
    thread.start()
    turn_until(lambda: answers)
    thread.join()
    return answers[0]


def test_paths(loop: Loop, served: tuple[Exporter, list[bool]], turn_until: Callable[..., None]) -> None:
    made, ready = served
    status, text = get(loop, made, "/metrics?x=1", turn_until)
    assert status == 200 and 'goqueue_messages_produced_total{topic="a"} 3.0' in text
    assert get(loop, made, "/health", turn_until)[0] == 200
    assert get(loop, made, "/ready", turn_until)[0] == 503
    ready[0] = True
    assert get(loop, made, "/ready", turn_until)[0] == 200
    assert get(loop, made, "/other", turn_until)[0] == 404


def test_a_guarded_one_asks_on_the_loop_s_thread_who_it_is(loop: Loop, registry: m.Registry,
                                                          turn_until: Callable[..., None]) -> None:
    asked: list[tuple[str, bool]] = []
    refusals: dict[str, Exception] = {"": Unauthorized("who?"), "wrong": Unauthorized("no"), "poor": Forbidden("not you"),
                                      "early": Unavailable("later")}

    def admit(token: str) -> None:
        asked.append((token, threading.current_thread() is threading.main_thread()))
        if token in refusals:
            raise refusals[token]

    made = Exporter(loop, registry, "127.0.0.1", 0, lambda: True, admit)
    try:
        found = [get(loop, made, "/metrics", turn_until, {"Authorization": f"Bearer {token}"} if token else {})
                 for token in ("", "wrong", "poor", "early", "good")]
        assert [status for status, _ in found] == [401, 401, 403, 503, 200]
        assert found[0][1] == "who?\n" and "goqueue_messages_produced_total" not in found[2][1]
        assert asked == [(token, True) for token in ("", "wrong", "poor", "early", "good")]
        assert get(loop, made, "/health", turn_until)[0] == get(loop, made, "/ready", turn_until)[0] == 200
    finally:
        made.close()


def test_a_busy_loop_is_a_503(loop: Loop, served: tuple[Exporter, list[bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "COLLECT_S", 0.01)
    with pytest.raises(urllib.error.HTTPError) as error:                     # nobody turns the loop
        urllib.request.urlopen(f"http://{served[0].address}/metrics", timeout=10)
    assert error.value.code == 503
    error.value.close()
    loop.turn()                                                              # and what was posted harms nobody later


def test_stuck_scrapers_hold_up_nobody_and_are_bounded(loop: Loop, served: tuple[Exporter, list[bool]],
                                                       turn_until: Callable[..., None]) -> None:
    made, _ = served
    host, port = made.address.split(":")
    stuck = [socket.create_connection((host, int(port))) for _ in range(exporter.CONNECTIONS_MAX - 1)]
    assert get(loop, made, "/metrics", turn_until)[0] == 200
    stuck += [socket.create_connection((host, int(port))) for _ in range(3)]
    turned_away = stuck[-1]
    turned_away.settimeout(10)
    assert turned_away.recv(1) == b""
    for one in stuck:
        one.close()


def test_garbage_is_answered_or_dropped(loop: Loop, served: tuple[Exporter, list[bool]], turn_until: Callable[..., None]) -> None:
    made, _ = served
    host, port = made.address.split(":")
    for garbage in (b"\x00\xff\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /metrics HTTP/1.0\r\n\r\n",
                    b"GET " + b"x" * 70_000):
        with socket.create_connection((host, int(port)), timeout=10) as one:
            one.sendall(garbage)
            one.shutdown(socket.SHUT_WR)
            while one.recv(4096):
                pass
    assert get(loop, made, "/health", turn_until)[0] == 200


def test_a_taken_address(loop: Loop, served: tuple[Exporter, list[bool]], registry: m.Registry) -> None:
    host, port = served[0].address.split(":")
    with pytest.raises(OSError, match="in use"):
        Exporter(loop, registry, host, int(port), lambda: True)


def test_who_sends_a_byte_now_and_then_is_cut_off(served: tuple[Exporter, list[bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "CONNECTION_S", 0.05)
    monkeypatch.setattr(exporter._Handler, "timeout", 1000.0)        # as if it always sent one in time
    host, port = served[0].address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as slow:
        slow.sendall(b"GET /hea")
        while slow.recv(1000):
            pass


def test_closing_waits_for_no_client(loop: Loop, registry: m.Registry) -> None:
    made: Any = Exporter(loop, registry, "127.0.0.1", 0, lambda: True)
    host, port = made.address.split(":")
    with socket.create_connection((host, int(port))):
        made.close()
    assert not made._thread.is_alive()
