"""How long acks wait for the journal: per group, from an ack's arrival to its reply.

Counted per request, whatever number of messages it settles, and only where something had to become durable: a request of nothing
but stale leases is answered at once and is no commit.
"""

from collections.abc import Iterator

from gq_run import metrics as m


class Commits:
    def __init__(self) -> None:
        self._latency: dict[str, m.Histogram] = {}

    def note(self, group: str, seconds: float) -> None:
        histogram = self._latency.get(group)
        if histogram is None:
            histogram = self._latency[group] = m.Histogram()
        histogram.observe(seconds)

    def forget(self, group: str) -> None:
        """The group is gone."""
        self._latency.pop(group, None)

    def samples(self) -> Iterator[m.Sample]:
        for group, histogram in self._latency.items():
            yield m.COMMIT_LATENCY, (group,), histogram
