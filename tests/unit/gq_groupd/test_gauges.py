"""Metrics of the cores, and one LIST_GROUPS over all of them."""

from typing import Any

from gq_groupd.commits import Commits
from gq_groupd.core import PartGauge
from gq_groupd.daemon import Gathered, Gauges, Part
from gq_proto.errors import NotCoordinator
from gq_proto.messages import GroupSummary, LaneInfo, ListGroupsReply
from gq_run import metrics as m


class Hosted:
    def __init__(self, *rows: PartGauge) -> None:
        self.rows, self.read = rows, 0

    def gauges(self) -> Any:
        self.read += 1
        return self.rows

    def ages(self) -> Any:
        return {}

    def members(self) -> Any:
        return [("g", 2)] if self.rows and self.rows[0].partition == 0 and self.rows[0].topic == "t" else []


def row(topic: str, partition: int, **more: Any) -> PartGauge:
    counted = {"lag": 10, "in_flight": 3, "retrying": 2, "consumed": 5, "redelivered": 1, "timed_out": 1, "dead_lettered": 1,
               "expired": 0} | more
    return PartGauge("g", topic, partition, **counted)


def test_partitions_are_summed_where_the_metric_has_none() -> None:
    gauges = Gauges(lambda: [Hosted(row("t", 0), row("t", 1, consumed=7)), Hosted(row("u", 0))], lambda: 100.0)  # type: ignore[list-item]
    samples = {(metric.name, labels): value for metric, labels, value in gauges.samples()}
    assert samples["goqueue_consumer_lag", ("g", "t", "1")] == 10
    assert samples["goqueue_messages_ready", ("g", "t", "0")] == 5
    assert samples["goqueue_messages_consumed_total", ("g", "t")] == 12
    assert samples["goqueue_dlq_total", ("t",)] == 2 and samples["goqueue_dlq_total", ("u",)] == 1


def test_scrapes_in_a_row_ask_the_cores_once() -> None:
    now, hosted = [100.0], Hosted(row("t", 0))
    gauges = Gauges(lambda: [hosted], lambda: now[0])  # type: ignore[list-item]
    list(gauges.samples())
    list(gauges.samples())
    assert hosted.read == 1
    now[0] += 5
    list(gauges.samples())
    assert hosted.read == 2


def test_each_rebalance_is_observed_once() -> None:
    now, hosted = [100.0], Hosted(row("t", 0, rebalances=1, rebalance_ms=40), row("t", 1, rebalances=1, rebalance_ms=40))
    gauges = Gauges(lambda: [hosted], lambda: now[0])  # type: ignore[list-item]
    for _ in range(3):
        now[0] += 5
        samples = {metric: value for metric, _, value in gauges.samples()}
    histogram = samples[m.REBALANCE_DURATION]
    assert isinstance(histogram, m.Histogram) and sum(histogram.counts) == 1 and histogram.sum == 0.04


class Incoming:
    peer, kind, body, deadline = b"p", 78, None, 1.0

    def __init__(self) -> None:
        self.said: list[Any] = []

    def reply(self, body: Any) -> bool:
        self.said.append(body)
        return True

    def fail(self, error: Any) -> bool:
        self.said.append(error)
        return True


def summary(name: str) -> ListGroupsReply:
    return ListGroupsReply([GroupSummary(name, "shared", 0, [], False, 0)])


def test_a_list_is_answered_when_all_cores_have() -> None:
    incoming = Incoming()
    gathered = Gathered(incoming, 2)  # type: ignore[arg-type]
    Part(gathered, 0).reply(summary("a"))
    assert not incoming.said
    Part(gathered, 1).reply(summary("b"))
    assert [group.group for group in incoming.said[0].groups] == ["a", "b"]


def test_a_list_that_one_core_refuses_is_refused_once() -> None:
    incoming = Incoming()
    gathered = Gathered(incoming, 3)  # type: ignore[arg-type]
    Part(gathered, 0).reply(summary("a"))
    Part(gathered, 1).fail(NotCoordinator("starting"))
    Part(gathered, 2).fail(NotCoordinator("starting"))
    Part(gathered, 2).reply(summary("b"))
    assert len(incoming.said) == 1


def test_members_are_counted_by_group() -> None:
    gauges = Gauges(lambda: [Hosted(row("t", 0)), Hosted()], lambda: 100.0)  # type: ignore[list-item]
    assert [(labels, value) for metric, labels, value in gauges.samples() if metric is m.GROUP_MEMBERS] == [(("g",), 2)]


def test_waits_for_the_journal_are_told_by_group_until_it_is_gone() -> None:
    commits = Commits()
    commits.note("a", 0.02)
    commits.note("b", 0.3)
    commits.note("a", 0.04)
    commits.forget("b")
    [(metric, labels, histogram)] = commits.samples()
    assert metric is m.COMMIT_LATENCY and labels == ("a",)
    assert isinstance(histogram, m.Histogram) and sum(histogram.counts) == 2 and round(histogram.sum, 6) == 0.06


def test_priorities_are_told_by_name() -> None:
    lanes = [LaneInfo(0, 5, 1, 0, 7, 2, 0.5, 0.1, 1_500), LaneInfo(4, 9, 0, 0, 9, 0, 0.0, 0.0)]
    gauges = Gauges(lambda: [Hosted(row("t", 3, lanes=lanes))], lambda: 100.0)  # type: ignore[list-item]
    samples = {(metric.name, labels): value for metric, labels, value in gauges.samples()}
    critical, background = ("g", "t", "3", "critical"), ("g", "t", "3", "background")
    assert [samples[f"goqueue_priority_{name}", critical] for name in
            ("ready", "in_flight", "enqueued_total", "dequeued_total", "last_served_seconds")] == [5, 1, 7, 2, 1.5]
    assert samples["goqueue_priority_ready", background] == 9
    assert ("goqueue_priority_last_served_seconds", background) not in samples
